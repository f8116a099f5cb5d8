"""Abstract base class of retrievers, names of their features, and the protocol of graph-aware cross-encoder heads."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from torch import Tensor

from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking

#: First feature of every retriever: the score by which it ranks.
BASE_SCORE = "base_score"
#: Features that compare a candidate with the text and the vector of the query.
TEXT_FEATURES = ("bm25_score", "dense_score")
#: Features of the path from a seed to a candidate. They are 0 for candidates that were not found by expansion.
EXPANSION_FEATURES = ("hops", "best_seed_score", "best_seed_reciprocal_rank", "seeds_reached")
#: Features from the scores of a cross-encoder.
CROSS_ENCODER_FEATURES = ("cross_encoder_score", "cross_encoder_reciprocal_rank", "cross_encoder_unread")
#: Features that are 0 for all candidates if they are not available.
OPTIONAL_FEATURES = (*TEXT_FEATURES, *EXPANSION_FEATURES, *CROSS_ENCODER_FEATURES)
#: Data types in which a frozen transformer can compute.
DTYPES = ("float32", "bfloat16", "float16")


class Retriever(ABC):
    """Base of retrievers, which rank the corpus for queries.

    A subclass implements :meth:`retrieve` and sets ``feature_names``. The constructor takes the corpus graph as its
    first argument, and settings by name. Override the other members if their defaults do not fit.

    Attributes:
        feature_names: Names of the ``F`` features of a ranking. The first is ``base_score``. A class attribute, or set
            by the constructor.
        expands_along_edges: Whether candidates come from the edges of the corpus graph. False by default.

    Example:
        >>> import torch
        >>> class InOrder(Retriever):
        ...     feature_names = ("base_score",)
        ...
        ...     def retrieve(self, queries):
        ...         nodes = torch.arange(2).expand(len(queries), 2)
        ...         scores = -nodes.float()
        ...         return Ranking(nodes, scores, scores.unsqueeze(-1))
        >>> retriever = InOrder()
        >>> retriever.retrieve(Queries(["q"], ["text"])).nodes.tolist(), retriever.is_lookup, InOrder.needs_vectors()
        ([[0, 1]], False, True)
    """

    feature_names: tuple[str, ...]
    expands_along_edges: ClassVar[bool] = False

    @abstractmethod
    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus.

        Args:
            queries: ``B`` queries, with vectors if :meth:`needs_vectors` returns True.

        Returns:
            Ranking ``[B, K]`` with ``features [B, K, F]``.
        """

    @staticmethod
    def needs_vectors(**settings: Any) -> bool:
        """Return whether a retriever with the given settings needs an encoded corpus and encoded queries.

        By default, all retrievers do.

        Args:
            settings: Arguments of the constructor by name, without the corpus graph.
        """
        return True

    @property
    def fingerprint(self) -> str:
        """String that changes when the rankings change although the settings do not, such as the hash of a file.

        Empty by default.
        """
        return ""

    @property
    def is_lookup(self) -> bool:
        """Whether the retriever only looks up precomputed rankings. Its latency is then not that of a search.

        False by default.
        """
        return False


#: Function from a corpus graph and settings to a retriever, such as a ``functools.partial`` of a class.
RetrieverFactory = Callable[..., Retriever]


class GraphHead(Protocol):
    """Protocol of heads that replace the head of a pair encoder and also use the edges among the nodes of a query."""

    @property
    def encoder_fingerprint(self) -> str:
        """Fingerprint of the pair encoder whose vectors the head scores."""

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score nodes.

        Args:
            pair_vectors: Pair vectors ``[N, h]``.
            edge_index: Unique edges among the nodes, ``[2, E]``.
            degree: Number of neighbours of each node in the whole corpus graph, ``[N]``.

        Returns:
            Logits ``[N]``.
        """
