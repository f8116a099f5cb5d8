"""The one place where classes of users that do not subclass our bases are adapted.

A retriever, encoder, pair encoder, scorer or model that only has the right methods works too. The members that its base
would have given it are looked up here, once, where the object enters the library; a missing one has the base's default.
Steps of pipelines are adapted in the same way by :func:`graphrerank.pipelines.step.as_step`, next to their base.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.encoder import Encoder, PairEncoder
from graphrerank.core.graph_scorer import GraphScorer, GraphScorerFactory
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking
from graphrerank.core.reranker import CheckpointModel
from graphrerank.core.retriever import Retriever, RetrieverFactory
from graphrerank.utils.checks import UserError


class AdaptedRetriever(Retriever):
    """A retriever of a class without our base.

    Attributes:
        wrapped: The user's retriever, with ``feature_names`` and ``retrieve``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @property
    def feature_names(self) -> tuple[str, ...]:  # type: ignore[override]  # some retrievers know them after a search
        """The wrapped retriever's names."""
        return tuple(self.wrapped.feature_names)

    @property
    def fingerprint(self) -> str:
        """The wrapped retriever's fingerprint, or the default."""
        return str(getattr(self.wrapped, "fingerprint", super().fingerprint))

    @property
    def is_lookup(self) -> bool:
        """Whether the wrapped retriever says so, or the default."""
        return bool(getattr(self.wrapped, "is_lookup", super().is_lookup))

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus with the wrapped retriever."""
        ranking: Ranking = self.wrapped.retrieve(queries)
        return ranking


class AdaptedEncoder(Encoder):
    """An encoder of a class without our base.

    Attributes:
        wrapped: The user's encoder, with ``encode``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.name = getattr(wrapped, "name", type(wrapped).__name__)
        self.counts = getattr(wrapped, "counts", {})

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint, which has no default.

        Raises:
            UserError: If the encoder has none.
        """
        try:
            return str(self.wrapped.fingerprint)
        except AttributeError as error:
            needed = "a `fingerprint`, a string that changes whenever the vectors would"
            raise UserError(f"`encoder` must have {needed}, got {self.name}: {error}") from error

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode with the wrapped encoder."""
        vectors: Tensor = self.wrapped.encode(texts)
        return vectors

    @property
    def for_queries(self) -> Encoder:
        """The wrapped encoder's encoder of queries, or itself."""
        encoder = getattr(self.wrapped, "for_queries", self.wrapped)
        return self if encoder is self.wrapped else as_encoder(encoder)

    def count_cache_hits(self, number: int) -> None:
        """Add to the wrapped encoder's ``counts["cache_hits"]`` if it has them."""
        if "cache_hits" in self.counts:
            self.wrapped.counts["cache_hits"] += number


class AdaptedPairEncoder(PairEncoder):
    """A pair encoder of a class without our base.

    Attributes:
        wrapped: The user's pair encoder, with ``hidden_size``, ``fingerprint``, ``encode`` and ``head``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @property
    def hidden_size(self) -> int:
        """The wrapped encoder's width."""
        return int(self.wrapped.hidden_size)

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return str(self.wrapped.fingerprint)

    @property
    def name(self) -> str:
        """The wrapped encoder's name or model, or the name of its class."""
        return str(getattr(self.wrapped, "name", getattr(self.wrapped, "model", type(self.wrapped).__name__)))

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read pairs with the wrapped encoder."""
        vectors: Tensor = self.wrapped.encode(query_texts, passages)
        return vectors

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors with the wrapped encoder."""
        logits: Tensor = self.wrapped.head(vectors)
        return logits


class AdaptedGraphScorer(GraphScorer):
    """A scorer of a class without our base.

    Attributes:
        wrapped: The user's scorer, with ``candidate_graphs`` and ``score``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the model's input with the wrapped scorer."""
        graphs: CandidateGraphs = self.wrapped.candidate_graphs(queries, ranking, feature_names)
        return graphs

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score candidates with the wrapped scorer."""
        scores: Tensor = self.wrapped.score(graphs)
        return scores

    def factory_over(self, factory: GraphScorerFactory) -> GraphScorerFactory:
        """The wrapped scorer's method ``over``, or the default."""
        over: GraphScorerFactory = getattr(self.wrapped, "over", factory)
        return over


@dataclass(frozen=True)
class ModelInterface:
    """Facts about a model's class that are known before a model is built.

    Attributes:
        inputs_of: Function from the constructor's arguments to the model's inputs. None if the class does not say.
        manifest_class: Kind of the model's manifests. If None, those of a reranker.
        trained_by: Argument of ``train.py`` that trains the model. If None, ``fit`` does.
    """

    inputs_of: Callable[..., ModelInputs] | None
    manifest_class: type[Any] | None = None
    trained_by: str | None = None


def as_retriever(retriever: Any) -> Retriever:
    """Return a retriever with the members of its base, itself if its class has the base."""
    return retriever if isinstance(retriever, Retriever) else AdaptedRetriever(retriever)


def as_encoder(encoder: Any) -> Encoder:
    """Return an encoder with the members of its base, itself if its class has the base."""
    return encoder if isinstance(encoder, Encoder) else AdaptedEncoder(encoder)


def as_pair_encoder(encoder: Any) -> PairEncoder:
    """Return a pair encoder with the members of its base, itself if its class has the base."""
    return encoder if isinstance(encoder, PairEncoder) else AdaptedPairEncoder(encoder)


def as_graph_scorer(scorer: Any) -> GraphScorer:
    """Return a scorer with the members of its base, itself if its class has the base."""
    return scorer if isinstance(scorer, GraphScorer) else AdaptedGraphScorer(scorer)


def query_encoder(encoder: Any) -> Encoder:
    """Return the encoder of queries that belongs to an encoder of passages; often the same."""
    return as_encoder(encoder).for_queries


def model_interface(model_class: Any) -> ModelInterface:
    """Return what is known of a model's class, or of a function that builds a model, before it is built."""
    inputs_of, inputs = getattr(model_class, "inputs_of", None), getattr(model_class, "inputs", None)
    is_default = getattr(inputs_of, "__func__", None) is vars(CheckpointModel)["inputs_of"].__func__
    if inputs_of is None or is_default:
        inputs_of = partial(_fixed_inputs, inputs) if isinstance(inputs, ModelInputs) else None
    return ModelInterface(
        inputs_of=inputs_of,
        manifest_class=getattr(model_class, "manifest_class", None),
        trained_by=getattr(model_class, "trained_by", None),
    )


def _fixed_inputs(inputs: ModelInputs, **_: Any) -> ModelInputs:
    return inputs


def model_features(model: nn.Module, score_names: Sequence[str]) -> list[str]:
    """Name a built model's features of a candidate, in order.

    Args:
        model: The model.
        score_names: Names of the scores that the retriever gives.

    Returns:
        What its ``feature_names`` says; the retriever's scores for a class without it.
    """
    names = getattr(model, "feature_names", None)
    return list(score_names) if names is None else list(names(score_names))


def needs_vectors(build_retriever: RetrieverFactory) -> bool:
    """Return whether the retrievers of a factory need an encoded corpus and encoded queries, without building one.

    Args:
        build_retriever: Factory of retrievers, a ``functools.partial`` of a class.

    Returns:
        What the class's ``needs_vectors`` says of the settings. True for other factories and classes without it.
    """
    if not isinstance(build_retriever, partial):
        return True
    answer = getattr(build_retriever.func, "needs_vectors", Retriever.needs_vectors)
    return bool(answer(**build_retriever.keywords))


def expands_along_edges(build_retriever: RetrieverFactory) -> bool:
    """Return whether the retrievers of a factory take candidates from the edges of the corpus graph.

    Args:
        build_retriever: Factory of retrievers, a ``functools.partial`` of a class.

    Returns:
        The class attribute ``expands_along_edges``. False for other factories and classes without it.
    """
    func = build_retriever.func if isinstance(build_retriever, partial) else None
    return bool(getattr(func, "expands_along_edges", Retriever.expands_along_edges))


def is_lookup(retriever: Any) -> bool:
    """Return whether a retriever only looks up rankings made before, so that its time is not that of a search."""
    return as_retriever(retriever).is_lookup
