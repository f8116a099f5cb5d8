"""Protocols of a retriever, a cross-encoder and another head for it, and the names of a retriever's features."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

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


class Retriever(Protocol):
    """Anything that ranks the corpus for queries.

    Four more members are optional. ``fingerprint``, a string: changes whenever the rankings would, though the settings
    stay (the hash of a file that is read). ``needs_vectors(**settings)``, static: whether a retriever of these settings
    needs an encoded corpus and encoded queries; True where it is missing. ``is_lookup``: whether the rankings lie in a
    file, to be read for all queries of a data set at once; False where it is missing. ``expands_along_edges``, of the
    class: whether candidates come from the corpus graph's edges; False where it is missing.
    """

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the ranking's ``F`` features; the first is ``base_score``."""

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` queries: ``[B, K]`` with ``features [B, K, F]``."""


RetrieverFactory = Callable[..., Retriever]  # of a CorpusGraph and settings; a functools.partial of a class


def needs_vectors(build_retriever: RetrieverFactory) -> bool:
    """Return whether the retrievers of a factory need an encoded corpus and encoded queries, without building one."""
    if not isinstance(build_retriever, partial) or not hasattr(build_retriever.func, "needs_vectors"):
        return True
    return bool(build_retriever.func.needs_vectors(**build_retriever.keywords))


def expands_along_edges(build_retriever: RetrieverFactory) -> bool:
    """Return whether the retrievers of a factory take candidates from the edges of the corpus graph.

    Args:
        build_retriever: Factory of retrievers, a ``functools.partial`` of a class.

    Returns:
        The class attribute ``expands_along_edges``; False for factories that are no ``functools.partial``.
    """
    return isinstance(build_retriever, partial) and bool(getattr(build_retriever.func, "expands_along_edges", False))


def is_lookup(retriever: Retriever) -> bool:
    """Return whether a retriever only looks up rankings made before, so that its time is not that of a search."""
    return bool(getattr(retriever, "is_lookup", False))


class PairEncoder(Protocol):
    """A cross-encoder in two parts: a body that reads (query, passage) pairs, and a head that scores what it read."""

    @property
    def hidden_size(self) -> int:
        """Width ``h`` of a vector."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever vectors or scores would."""

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs: ``[M, h]`` float32, one [CLS] vector before the classification head per pair."""

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., h]``: logits ``[...]``."""


class GraphHead(Protocol):
    """A head that replaces a pair encoder's, and also reads the edges among a query's nodes."""

    @property
    def encoder_fingerprint(self) -> str:
        """Fingerprint of the pair encoder whose vectors it reads."""

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score ``N`` nodes: logits ``[N]``; ``degree [N]`` counts neighbours in the whole corpus graph."""
