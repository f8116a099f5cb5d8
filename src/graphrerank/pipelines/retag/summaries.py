"""The summaries of one level of a ReTAG index as a corpus to search."""

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.indexes import ReTAGIndex
from graphrerank.operators import BM25


class LevelSummaries:
    """Summaries of the communities of a level, in all graphs of an index.

    Nodes of its graph are first these communities, by their numbers in the index, and behind them their parents, which
    are not retrieved: a graph reranker sees a community's parent beside it. Words are weighed by how rare they are
    among all of them.

    Args:
        index: The index.
        level: 0 for the coarsest; a graph that has fewer levels gives its finest.
        device: Where vectors and edges are.

    Attributes:
        communities: ``[N]`` int64, each node's number in the index.
        num_listed: How many of the nodes, the first ones, may be retrieved.
        graph: The nodes with their summaries, vectors and edges: shared entities, parent and child.
        parent: ``[N]`` int64, the node of each node's parent, -1 where there is none.
        in_graph: ``[1 + T, N]`` bool, which nodes may be retrieved in the general graph, and in each topic's; never one
            whose summary is empty.
        num_tokens: ``[N]`` int64, of the summaries.

    Raises:
        ValueError: If ``level`` is negative.
    """

    def __init__(self, index: ReTAGIndex, level: int, *, device: str | torch.device = "cpu") -> None:
        own = index.communities
        rows = [own.at_level(graph, level) for graph in range(len(index.graphs))]
        listed = torch.cat([*rows, own.graph[:0]])
        above = own.parent[listed]
        parents = torch.unique(above[above >= 0])
        self.level = level
        self.topics = replace(
            index.topics, vectors=index.topics.vectors.to(device), centre=index.topics.centre.to(device)
        )
        self.communities = torch.cat([listed, parents])
        self.num_listed = len(listed)
        self.graph = index.community_graph(self.communities).to(device)
        self.num_tokens = own.num_tokens[self.communities]
        place = torch.full((len(own) + 1,), -1, dtype=torch.int64)
        place[self.communities] = torch.arange(len(self.communities))
        self.parent = place[own.parent[self.communities]].to(device)  # -1 is the last place, which holds -1
        in_graph = torch.zeros(len(rows), len(self.communities), dtype=torch.bool)
        for graph, row in enumerate(rows):
            in_graph[graph, place[row]] = True
        is_told = torch.tensor([bool(text) for text in self.graph.texts], dtype=torch.bool)
        self.in_graph = (in_graph & is_told).to(device)
        number = {text: i for i, text in enumerate(dict.fromkeys(self.graph.texts))}
        self._text = torch.tensor([number[text] for text in self.graph.texts], dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return len(self.communities)

    @property
    def device(self) -> torch.device:
        """Where vectors and edges are."""
        return self.graph.device

    @cached_property
    def bm25(self) -> BM25:
        """Lexical search in the summaries."""
        return BM25(self.graph.texts)

    def candidates(self, graphs: Tensor) -> Tensor:
        """Tell which summaries may be retrieved from some graphs; of equal ones the first alone.

        Args:
            graphs: ``[B, 1 + T]`` bool.

        Returns:
            ``[B, N]`` bool.
        """
        held = (graphs.float() @ self.in_graph.float()) > 0
        places = torch.arange(len(self), device=held.device).expand(held.shape)
        first = torch.full_like(places, len(self)).scatter_reduce(
            1, self._text.expand(held.shape), places.masked_fill(~held, len(self)), "amin"
        )
        return held & (first.gather(1, self._text.expand(held.shape)) == places)
