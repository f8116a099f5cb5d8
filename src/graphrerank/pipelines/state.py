"""The state of a pipeline between two operators."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphrerank.core import Queries, Ranking
from graphrerank.core.ranking import is_listed


@dataclass(frozen=True)
class RetrievalState:
    """The retrieved nodes of a batch of queries, with their scores and vectors."""

    queries: Queries  # `B` queries
    nodes: Tensor  # `[B, n]` int64 retrieved nodes, best first, followed by those just added; padded with -1
    scores: Tensor  # `[B, n]` float32; -inf for padding and for nodes not yet scored
    # `[B, M]` int64, the full ranking of the vector search, padded with -1: the source of further nodes when the
    # graph is exhausted
    pool: Tensor
    # `[B, n, h]` float32, the pair encoder's vectors of query and node; 0 if not yet encoded, and `h` is 0 until some
    # pair is
    vectors: Tensor
    is_encoded: Tensor  # `[B, n]` bool, whether the pair was encoded
    num_encodings: Tensor  # `[B]` int64, number of pairs encoded so far
    from_graph: Tensor  # `[B]` bool, whether the nodes added last came along edges
    # `[B, n, F]` float32, the vector search's features of each node, padded with 0; None once other nodes were added
    features: Tensor | None = None
    # `F` names of its columns; the first is the score by which the vector search ranked
    feature_names: tuple[str, ...] = ()
    routes: Tensor | None = None  # `[B]` int64, the path that a router chose for each query; None without a router

    @classmethod
    def start(cls, queries: Queries, device: torch.device) -> "RetrievalState":
        """Return a state without retrieved nodes."""
        batch, nodes = len(queries), torch.zeros(len(queries), 0, dtype=torch.int64, device=device)
        return cls(
            queries=queries,
            nodes=nodes,
            scores=nodes.float(),
            pool=nodes,
            vectors=torch.zeros(batch, 0, 0, device=device),
            is_encoded=nodes.bool(),
            num_encodings=torch.zeros(batch, dtype=torch.int64, device=device),
            from_graph=torch.zeros(batch, dtype=torch.bool, device=device),
        )

    @property
    def num_retrieved(self) -> Tensor:
        """``[B]`` int64, number of retrieved nodes."""
        return (self.nodes >= 0).sum(1)

    @property
    def ranking(self) -> Ranking:
        """The nodes with their scores."""
        return Ranking(self.nodes, self.scores)

    def with_ranking(self, nodes: Tensor, scores: Tensor) -> "RetrievalState":
        """Replace the retrieved nodes by ``[B, n]`` others, without vectors and features."""
        vectors = self.vectors.new_zeros(*nodes.shape, self.vectors.shape[2])
        is_encoded = torch.zeros_like(nodes, dtype=torch.bool)
        return replace(
            self, nodes=nodes, scores=scores, vectors=vectors, is_encoded=is_encoded, features=None, feature_names=()
        )

    def with_pool(self, pool: Tensor) -> "RetrievalState":
        """Set the pool ``[B, M]``, which contains the retrieved nodes."""
        return replace(self, pool=pool, from_graph=torch.zeros_like(self.from_graph))

    def add(self, nodes: Tensor, *, from_graph: Tensor) -> "RetrievalState":
        """Append nodes ``[B, m]`` that are not retrieved, padded with -1 anywhere; ``from_graph`` is ``[B]`` bool."""
        all_nodes = torch.cat([self.nodes, nodes], dim=1)
        extra = (0, nodes.shape[1])
        state = replace(
            self,
            nodes=all_nodes,
            scores=pad(self.scores, extra, value=-torch.inf),
            vectors=pad(self.vectors, (0, 0, *extra)),
            is_encoded=pad(self.is_encoded, extra),
            from_graph=from_graph,
            features=None,
            feature_names=(),
        )
        width = int(state.num_retrieved.max()) if len(all_nodes) else 0
        return state._take(torch.argsort((all_nodes < 0).long(), dim=1, stable=True)[:, :width])

    def ranked_by(self, scores: Tensor) -> "RetrievalState":
        """Order the retrieved nodes by new scores ``[B, n]``; ties are broken by node index."""
        scores = scores.masked_fill(self.nodes < 0, -torch.inf)
        by_node = torch.argsort(self.nodes, dim=1)
        order = by_node.gather(1, torch.argsort(scores.gather(1, by_node), dim=1, descending=True, stable=True))
        return replace(self, scores=scores)._take(order)

    def scored(self, scores: Tensor) -> "RetrievalState":
        """Order the retrieved nodes by new scores ``[M]`` of all of them, one query after the other."""
        return self.ranked_by(self.scores.masked_scatter(self.nodes >= 0, scores.to(self.scores)))

    def top(self, top_k: int) -> "RetrievalState":
        """Keep the first ``top_k`` nodes of each query."""
        width = min(top_k, self.nodes.shape[1])
        return self._take(torch.arange(width, device=self.nodes.device).expand(len(self.nodes), -1))

    def next_in_pool(self, limit: Tensor) -> Tensor:
        """Return the best ``limit [B]`` nodes of the pool that are not retrieved: ``[B, M]``, padded with -1."""
        is_new = (self.pool >= 0) & ~is_listed(self.pool, self.nodes)
        return self.pool.masked_fill(~is_new | (is_new.cumsum(1) > limit.unsqueeze(1)), -1)

    def _take(self, order: Tensor) -> "RetrievalState":
        return replace(
            self,
            nodes=self.nodes.gather(1, order),
            scores=self.scores.gather(1, order),
            vectors=self.vectors.take_along_dim(order.unsqueeze(-1), dim=1),
            is_encoded=self.is_encoded.gather(1, order),
            features=None if self.features is None else self.features.take_along_dim(order.unsqueeze(-1), dim=1),
        )
