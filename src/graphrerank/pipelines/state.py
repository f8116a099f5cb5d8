"""State of a pipeline between two steps."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphrerank.core import Queries, Ranking
from graphrerank.core.ranking import is_listed


@dataclass(frozen=True)
class RetrievalState:
    """Retrieved nodes of a batch of ``B`` queries, with their scores and vectors.

    Attributes:
        queries: ``B`` queries to retrieve for.
        nodes: ``[B, n]`` int64 retrieved nodes, best first, followed by nodes that were added but not yet scored.
            Padding is -1.
        scores: ``[B, n]`` float32, ``-inf`` for padding and for nodes that are not yet scored.
        pool: ``[B, M]`` int64, full ranking of the vector search, with padding -1. Steps take nodes from it when the
            graph has no further neighbours.
        vectors: ``[B, n, h]`` float32 vectors of the pairs of a query and a node by the cross-encoder, 0 for pairs that
            are not yet encoded. ``h`` is 0 until the first pair is encoded.
        is_encoded: ``[B, n]`` bool, True for encoded pairs.
        num_encodings: ``[B]`` int64, number of pairs encoded so far.
        from_graph: ``[B]`` bool, True if the most recently added nodes are neighbours of retrieved nodes.
        features: ``[B, n, F]`` float32 features of each node from the vector search, 0 for padding. None after other
            nodes were added.
        feature_names: Names of the ``F`` features. The first feature is the score of the vector search.
        routes: ``[B]`` int64, path that a router chose for each query. None without a router.
    """

    queries: Queries
    nodes: Tensor
    scores: Tensor
    pool: Tensor
    vectors: Tensor
    is_encoded: Tensor
    num_encodings: Tensor
    from_graph: Tensor
    features: Tensor | None = None
    feature_names: tuple[str, ...] = ()
    routes: Tensor | None = None

    @classmethod
    def start(cls, queries: Queries, device: torch.device) -> "RetrievalState":
        """Return a state without retrieved nodes.

        Args:
            queries: ``B`` queries to retrieve for.
            device: Device of all tensors.
        """
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
        """Retrieved nodes with their scores."""
        return Ranking(self.nodes, self.scores)

    def with_ranking(self, nodes: Tensor, scores: Tensor) -> "RetrievalState":
        """Return a state with other retrieved nodes, without vectors and features.

        Args:
            nodes: ``[B, n]`` int64 nodes, best first, with padding -1.
            scores: ``[B, n]`` float32 scores, with padding ``-inf``.
        """
        vectors = self.vectors.new_zeros(*nodes.shape, self.vectors.shape[2])
        is_encoded = torch.zeros_like(nodes, dtype=torch.bool)
        return replace(
            self, nodes=nodes, scores=scores, vectors=vectors, is_encoded=is_encoded, features=None, feature_names=()
        )

    def with_pool(self, pool: Tensor) -> "RetrievalState":
        """Return a state with another pool.

        Args:
            pool: ``[B, M]`` int64 ranking that includes the retrieved nodes, with padding -1.
        """
        return replace(self, pool=pool, from_graph=torch.zeros_like(self.from_graph))

    def add(self, nodes: Tensor, *, from_graph: Tensor) -> "RetrievalState":
        """Return a state with additional nodes, which are not yet scored.

        Args:
            nodes: ``[B, m]`` int64 nodes that are not yet retrieved. Padding (-1) may be at any position.
            from_graph: ``[B]`` bool, True if the nodes of a query are neighbours of retrieved nodes.
        """
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
        """Return a state with the nodes sorted by new scores. Ties are broken by node index.

        Args:
            scores: ``[B, n]`` scores of the nodes. Scores of padding are ignored.
        """
        scores = scores.masked_fill(self.nodes < 0, -torch.inf)
        by_node = torch.argsort(self.nodes, dim=1)
        order = by_node.gather(1, torch.argsort(scores.gather(1, by_node), dim=1, descending=True, stable=True))
        return replace(self, scores=scores)._take(order)

    def scored(self, scores: Tensor) -> "RetrievalState":
        """Return a state with the nodes sorted by new scores.

        Args:
            scores: ``[m]`` scores of all retrieved nodes without padding, one query after the other.
        """
        return self.ranked_by(self.scores.masked_scatter(self.nodes >= 0, scores.to(self.scores)))

    def top(self, top_k: int) -> "RetrievalState":
        """Return a state with the first nodes of each query.

        Args:
            top_k: Maximum number of nodes per query.
        """
        width = min(top_k, self.nodes.shape[1])
        return self._take(torch.arange(width, device=self.nodes.device).expand(len(self.nodes), -1))

    def next_in_pool(self, limit: Tensor) -> Tensor:
        """Return the best nodes of the pool that are not yet retrieved, ``[B, M]`` with padding -1.

        Args:
            limit: ``[B]`` maximum number of nodes per query.
        """
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
