"""Abstract base of retrievers, a protocol of heads for a cross-encoder, and the names of a retriever's features."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from torch import Tensor

from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking

BASE_SCORE = "base_score"  # the first feature of every retriever: the score it ranks by
TEXT_FEATURES = ("bm25_score", "dense_score")  # against the query's text and vector
EXPANSION_FEATURES = ("hops", "best_seed_score", "best_seed_reciprocal_rank", "seeds_reached")
CROSS_ENCODER_FEATURES = ("cross_encoder_score", "cross_encoder_reciprocal_rank", "cross_encoder_unread")
# 0 for all candidates where they are not given
OPTIONAL_FEATURES = (*TEXT_FEATURES, *EXPANSION_FEATURES, *CROSS_ENCODER_FEATURES)
DTYPES = ("float32", "bfloat16", "float16")  # in which a frozen transformer may compute


class Retriever(ABC):
    """Base of everything that ranks the corpus for queries.

    Override :meth:`retrieve` and set ``feature_names``. The constructor takes the corpus graph first, and settings by
    name. Override the other members where their defaults are wrong.

    Attributes:
        feature_names: Names of the ranking's ``F`` features; the first is ``base_score``. A class attribute, or set by
            the constructor.
        expands_along_edges: Whether candidates come from the corpus graph's edges. False by default.

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
            queries: ``B`` queries, with vectors if :meth:`needs_vectors` says so.

        Returns:
            ``[B, K]`` nodes with ``features [B, K, F]``.
        """

    @staticmethod
    def needs_vectors(**settings: Any) -> bool:
        """Return whether a retriever of these settings needs an encoded corpus and encoded queries. Defaults to True.

        Args:
            settings: Arguments of the constructor by name, without the corpus graph.
        """
        return True

    @property
    def fingerprint(self) -> str:
        """A string that changes when the rankings would though the settings stay, such as a file's hash. Empty here."""
        return ""

    @property
    def is_lookup(self) -> bool:
        """Whether rankings were made before and are only looked up, so that their time is not that of a search."""
        return False


RetrieverFactory = Callable[..., Retriever]  # of a CorpusGraph and settings; a functools.partial of a class


class GraphHead(Protocol):
    """A head that replaces a pair encoder's, and also reads the edges among a query's nodes."""

    @property
    def encoder_fingerprint(self) -> str:
        """Fingerprint of the pair encoder whose vectors it reads."""

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score ``N`` nodes: logits ``[N]``; ``degree [N]`` counts neighbours in the whole corpus graph."""
