"""The same candidates with other edges between them: does the graph matter, or only the features?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.systems import System
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.graphs import CandidateGraphs, CorpusGraph, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.rewire import shuffle_each_type, shuffle_edges, shuffled_graph

SHUFFLED, REMOVED, EACH_TYPE = EDGES = ("shuffled", "removed", "each_type")
WITHOUT_TYPE = "without "  # begins the name of what `each_type` does to one type
TOGETHER = MATCH_FEATURES[2]  # the one that depends on edges


class OtherEdges:
    """Lets systems rank the candidates of a data set with other edges between them.

    ``shuffled``: every candidate keeps its number of neighbours among the candidates, of each type where edges keep
    theirs, but has others. ``removed``: no edge. ``each_type``: without the edges of one type, as ``without entity``,
    once for each type that the corpus has, where it has several. All features of edges (GCS, degrees, best neighbours)
    follow, and so do the words that a candidate's neighbours cover (:class:`TextMatch`). Scores of the retriever stay:
    the candidates are given.
    """

    def __init__(self, prepared: PreparedDataset, kinds: Sequence[str] = EDGES, *, seed: int = 0) -> None:
        self._left_out = left_out_types(prepared.dataset.graph) if EACH_TYPE in kinds else {}
        self._kinds = (*(kind for kind in kinds if kind != EACH_TYPE), *self._left_out)
        self._prepared = prepared
        self._seed = seed
        follows = kinds and TOGETHER in prepared.feature_names
        self._match = TextMatch.of(prepared.dataset.graph) if follows else None

    def systems(self, system: System) -> dict[str, System]:
        """Return a system on each kind of other edges.

        Empty for a system that reads no edges, and for one that reads the states of tokens, which are not kept.
        """
        if not system.reads_graph or system.inputs.last_layers:
            return {}
        return {kind: replace(system, score=partial(self._score, system, kind)) for kind in self._kinds}

    def _score(self, system: System, edges: str, graphs: CandidateGraphs) -> Tensor:
        if edges == SHUFFLED:
            changed = _shuffled(graphs, torch.Generator().manual_seed(self._seed))
        elif edges in self._left_out:
            changed = self._without_type(graphs, self._left_out[edges])
        else:
            changed = graphs.select_edges(torch.zeros_like(graphs.edge_attr, dtype=torch.bool))
        if self._match is not None:
            assert graphs.query_index is not None
            assert graphs.nodes is not None
            texts = [self._prepared.dataset.query_texts[query] for query in graphs.query_index.tolist()]
            x, column = graphs.x.clone(), self._prepared.feature_names.index(TOGETHER)
            x[:, column] = self._match.score(texts, graphs.nodes, changed.edge_index, graphs.ptr)[:, -1]
            changed = replace(changed, x=x)
        return system.score(changed)

    def _without_type(self, graphs: CandidateGraphs, number: int) -> CandidateGraphs:
        """Return the same candidates without the edges of a type; for a system that merges types, merged without it."""
        if graphs.edge_type is not None:
            return graphs.select_edges(graphs.edge_type != number)
        assert graphs.query_index is not None
        nodes = self._prepared.ranking.select(graphs.query_index.cpu()).nodes
        edge_index, weight, _, types = candidate_edges(self._prepared.dataset.graph, nodes, keep_types=True)
        kept = types != number
        both, place = torch.unique_consecutive(edge_index[:, kept], dim=1, return_inverse=True)
        largest = weight.new_zeros(both.shape[1]).scatter_reduce_(0, place, weight[kept], "amax")
        return replace(graphs, edge_index=both.to(graphs.x.device), edge_attr=largest.to(graphs.x.device))


def left_out_types(graph: CorpusGraph) -> dict[str, int]:
    """Number the types of a corpus's edges, as ``without TYPE``; empty where all edges are of one type."""
    types = graph.edge_types()
    return {f"{WITHOUT_TYPE}{EDGE_TYPES[number]}": number for number in types} if len(types) > 1 else {}


def other_graphs(graph: CorpusGraph, kinds: Sequence[str], *, seed: int = 0) -> Iterator[tuple[str, CorpusGraph]]:
    """Make a corpus with other edges of each of some kinds (:data:`EDGES`), for what searches all of it."""
    for kind in kinds:
        if kind == SHUFFLED:
            yield kind, shuffled_graph(graph, seed=seed)
        elif kind == REMOVED:
            yield kind, graph.without_edges()
        else:
            for name, number in left_out_types(graph).items():
                yield name, graph.with_types([other for other in graph.edge_types() if other != number])


def _shuffled(graphs: CandidateGraphs, generator: torch.Generator) -> CandidateGraphs:
    edge_index, edge_attr, edge_type = graphs.edge_index, graphs.edge_attr, graphs.edge_type
    if edge_type is None:
        edge_index, edge_attr = shuffle_edges(edge_index, edge_attr, graphs.ptr, generator=generator)
    else:
        edges = shuffle_each_type(edge_index, edge_attr, edge_type, graphs.ptr, generator=generator)
        edge_index, edge_attr, edge_type = edges
    return replace(graphs, edge_index=edge_index, edge_attr=edge_attr, edge_type=edge_type)
