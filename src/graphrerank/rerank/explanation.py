"""Explanations of a candidate's score: its base score, the smoothed score, the network, and single edges.

- An edge's effect is measured, not attributed: the score is computed again without it, all edges in few batches.
- Where the model reads types, each type that joins two passages is a separate edge.
- Removing an edge also changes features that depend on it, such as the words that a passage's neighbours cover.
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
from graphrerank.models.score_features import rank_by_graph
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.utils.checks import UserError

NEIGHBOURHOOD = MATCH_FEATURES[2]
ROWS_AT_ONCE = 1 << 15  # nodes and edges of all graphs that are scored at once: 8 MiB for each of a layer's tensors
SMALLEST_EFFECT = 1e-6  # smaller ones are rounding
EdgeKey = tuple[tuple[int, int], str | None]  # indices of two passages, the lower first, and the type


class EdgeEffect(NamedTuple):
    """The effect of an edge: the score minus the score without it."""

    pair: tuple[int, int]  # indices of the passages that it joins, the lower first
    effect: float
    edge_type: str | None  # one of `EDGE_TYPES`; None where the model merges types


@dataclass(frozen=True)
class DocumentExplanation:
    """The parts of a candidate's score."""

    base_rank: int  # by the base score, from 1, ties by place
    base_score: float
    gcs_part: float  # of Graph Cohesive Smoothing
    learned_part: float  # of the network; both sum to the score
    edges: tuple[EdgeEffect, ...]  # the largest change first, ties by pair and type


class Explainer:
    """Explains the scores of a GATv2 reranker; a ValueError for another model."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        if not isinstance(checkpoint.model, GATv2Reranker):
            raise UserError(
                f"{checkpoint.path}: needed a gatv2_reranker to explain, found {type(checkpoint.model).__name__}"
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
        """Explain the score of each passage, in their order, naming ``num_edges`` edges each.

        Each edge is left out once; more than ``max_edges`` are a ValueError. ``check`` is called between the steps of
        the work; it may raise, to stop it.
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
        """Explain as :meth:`explain` the candidates of one query's graph, on the CPU.

        ``match`` has the words of the nodes; None where removing an edge does not change what is covered of them.
        """
        gcs_part, learned_part = self._model.score_parts(*graphs.model_inputs(self._model.inputs))
        base = graphs.x[:, 0]
        rank = rank_by_graph(base, torch.zeros_like(base, dtype=torch.int64), graphs.ptr)
        edges, number_of = _undirected_edges(graphs)
        if len(edges) > max_edges:
            raise UserError(f"`explain` leaves out each edge once, of at most {max_edges}, got {len(edges)} edges")
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
        """Score the passages without the first undirected edge, without the second, and so on: ``[n]`` each."""
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
            if covered is not None:  # it changes for the ends of the edges that are left out, and for no other
                edge = ((number_of >= start) & (number_of < start + at_once)).nonzero().squeeze(1)
                copy = number_of[edge] - start
                variants.x[copy * graphs.num_nodes + graphs.edge_index[1, edge], column] = covered[edge]
            yield from self._model(*variants.model_inputs(self._model.inputs)).reshape(-1, graphs.num_nodes)


def _undirected_edges(graphs: CandidateGraphs) -> tuple[list[EdgeKey], Tensor]:
    """List the undirected edges, pairs and types; and the number of each directed edge's, ``[E]``."""
    names = (None,) if graphs.edge_type is None else EDGE_TYPES
    low, high = graphs.edge_index.min(0).values, graphs.edge_index.max(0).values
    edge_type = torch.zeros_like(low) if graphs.edge_type is None else graphs.edge_type
    key, number_of = torch.unique((low * graphs.num_nodes + high) * len(names) + edge_type, return_inverse=True)
    pairs_and_types = [divmod(number, len(names)) for number in key.tolist()]
    return [(divmod(pair, graphs.num_nodes), names[number]) for pair, number in pairs_and_types], number_of


def _largest(edges: Sequence[EdgeKey], effects: Tensor, num_edges: int) -> list[tuple[EdgeEffect, ...]]:
    """Name, for each passage, the edges of the largest effects ``[P, n]``."""
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
