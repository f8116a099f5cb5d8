"""The summaries of one level of a ReTAG index as a searchable corpus."""

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.operators.bm25 import BM25
from graphrerank_papers.retag.index import ReTAGIndex


class LevelSummaries:
    """Summaries of the communities of a level, in all graphs of an index.

    The nodes of the corpus graph are these communities, by index, followed by their parents. Parents are not retrieved:
    a graph reranker reads them with their children. Term frequencies are counted over all nodes.

    Args:
        level: 0 for the coarsest; a graph with fewer levels contributes its finest.

    Attributes:
        communities: ``[N]`` int64, each node's index among the communities.
        num_listed: Number of nodes, the first ones, that may be retrieved.
        graph: The nodes with their summaries, vectors and edges: shared entities, parent and child.
        parent: ``[N]`` int64, the node of each node's parent; -1 for none.
        in_graph: ``[1 + T, N]`` bool, nodes that may be retrieved in the general graph and in each topic's; never those
            with an empty summary.
        num_tokens: ``[N]`` int64, of the summaries.

    Raises:
        ValueError: If ``level`` is negative.
    """

    def __init__(self, index: ReTAGIndex, level: int, *, device: str | torch.device = "cpu") -> None:
        communities = index.communities
        rows = [communities.at_level(graph, level) for graph in range(len(index.graphs))]
        listed = torch.cat([*rows, communities.graph[:0]])
        parents = communities.parent[listed]
        parents = torch.unique(parents[parents >= 0])
        self.level = level
        self.topics = replace(
            index.topics, vectors=index.topics.vectors.to(device), centre=index.topics.centre.to(device)
        )
        self.communities = torch.cat([listed, parents])
        self.num_listed = len(listed)
        self.graph = index.community_graph(self.communities).to(device)
        self.num_tokens = communities.num_tokens[self.communities]
        node_of = torch.full((len(communities) + 1,), -1, dtype=torch.int64)  # a parent of -1 reads the last element
        node_of[self.communities] = torch.arange(len(self.communities))
        self.parent = node_of[communities.parent[self.communities]].to(device)
        in_graph = torch.zeros(len(rows), len(self.communities), dtype=torch.bool)
        for graph, row in enumerate(rows):
            in_graph[graph, node_of[row]] = True
        has_text = torch.tensor([bool(text) for text in self.graph.texts], dtype=torch.bool)
        self.in_graph = (in_graph & has_text).to(device)
        text_index = {text: index for index, text in enumerate(dict.fromkeys(self.graph.texts))}
        self._text = torch.tensor([text_index[text] for text in self.graph.texts], dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return len(self.communities)

    @property
    def device(self) -> torch.device:
        """Device of vectors and edges."""
        return self.graph.device

    @cached_property
    def bm25(self) -> BM25:
        """Lexical search over the summaries."""
        return BM25(self.graph.texts, language=self.graph.passages.language)

    def candidates(self, graphs: Tensor) -> Tensor:
        """Return which summaries graphs ``[B, 1 + T]`` bool may retrieve, ``[B, N]`` bool; of equal texts the first."""
        is_candidate = (graphs.float() @ self.in_graph.float()) > 0
        nodes = torch.arange(len(self), device=is_candidate.device).expand(is_candidate.shape)
        text = self._text.expand(is_candidate.shape)
        first_node = torch.full_like(nodes, len(self)).scatter_reduce(
            1, text, nodes.masked_fill(~is_candidate, len(self)), "amin"
        )
        return is_candidate & (first_node.gather(1, text) == nodes)
