"""LightRAG and PathRAG as graph searches: over the edges of a corpus graph, in the place of a knowledge graph.

Source: FastInsight, 2026, sections 2.1 and 4.1.1, whose baselines they are. *Where we differ:* the query itself is
searched in place of keywords that a language model writes.
"""

from dataclasses import KW_ONLY, dataclass
from itertools import chain, zip_longest
from typing import Any

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.utils.checks import check_counts, check_positive_share
from graphrerank_papers.indexing import with_listed
from graphrerank_papers.knowledge_graph_search import reliable_paths


class Neighbours:
    """The neighbours of each node of a corpus graph on the CPU, ascending, each read when it is asked for."""

    def __init__(self, graph: CorpusGraph) -> None:
        self._graph, self._read = graph, dict[int, list[int]]()

    def __getitem__(self, node: int) -> list[int]:
        if node not in self._read:
            _, near = self._graph.neighbours(torch.tensor([node]))
            self._read[node] = sorted(set(near.tolist()))
        return self._read[node]


class NeighbourSearch(Step):
    """List the retrieved nodes and their neighbours by turns: LightRAG's search of one hop.

    As LightRAG ranks the relations of its entities, neighbours along edges whose ends have the most edges together come
    first; ties by the order of the retrieved nodes, then by node index.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources, self._graph = resources, resources.graph.to("cpu")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add the neighbours of each query's nodes, up to the budget."""
        graph, listed = self._graph, list[list[int]]()
        with self._resources.clock("graph"):
            for row in state.nodes.cpu():
                seeds = row[row >= 0]
                origin, node = graph.neighbours(seeds)
                rank = graph.count_neighbours(seeds)[origin] + graph.count_neighbours(node)
                order = torch.argsort(node, stable=True)
                order = order[torch.argsort(origin[order], stable=True)]
                order = order[torch.argsort(rank[order], descending=True, stable=True)]
                retrieved = seeds.tolist()
                near = [other for other in dict.fromkeys(node[order].tolist()) if other not in retrieved]
                turns = chain.from_iterable(zip_longest(retrieved, near))
                listed.append([other for other in turns if other is not None])
            return with_listed(state, listed, budget=self._resources.budget)


@dataclass(eq=False, repr=False)
class PathSearch(Step):
    """List the nodes of the most reliable paths between retrieved nodes, then the retrieved nodes: PathRAG's search.

    Paths and settings are those of :class:`~graphrerank_papers.knowledge_graph_search.PathRAGSearch`.
    """

    resources: Resources
    _: KW_ONLY
    num_paths: int = 15
    decay: float = 0.8
    threshold: float = 0.05
    max_hops: int = 3

    def __post_init__(self) -> None:
        check_counts(num_paths=self.num_paths, max_hops=self.max_hops)
        check_positive_share(decay=self.decay, threshold=self.threshold)
        self._neighbours = Neighbours(self.resources.graph.to("cpu"))

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the retrieved nodes of each query."""
        flow: dict[str, Any] = {"decay": self.decay, "threshold": self.threshold, "max_hops": self.max_hops}
        with self.resources.clock("graph"):
            listed = []
            for row in state.nodes.tolist():
                seeds = [node for node in row if node >= 0]
                paths = reliable_paths(self._neighbours, seeds, num_paths=self.num_paths, **flow)
                listed.append(list(dict.fromkeys([*(node for path in paths for node in path), *seeds])))
            return with_listed(state, listed, budget=self.resources.budget)
