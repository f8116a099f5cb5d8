"""LightRAG and PathRAG as graph searches over the edges of a corpus graph instead of a knowledge graph.

Source: FastInsight, 2026, sections 2.1 and 4.1.1, which uses both as baselines.

*Differences from the papers:* the search starts from the query itself instead of keywords that a language model writes.
"""

from dataclasses import dataclass
from itertools import chain, zip_longest

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank_papers.indexing import with_listed
from graphrerank_papers.knowledge_graph_search import PathSettings


class Neighbours:
    """Lookup of the neighbours of nodes, in ascending order. Each list is computed at the first lookup of its node."""

    def __init__(self, graph: CorpusGraph) -> None:
        """Create an empty cache of neighbours.

        Args:
            graph: Corpus graph on the CPU.
        """
        self._graph, self._read = graph, dict[int, list[int]]()

    def __getitem__(self, node: int) -> list[int]:
        """Return the neighbours of a node in ascending order."""
        if node not in self._read:
            _, near = self._graph.neighbours(torch.tensor([node]))
            self._read[node] = sorted(set(near.tolist()))
        return self._read[node]


class NeighbourSearch(Step):
    """Alternate the retrieved nodes with their neighbours, which is LightRAG's one-hop search.

    LightRAG ranks relations by the number of edges of their ends. Likewise, a neighbour ranks by the number of edges at
    both ends of the edge that leads to it. Ties are broken by the rank of the retrieved node, then by node index.
    """

    def __init__(self, resources: Resources) -> None:
        """Create the step.

        Args:
            resources: Resources of the pipeline.
        """
        self._resources, self._graph = resources, resources.graph.to("cpu")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add the neighbours of each query's nodes, up to the budget.

        Args:
            state: State of the pipeline.

        Returns:
            State with the new ranking.
        """
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
class PathSearch(Step, PathSettings):
    """Rank the nodes of the most reliable paths between retrieved nodes first, then the retrieved nodes, as in PathRAG.

    Paths and settings are those of :class:`~graphrerank_papers.knowledge_graph_search.PathRAGSearch`.

    Attributes:
        resources: Resources of the pipeline.
        num_paths: Maximum number of paths per query.
        decay: Share of its resource that a node passes on to its neighbours, in (0, 1].
        threshold: Minimum resource per neighbour, in (0, 1]. A node with less passes nothing on.
        max_hops: Maximum number of edges of a path.
    """

    resources: Resources

    def __post_init__(self) -> None:
        self.check_paths()
        self._neighbours = Neighbours(self.resources.graph.to("cpu"))

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search for paths between the retrieved nodes of each query.

        Args:
            state: State of the pipeline.

        Returns:
            State with the new ranking.
        """
        with self.resources.clock("graph"):
            listed = []
            for row in state.nodes.tolist():
                seeds = [node for node in row if node >= 0]
                paths = self.paths_between(seeds, self._neighbours)
                listed.append(list(dict.fromkeys([*(node for path in paths for node in path), *seeds])))
            return with_listed(state, listed, budget=self.resources.budget)
