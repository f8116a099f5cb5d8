"""What made a candidate's score: its base score, the smoothed score, the network, and single edges.

- An edge's effect is measured, not attributed: the score is computed anew without it, all edges in few batches.
- Removing an edge also changes what is read of it, as the words that a passage's neighbours cover.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphrerank.data.text_match import MATCH_FEATURES, TextMatch
from graphrerank.graphs import CandidateGraphs
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.models import Checkpoint, GATv2Reranker
from graphrerank.models.score_features import rank_by_graph
from graphrerank.text import words_of

NEIGHBOURHOOD = MATCH_FEATURES[2]
ROWS_AT_ONCE = 1 << 15  # nodes and edges of all graphs that are scored at once: 8 MiB for each of a layer's tensors
SMALLEST_EFFECT = 1e-6  # of what is not rounding


@dataclass(frozen=True)
class DocumentExplanation:
    """What made one candidate's score.

    Attributes:
        base_rank: Rank by the base score, from 1, ties by place.
        base_score: The base score.
        gcs_part: What Graph Cohesive Smoothing adds to the score.
        learned_part: What the network adds; both parts sum to the score.
        edges: Pairs of places and what the edge between them adds to the score: the score minus the score without it.
            Largest change first, ties by pair.
    """

    base_rank: int
    base_score: float
    gcs_part: float
    learned_part: float
    edges: tuple[tuple[tuple[int, int], float], ...]


class Explainer:
    """Explains the scores of a GATv2 reranker.

    Args:
        checkpoint: The model and its manifest.

    Raises:
        ValueError: If the model is another, or cannot rerank.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        if not isinstance(checkpoint.model, GATv2Reranker):
            raise ValueError(
                f"{checkpoint.path}: needed a gatv2_reranker to explain, found {type(checkpoint.model).__name__}"
            )
        self._reranker = GraphReranker(checkpoint)
        self._model = checkpoint.model

    @torch.inference_mode()
    def explain(
        self,
        given: RerankInput,
        *,
        num_edges: int = 5,
        max_edges: int = 1000,
        check: Callable[[], None] = lambda: None,
    ) -> list[DocumentExplanation]:
        """Explain the score of each passage, in the order of the passages.

        Args:
            given: The candidates.
            num_edges: How many edges to name for each passage.
            max_edges: Largest number of edges, each of which is left out once.
            check: Called between the steps of the work, which may take seconds; may raise, to stop it.

        Raises:
            ValueError: As :meth:`GraphReranker.rerank`, or if there are more edges.
        """
        graphs = self._reranker.candidate_graphs([given], check=check)
        gcs_part, learned_part = self._model.score_parts(*graphs.model_inputs(self._model.inputs))
        base = graphs.x[:, 0]
        rank = rank_by_graph(base, torch.zeros_like(base, dtype=torch.int64), graphs.ptr)
        pairs, pair_of_edge = _undirected_pairs(graphs)
        if len(pairs) > max_edges:
            raise ValueError(f"`explain` leaves out each edge once, of at most {max_edges}, got {len(pairs)} edges")
        without = self._without_each(given, graphs, pair_of_edge, check)
        effects = [gcs_part + learned_part - scores for scores in without]
        named = _largest(pairs, torch.stack(effects), num_edges) if effects else [()] * given.num_passages
        columns = (rank.tolist(), base.tolist(), gcs_part.tolist(), learned_part.tolist(), named)
        return [DocumentExplanation(*row) for row in zip(*columns, strict=True)]

    def _without_each(
        self, given: RerankInput, graphs: CandidateGraphs, pair_of_edge: Tensor, check: Callable[[], None]
    ) -> Iterator[Tensor]:
        """Score the passages without the first pair's edges, without the second's, and so on: ``[n]`` each."""
        names = self._reranker.feature_names
        column = names.index(NEIGHBOURHOOD) if NEIGHBOURHOOD in names else None
        if given.passages is None or NEIGHBOURHOOD in (given.features or {}):
            column = None
        covered = None if column is None else _covered_without_each(given, graphs, check)
        num_pairs = int(pair_of_edge.max()) + 1 if pair_of_edge.numel() else 0
        at_once = max(1, ROWS_AT_ONCE // (graphs.num_nodes + pair_of_edge.numel()))
        for start in range(0, num_pairs, at_once):
            check()
            left_out = torch.arange(start, min(start + at_once, num_pairs))
            variants = _copies_without(graphs, pair_of_edge, left_out)
            if covered is not None:  # it changes for the ends of the edges that are left out, and for no other
                edge = ((pair_of_edge >= start) & (pair_of_edge < start + at_once)).nonzero().squeeze(1)
                copy = pair_of_edge[edge] - start
                variants.x[copy * graphs.num_nodes + graphs.edge_index[1, edge], column] = covered[edge]
            yield from self._model(*variants.model_inputs(self._model.inputs)).reshape(-1, graphs.num_nodes)


def _covered_without_each(given: RerankInput, graphs: CandidateGraphs, check: Callable[[], None]) -> Tensor:
    """Measure what the target of each edge covers together with its other neighbours, ``[E]``."""
    assert given.passages is not None
    words, table = words_of(given.passages, check=check)
    nodes = torch.arange(graphs.num_nodes)
    matched = TextMatch(words, table=table).matched_words([given.query], nodes, graphs.ptr, check=check)
    return matched.without_each(graphs.edge_index)


def _undirected_pairs(graphs: CandidateGraphs) -> tuple[Tensor, Tensor]:
    """List the joined pairs, ``[P, 2]``, and tell each directed edge the number of its pair, ``[E]``."""
    low, high = graphs.edge_index.min(0).values, graphs.edge_index.max(0).values
    key, pair_of_edge = torch.unique(low * graphs.num_nodes + high, return_inverse=True)
    return torch.stack([key // graphs.num_nodes, key % graphs.num_nodes], dim=1), pair_of_edge


def _copies_without(graphs: CandidateGraphs, pair_of_edge: Tensor, left_out: Tensor) -> CandidateGraphs:
    """Pack copies of one graph, each without the edges of one pair."""
    count, num_nodes = len(left_out), graphs.num_nodes
    copy, edge = (pair_of_edge != left_out[:, None]).nonzero(as_tuple=True)
    return replace(
        graphs,
        x=graphs.x.repeat(count, 1),
        edge_index=graphs.edge_index[:, edge] + copy * num_nodes,
        edge_attr=graphs.edge_attr[edge],
        ptr=torch.arange(count + 1) * num_nodes,
        inputs={name: vectors.repeat(count, 1) for name, vectors in graphs.inputs.items()},
    )


def _largest(pairs: Tensor, effects: Tensor, num_edges: int) -> list[tuple[tuple[tuple[int, int], float], ...]]:
    """Name, for each passage, the pairs of the largest effects ``[P, n]``."""
    order = effects.abs().argsort(dim=0, descending=True, stable=True)[:num_edges]
    chosen = effects.gather(0, order)
    return [
        tuple(
            ((int(pairs[pair, 0]), int(pairs[pair, 1])), effect)
            for pair, effect in zip(order[:, node].tolist(), chosen[:, node].tolist(), strict=True)
            if abs(effect) > SMALLEST_EFFECT
        )
        for node in range(effects.shape[1])
    ]
