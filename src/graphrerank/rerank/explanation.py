"""Explain a candidate's score by its base score, its smoothed score, the output of the network and single edges.

- The effect of an edge is measured by removal. The model scores the candidates again without the edge; the graphs
  without one edge each are scored in a few batches.
- If the model distinguishes edge types, edges of different types between the same passages are separate edges.
- Removing an edge also changes the features that depend on it, such as the query words that a passage's neighbours
  contain.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.features.candidate_texts import CandidateTexts
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.utils.checks import UserError

NEIGHBOURHOOD = MATCH_FEATURES[2]
#: Maximum number of nodes and edges per batch. It bounds each tensor of a layer to 8 MiB.
ROWS_AT_ONCE = 1 << 15
SMALLEST_EFFECT = 1e-6  # smaller effects are rounding errors
EdgeKey = tuple[tuple[int, int], str | None]  # passage indices in ascending order, and the type


class EdgeEffect(NamedTuple):
    """Effect of an edge on the score of a passage.

    Attributes:
        pair: Indices of the two passages that the edge joins, in ascending order.
        effect: Score of the passage minus its score without the edge.
        edge_type: Name of the type, one of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`. None if the model does
            not distinguish types.
    """

    pair: tuple[int, int]
    effect: float
    edge_type: str | None


@dataclass(frozen=True)
class DocumentExplanation:
    """Components of a candidate's score, which is ``gcs_part + learned_part``.

    Attributes:
        base_rank: Rank by the base score, counted from 1. Candidates with equal scores share the best rank.
        base_score: Score of the retriever.
        gcs_part: Score from Graph Cohesive Smoothing.
        learned_part: Score from the network.
        edges: Edges with the largest effects, in descending order of magnitude. Ties are ordered by pair and type.
    """

    base_rank: int
    base_score: float
    gcs_part: float
    learned_part: float
    edges: tuple[EdgeEffect, ...]


class Explainer:
    """Explain the scores of a GATv2 reranker.

    Args:
        checkpoint: Loaded checkpoint.

    Raises:
        UserError: If the model of the checkpoint is not a ``gatv2_reranker``.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        if not isinstance(checkpoint.model, GATv2Reranker):
            raise UserError(
                f"{checkpoint.path}: explanations require a gatv2_reranker, got {type(checkpoint.model).__name__}"
            )
        self._reranker = GraphReranker(checkpoint)
        self._model = checkpoint.model

    @torch.inference_mode()
    def explain(
        self,
        inputs: RerankInput,
        *,
        num_edges: int = 5,
        max_edges: int = 1000,
        check: Callable[[], None] = lambda: None,
    ) -> list[DocumentExplanation]:
        """Explain the score of each passage.

        Args:
            inputs: Query and its ``n`` candidates.
            num_edges: Maximum number of edges to list per passage.
            max_edges: Maximum number of undirected edges. The model is evaluated once per edge.
            check: Function that is called repeatedly during the computation. It may raise an exception to cancel it.

        Returns:
            One explanation per passage, in input order.

        Raises:
            UserError: If there are more than ``max_edges`` edges, or if an input is invalid.
        """
        graphs = self._reranker.candidate_graphs([inputs], check=check)
        match = None
        is_read = NEIGHBOURHOOD in self._reranker.feature_names and NEIGHBOURHOOD not in (inputs.features or {})
        if inputs.passages is not None and is_read:
            match = CandidateTexts(inputs.query, inputs.passages, inputs.language).text_match
        return self.explain_graph(graphs, inputs.query, match, num_edges=num_edges, max_edges=max_edges, check=check)

    @torch.inference_mode()
    def explain_graph(
        self,
        graphs: CandidateGraphs,
        query: str,
        match: TextMatch | None,
        *,
        num_edges: int = 5,
        max_edges: int,
        check: Callable[[], None],
    ) -> list[DocumentExplanation]:
        """Explain the scores of the candidates in one query's graph, on the CPU.

        Args:
            graphs: Candidate graph of the query.
            query: Query text.
            match: Word index of the passages, from which the features of a passage's neighbours are recomputed when an
                edge is removed. If None, these features are not recomputed.
            num_edges: Maximum number of edges to list per candidate.
            max_edges: Maximum number of undirected edges. The model is evaluated once per edge.
            check: Function that is called repeatedly during the computation. It may raise an exception to cancel it.

        Returns:
            One explanation per candidate, in the order of the nodes.

        Raises:
            UserError: If there are more than ``max_edges`` edges.
        """
        gcs_part, learned_part = self._model.score_parts(*graphs.model_inputs(self._model.inputs))
        base = graphs.x[:, 0]
        rank = (
            1 + len(base) - torch.searchsorted(base.sort().values, base.contiguous(), right=True)
        )  # 1 + number of higher scores
        edges, number_of = _undirected_edges(graphs)
        if len(edges) > max_edges:
            raise UserError(
                f"`explain` requires at most {max_edges} edges, got {len(edges)}. The list is scored once per edge"
            )
        covered = None
        if match is not None and NEIGHBOURHOOD in self._reranker.feature_names:
            nodes = torch.arange(graphs.num_nodes) if graphs.nodes is None else graphs.nodes
            covered = match.matched_words([query], nodes, graphs.ptr).without_each(graphs.edge_index)
        without = self._without_each(graphs, covered, number_of, check)
        effects = [gcs_part + learned_part - scores for scores in without]
        named = _largest(edges, torch.stack(effects), num_edges) if effects else [()] * graphs.num_nodes
        columns = (rank.tolist(), base.tolist(), gcs_part.tolist(), learned_part.tolist(), named)
        return [DocumentExplanation(*row) for row in zip(*columns, strict=True)]

    def _without_each(
        self, graphs: CandidateGraphs, covered: Tensor | None, number_of: Tensor, check: Callable[[], None]
    ) -> Iterator[Tensor]:
        """Yield, for each undirected edge, the scores ``[n]`` of the passages without that edge."""
        column = 0 if covered is None else self._reranker.feature_names.index(NEIGHBOURHOOD)
        count = int(number_of.max()) + 1 if number_of.numel() else 0
        at_once = max(1, ROWS_AT_ONCE // (graphs.num_nodes + number_of.numel()))
        for start in range(0, count, at_once):
            check()
            left_out = torch.arange(start, min(start + at_once, count))
            copy, kept = (number_of != left_out[:, None]).nonzero(as_tuple=True)
            variants = graphs.select_edges(kept)
            variants = replace(
                variants,
                x=graphs.x.repeat(len(left_out), 1),
                edge_index=variants.edge_index + copy * graphs.num_nodes,
                ptr=torch.arange(len(left_out) + 1) * graphs.num_nodes,
                inputs={name: vectors.repeat(len(left_out), 1) for name, vectors in graphs.inputs.items()},
            )
            if covered is not None:  # the feature changes only for the ends of the edges that are left out
                edge = ((number_of >= start) & (number_of < start + at_once)).nonzero().squeeze(1)
                copy = number_of[edge] - start
                variants.x[copy * graphs.num_nodes + graphs.edge_index[1, edge], column] = covered[edge]
            yield from self._model(*variants.model_inputs(self._model.inputs)).reshape(-1, graphs.num_nodes)


def _undirected_edges(graphs: CandidateGraphs) -> tuple[list[EdgeKey], Tensor]:
    """Return the undirected edges, and the index of the undirected edge of each directed edge, ``[E]``."""
    names = (None,) if graphs.edge_type is None else EDGE_TYPES
    low, high = graphs.edge_index.min(0).values, graphs.edge_index.max(0).values
    edge_type = torch.zeros_like(low) if graphs.edge_type is None else graphs.edge_type
    key, number_of = torch.unique((low * graphs.num_nodes + high) * len(names) + edge_type, return_inverse=True)
    pairs_and_types = [divmod(number, len(names)) for number in key.tolist()]
    return [(divmod(pair, graphs.num_nodes), names[number]) for pair, number in pairs_and_types], number_of


def _largest(edges: Sequence[EdgeKey], effects: Tensor, num_edges: int) -> list[tuple[EdgeEffect, ...]]:
    """Return the edges with the largest effects for each of the ``n`` passages. ``effects`` is ``[P, n]``."""
    order = effects.abs().argsort(dim=0, descending=True, stable=True)[:num_edges]
    chosen = effects.gather(0, order)
    return [
        tuple(
            EdgeEffect(edges[edge][0], effect, edges[edge][1])
            for edge, effect in zip(order[:, node].tolist(), chosen[:, node].tolist(), strict=True)
            if abs(effect) > SMALLEST_EFFECT
        )
        for node in range(effects.shape[1])
    ]
