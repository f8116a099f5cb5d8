"""Where a pipeline stands between two operators."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphrerank.graphs import PairEncoder, Queries, Ranking


@dataclass(frozen=True)
class RetrievalState:
    """The retrieved nodes of a batch of queries, and what is known of each.

    Attributes:
        queries: ``B`` queries.
        nodes: ``[B, n]`` int64 retrieved nodes, best first; those just added come last; padded with -1.
        scores: ``[B, n]`` float32; -inf where padded, and where a node was not scored yet.
        pool: ``[B, M]`` int64, all that vector search ranked, padded with -1: where the next nodes come from when the
            graph gives none.
        vectors: ``[B, n, h]`` float32, what the pair encoder read of query and node; 0 where it did not.
            ``h`` is 0 until it read something.
        is_read: ``[B, n]`` bool, whether it did.
        num_encodings: ``[B]`` int64, pairs read so far.
        from_graph: ``[B]`` bool, whether the nodes added last came along edges.
        features: ``[B, n, F]`` float32, what vector search knows of each node (padded with 0); None once nodes came
            otherwise.
        feature_names: ``F`` names of its columns; the first is the score that vector search ranked by.
        routes: ``[B]`` int64, the path that a router chose for each query; None where there is none.
    """

    queries: Queries
    nodes: Tensor
    scores: Tensor
    pool: Tensor
    vectors: Tensor
    is_read: Tensor
    num_encodings: Tensor
    from_graph: Tensor
    features: Tensor | None = None
    feature_names: tuple[str, ...] = ()
    routes: Tensor | None = None

    @classmethod
    def start(cls, queries: Queries, device: torch.device) -> "RetrievalState":
        """Begin with nothing retrieved."""
        batch, nodes = len(queries), torch.zeros(len(queries), 0, dtype=torch.int64, device=device)
        return cls(
            queries=queries,
            nodes=nodes,
            scores=nodes.float(),
            pool=nodes,
            vectors=torch.zeros(batch, 0, 0, device=device),
            is_read=nodes.bool(),
            num_encodings=torch.zeros(batch, dtype=torch.int64, device=device),
            from_graph=torch.zeros(batch, dtype=torch.bool, device=device),
        )

    @property
    def num_retrieved(self) -> Tensor:
        """``[B]`` int64."""
        return (self.nodes >= 0).sum(1)

    @property
    def ranking(self) -> Ranking:
        """The nodes and their scores."""
        return Ranking(self.nodes, self.scores)

    def with_ranking(self, nodes: Tensor, scores: Tensor) -> "RetrievalState":
        """Replace the retrieved nodes ``[B, n]`` by others, of which no pair vector and no feature is known."""
        vectors = self.vectors.new_zeros(*nodes.shape, self.vectors.shape[2])
        is_read = torch.zeros_like(nodes, dtype=torch.bool)
        return replace(
            self, nodes=nodes, scores=scores, vectors=vectors, is_read=is_read, features=None, feature_names=()
        )

    def with_features(self, features: Tensor, names: tuple[str, ...]) -> "RetrievalState":
        """Tell what vector search knows of the retrieved nodes, ``[B, n, F]``."""
        return replace(self, features=features, feature_names=names)

    def with_pool(self, pool: Tensor) -> "RetrievalState":
        """Set the nodes at hand ``[B, M]``, of which the retrieved ones come."""
        return replace(self, pool=pool, from_graph=torch.zeros_like(self.from_graph))

    def add(self, nodes: Tensor, *, from_graph: Tensor) -> "RetrievalState":
        """Put new nodes behind the retrieved ones.

        Args:
            nodes: ``[B, m]`` int64, none of them retrieved, padded anywhere with -1.
            from_graph: ``[B]`` bool, whether a query's came along edges.
        """
        every = torch.cat([self.nodes, nodes], dim=1)
        behind = (0, nodes.shape[1])
        state = replace(
            self,
            nodes=every,
            scores=torch.nn.functional.pad(self.scores, behind, value=-torch.inf),
            vectors=torch.nn.functional.pad(self.vectors, (0, 0, *behind)),
            is_read=torch.nn.functional.pad(self.is_read, behind),
            from_graph=from_graph,
            features=None,
            feature_names=(),
        )
        width = int(state.num_retrieved.max()) if len(every) else 0
        return state._take(torch.argsort((every < 0).long(), dim=1, stable=True)[:, :width])

    def ranked_by(self, scores: Tensor) -> "RetrievalState":
        """Give the retrieved nodes new scores ``[B, n]`` and order them, ties by node number."""
        scores = scores.masked_fill(self.nodes < 0, -torch.inf)
        by_node = torch.argsort(self.nodes, dim=1)
        order = by_node.gather(1, torch.argsort(scores.gather(1, by_node), dim=1, descending=True, stable=True))
        return replace(self, scores=scores)._take(order)

    def top(self, top_k: int) -> "RetrievalState":
        """Keep the first ``top_k`` nodes of each query."""
        width = min(top_k, self.nodes.shape[1])
        return self._take(torch.arange(width, device=self.nodes.device).expand(len(self.nodes), -1))

    def read(self, encoder: PairEncoder, texts: Sequence[str]) -> "RetrievalState":
        """Let the encoder read the retrieved nodes that it did not read yet, in one call for all queries.

        Args:
            encoder: The cross-encoder.
            texts: ``N``, of the corpus.
        """
        new = (self.nodes >= 0) & ~self.is_read
        vectors = self.vectors if self.vectors.shape[2] else self.vectors.new_zeros(*new.shape, encoder.hidden_size)
        row, column = torch.nonzero(new, as_tuple=True)
        if len(row):
            query_texts = [self.queries.texts[number] for number in row.tolist()]
            found = encoder.encode(query_texts, [texts[node] for node in self.nodes[row, column].tolist()])
            vectors = vectors.index_put((row, column), found.to(vectors))
        return replace(self, vectors=vectors, is_read=self.is_read | new, num_encodings=self.num_encodings + new.sum(1))

    def next_of_pool(self, limit: Tensor) -> Tensor:
        """Find the best nodes of the pool that are not retrieved, at most ``limit [B]``: ``[B, M]``, padded with -1."""
        ascending = torch.sort(self.nodes, dim=1).values
        fresh = self.pool >= 0
        if ascending.shape[1]:
            place = torch.searchsorted(ascending, self.pool.contiguous()).clamp(max=ascending.shape[1] - 1)
            fresh = fresh & (ascending.gather(1, place) != self.pool)
        return self.pool.masked_fill(~fresh | (fresh.cumsum(1) > limit.unsqueeze(1)), -1)

    def _take(self, order: Tensor) -> "RetrievalState":
        return replace(
            self,
            nodes=self.nodes.gather(1, order),
            scores=self.scores.gather(1, order),
            vectors=self.vectors.take_along_dim(order.unsqueeze(-1), dim=1),
            is_read=self.is_read.gather(1, order),
            features=None if self.features is None else self.features.take_along_dim(order.unsqueeze(-1), dim=1),
        )
