"""Adapters for classes of users that do not inherit from the base classes of this library.

A retriever, encoder, pair encoder, scorer or model only needs the required methods. An adapter adds the remaining
members of the base class with their defaults, at the place where an object enters the library. Pipeline steps are
adapted in the same way by :func:`graphrerank.pipelines.step.as_step`, next to their base class.
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
    """Adapter for a retriever that is not derived from ``Retriever``.

    Args:
        wrapped: Retriever with ``feature_names`` and ``retrieve``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @property
    def feature_names(self) -> tuple[str, ...]:  # type: ignore[override]  # some retrievers set it during a search
        """Names of the features of the wrapped retriever."""
        return tuple(self.wrapped.feature_names)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped retriever, or the default."""
        return str(getattr(self.wrapped, "fingerprint", super().fingerprint))

    @property
    def is_lookup(self) -> bool:
        """Whether the wrapped retriever only looks up precomputed rankings. Defaults to False."""
        return bool(getattr(self.wrapped, "is_lookup", super().is_lookup))

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus with the wrapped retriever.

        Args:
            queries: ``B`` queries, with vectors if :meth:`needs_vectors` returns True.

        Returns:
            Ranking ``[B, K]`` with ``features [B, K, F]``.
        """
        ranking: Ranking = self.wrapped.retrieve(queries)
        return ranking


class AdaptedEncoder(Encoder):
    """Adapter for an encoder that is not derived from ``Encoder``.

    Args:
        wrapped: Encoder with ``encode``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.name = getattr(wrapped, "name", type(wrapped).__name__)
        self.counts = getattr(wrapped, "counts", {})

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped encoder, which has no default.

        Raises:
            UserError: If the encoder has no fingerprint.
        """
        try:
            return str(self.wrapped.fingerprint)
        except AttributeError as error:
            raise UserError(
                f"`encoder` must have a `fingerprint`, a string that changes whenever its vectors change, got "
                f"{self.name}: {error}"
            ) from error

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts with the wrapped encoder.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]``, float32.
        """
        vectors: Tensor = self.wrapped.encode(texts)
        return vectors

    @property
    def for_queries(self) -> Encoder:
        """Query encoder of the wrapped encoder, or this encoder."""
        encoder = getattr(self.wrapped, "for_queries", self.wrapped)
        return self if encoder is self.wrapped else as_encoder(encoder)

    def count_cache_hits(self, number: int) -> None:
        """Add to ``counts["cache_hits"]`` of the wrapped encoder, if it has this entry.

        Args:
            number: Number of texts that did not have to be encoded.
        """
        if "cache_hits" in self.counts:
            self.wrapped.counts["cache_hits"] += number


class AdaptedPairEncoder(PairEncoder):
    """Adapter for a pair encoder that is not derived from ``PairEncoder``.

    Args:
        wrapped: Pair encoder with ``hidden_size``, ``fingerprint``, ``encode`` and ``head``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @property
    def hidden_size(self) -> int:
        """Width of a vector of the wrapped encoder."""
        return int(self.wrapped.hidden_size)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped encoder."""
        return str(self.wrapped.fingerprint)

    @property
    def name(self) -> str:
        """``name`` or ``model`` of the wrapped encoder, or the name of its class."""
        return str(getattr(self.wrapped, "name", getattr(self.wrapped, "model", type(self.wrapped).__name__)))

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode pairs with the wrapped encoder.

        Args:
            query_texts: Query of each of ``M`` pairs.
            passages: Passage of each pair.

        Returns:
            Pair vectors ``[M, h]``, float32: the [CLS] vectors before the classification head.
        """
        vectors: Tensor = self.wrapped.encode(query_texts, passages)
        return vectors

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors with the wrapped encoder.

        Args:
            vectors: Pair vectors ``[..., h]``.

        Returns:
            Logits ``[...]``.
        """
        logits: Tensor = self.wrapped.head(vectors)
        return logits


class AdaptedGraphScorer(GraphScorer):
    """Adapter for a scorer that is not derived from ``GraphScorer``.

    Args:
        wrapped: Scorer with ``candidate_graphs`` and ``score``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the input of the model with the wrapped scorer.

        Args:
            queries: ``B`` queries.
            ranking: Candidates ``[B, K]`` with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs with ``N`` candidates in total, in the order of the ranking.
        """
        graphs: CandidateGraphs = self.wrapped.candidate_graphs(queries, ranking, feature_names)
        return graphs

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score candidates with the wrapped scorer.

        Args:
            graphs: Packed graphs from :meth:`candidate_graphs`.

        Returns:
            Scores ``[N]``, which are only comparable within a query.
        """
        scores: Tensor = self.wrapped.score(graphs)
        return scores

    def factory_over(self, factory: GraphScorerFactory) -> GraphScorerFactory:
        """Return the attribute ``over`` of the wrapped scorer, or the default.

        Args:
            factory: Factory that built this scorer.
        """
        over: GraphScorerFactory = getattr(self.wrapped, "over", factory)
        return over


@dataclass(frozen=True)
class ModelInterface:
    """Properties of a model class that are known before a model is built.

    Attributes:
        inputs_of: Function from the arguments of the constructor to the inputs of the model. None if the class does not
            declare its inputs.
        manifest_class: Class of the model's manifests. If None, the manifest of a reranker is used.
        trained_by: Argument of ``graphrerank train`` that trains the model. If None, ``fit`` trains it.
    """

    inputs_of: Callable[..., ModelInputs] | None
    manifest_class: type[Any] | None = None
    trained_by: str | None = None


def as_retriever(retriever: Any) -> Retriever:
    """Return a retriever as an instance of the base class, with an adapter if necessary.

    Args:
        retriever: Retriever with or without the base class.
    """
    return retriever if isinstance(retriever, Retriever) else AdaptedRetriever(retriever)


def as_encoder(encoder: Any) -> Encoder:
    """Return an encoder as an instance of the base class, with an adapter if necessary.

    Args:
        encoder: Encoder with or without the base class.
    """
    return encoder if isinstance(encoder, Encoder) else AdaptedEncoder(encoder)


def as_pair_encoder(encoder: Any) -> PairEncoder:
    """Return a pair encoder as an instance of the base class, with an adapter if necessary.

    Args:
        encoder: Pair encoder with or without the base class.
    """
    return encoder if isinstance(encoder, PairEncoder) else AdaptedPairEncoder(encoder)


def as_graph_scorer(scorer: Any) -> GraphScorer:
    """Return a scorer as an instance of the base class, with an adapter if necessary.

    Args:
        scorer: Scorer with or without the base class.
    """
    return scorer if isinstance(scorer, GraphScorer) else AdaptedGraphScorer(scorer)


def query_encoder(encoder: Any) -> Encoder:
    """Return the query encoder of a passage encoder, which is often the same encoder.

    Args:
        encoder: Encoder of passages.
    """
    return as_encoder(encoder).for_queries


def model_interface(model_class: Any) -> ModelInterface:
    """Return the properties of a model class before a model is built.

    Args:
        model_class: Class of a model, or a function that builds one.
    """
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
    """Return the names of a candidate's features, in order.

    Args:
        model: Class or instance of the model.
        score_names: Names of the scores of the retriever.

    Returns:
        Result of the model's ``feature_names``, or the scores for a class without this method.
    """
    names = getattr(model, "feature_names", None)
    return list(score_names) if names is None else list(names(score_names))


def needs_vectors(build_retriever: RetrieverFactory) -> bool:
    """Return whether a retriever will need an encoded corpus and encoded queries, without building it.

    Args:
        build_retriever: Factory of the retriever, such as a class or a ``functools.partial`` of one.

    Returns:
        Result of the class's ``needs_vectors`` for the settings. True for other factories and for classes without this
        method.
    """
    if isinstance(build_retriever, partial):
        factory, settings = build_retriever.func, build_retriever.keywords
    else:
        factory, settings = build_retriever, {}
    if not isinstance(factory, type):
        return True
    answer = getattr(factory, "needs_vectors", Retriever.needs_vectors)
    return bool(answer(**settings))


def expands_along_edges(build_retriever: RetrieverFactory) -> bool:
    """Return whether a retriever will take candidates from the edges of the corpus graph, without building it.

    Args:
        build_retriever: Factory of the retriever, such as a ``functools.partial`` of a class.

    Returns:
        Class attribute ``expands_along_edges``. False for other factories and for classes without this attribute.
    """
    func = build_retriever.func if isinstance(build_retriever, partial) else build_retriever
    return bool(getattr(func, "expands_along_edges", Retriever.expands_along_edges))


def is_lookup(retriever: Any) -> bool:
    """Return whether a retriever only looks up precomputed rankings. Its latency is then not that of a search.

    Args:
        retriever: Retriever with or without the base class.
    """
    return as_retriever(retriever).is_lookup
