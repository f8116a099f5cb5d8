"""Preparation of training data: data sets with the candidates and features of their queries."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

import torch
from hydra.utils import get_object
from torch import Tensor

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.core import ModelInputs
from graphrerank.core.adapters import model_interface
from graphrerank.core.model_inputs import QUERIES
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.data.teachers import Teacher
from graphrerank.data.vector_cache import PairCache
from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.models.checkpoint import PAIR_SCORE_LAYER
from graphrerank.models.registry import read_inputs
from graphrerank.training.distillation import unjudged_queries, with_teacher
from graphrerank.training.settings import FitSettings
from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class TrainingData:
    """Prepared data sets of a training run, and the components that prepared them.

    Attributes:
        prepared: Data sets with the candidates and features of their queries, by name. All have the same features. The
            result table of a training run is computed on the first one.
        data: Configuration of each data set by name, which is recorded in the manifest.
        retriever: Retriever that produced the candidates.
        encoder: Text encoder. None if nothing is encoded.
        pair_encoder: Cross-encoder. None if no cross-encoder is used.
        teacher: Teacher whose scores the training uses. None without distillation.
    """

    prepared: Mapping[str, PreparedDataset]
    data: Mapping[str, ConfiguredComponent]
    retriever: ConfiguredComponent
    encoder: ConfiguredComponent | None = None
    pair_encoder: ConfiguredComponent | None = None
    teacher: Teacher | None = None

    @property
    def first(self) -> PreparedDataset:
        """First data set, on which the result table is computed."""
        return next(iter(self.prepared.values()))

    @property
    def judged(self) -> dict[str, PreparedDataset]:
        """Data sets for validation and calibration.

        These are the data sets with human judgements, or all data sets if every data set has drafted questions.
        """
        judged = {name: prepared for name, prepared in self.prepared.items() if not prepared.dataset.drafted}
        return judged or dict(self.prepared)

    @property
    def teacher_labels_validation(self) -> bool:
        """Whether a teacher chose the relevant candidates of a validation split, so that it must not calibrate."""
        teachers = [prepared.teacher for prepared in self.judged.values()]
        return any(teacher is not None and teacher.labels_validation for teacher in teachers)


def declared_inputs(model: ConfiguredComponent) -> ModelInputs:
    """Return the inputs that a configured model declares, without building the model.

    Args:
        model: Configured model.

    Returns:
        Inputs of the model's ``forward``.

    Raises:
        ValueError: If the model scores queries instead of candidates, or needs a different training procedure. The
            message names the command that trains it.
    """
    model_class = type(model.instance) if model.settings is None else get_object(model.settings._target_)
    if (training := model_interface(model_class).trained_by) is not None:
        raise UserError(f"`model` must be a reranker, got {model.name}. Train it with `graphrerank train {training}`")
    if model.settings is None:
        return cast(ModelInputs, model.instance.inputs)
    inputs = read_inputs(model_class, model.arguments)
    if inputs == QUERIES:
        raise UserError(
            f"`model` must score candidates, got {model.name}, which scores queries. "
            f"Train it with experiment={model.name}"
        )
    return inputs


def prepare_training(
    parts: ComponentFactory,
    data: Mapping[str, ConfiguredComponent],
    models: Sequence[ConfiguredComponent],
    *,
    retriever: ConfiguredComponent,
    encoder: ConfiguredComponent | None,
    pair_encoder: ConfiguredComponent | None,
    features: Mapping[str, Any],
    settings: FitSettings,
    teacher: Teacher | None = None,
    table_split: str | None = None,
) -> TrainingData:
    """Load and encode data sets, retrieve candidates and compute features, using caches where possible.

    Args:
        parts: Factory that builds the components and knows the folders of the caches.
        data: Configured data sets by name. The result table is computed on the first one.
        models: Models to train on the data. Their inputs determine whether passages and pairs are encoded.
        retriever: Retriever that produces the candidates.
        encoder: Text encoder. None if neither the models nor the retriever use vectors.
        pair_encoder: Cross-encoder. None if neither the models nor the features use one.
        features: Settings in the form of a file of ``conf/features``.
        settings: Settings of the training. The splits and the limits on the number of queries are used.
        teacher: Teacher that scores the candidates of the training and validation queries. If None, the training uses
            judgements alone. With a teacher, the training and validation splits may be missing.
        table_split: Split of the first data set on which the models will be evaluated. None if they will not be
            evaluated.

    Returns:
        Prepared data sets with their components.

    Raises:
        ValueError: If a component or a split is missing, or ``cross_encoder_queries`` names an unknown data set.
    """
    _check_limits(settings, data)
    inputs = [declared_inputs(model) for model in models]
    reads_pairs = any(declared.reads_pairs for declared in inputs)
    if settings.buffer is not None:
        has_pair_features = bool(features.get("cross_encoder_top_k"))
        _check_buffer(settings.buffer, reads_pairs=reads_pairs or has_pair_features, has_teacher=teacher is not None)
    reader = pair_reader(parts, pair_encoder) if reads_pairs else None
    if retriever.settings is not None:
        retriever = replace(retriever, instance=None)
    reads_vectors = any(declared.reads_vectors for declared in inputs)
    completion = _Completion(parts, pair_encoder=pair_encoder, features=features, settings=settings, teacher=teacher)
    prepared: dict[str, PreparedDataset] = {}
    for name, dataset in data.items():
        splits = _Splits(settings.train_split, settings.val_split, None if prepared else table_split)
        required_splits = [splits.train, *splits.evaluated]
        if settings.buffer is None:
            candidates = parts.prepare(
                dataset,
                retriever=retriever,
                encoder=encoder,
                reads_vectors=reads_vectors,
                splits=required_splits if teacher is None else (),  # a teacher's scores replace missing judgements
            )
        else:
            match_features = TextMatchFeatures(features)
            candidates = parts.prepare_on_disk(
                dataset,
                retriever=retriever,
                encoder=encoder,
                reads_vectors=reads_vectors,
                splits=required_splits,
                add_features=match_features,
                features=match_features.description,
            )
        prepared[name] = completion.complete(name, candidates, splits)
    if reader is not None:
        prepared = {name: parts.with_pair_encoder(dataset, reader) for name, dataset in prepared.items()}
    training_data = TrainingData(prepared, data, retriever, encoder, pair_encoder, teacher)
    if reader is not None:
        read_pairs(training_data, reader, settings, table_split)
    return training_data


@dataclass(frozen=True)
class _Splits:
    """Names of the splits that a training run uses.

    Attributes:
        train: Split of the training queries.
        val: Split of the validation queries.
        table: Split of the result table. None if the models will not be evaluated on the data set.
    """

    train: str
    val: str
    table: str | None

    @property
    def evaluated(self) -> list[str]:
        """Splits whose queries are evaluated."""
        return [self.val] if self.table is None else [self.val, self.table]


@dataclass(frozen=True)
class _Completion:
    """Completion of the candidates of each data set of a training run.

    All attributes are arguments of :func:`prepare_training`.

    Attributes:
        parts: Factory that builds the components.
        pair_encoder: Cross-encoder. None if no cross-encoder is used.
        features: Settings in the form of a file of ``conf/features``.
        settings: Settings of the training.
        teacher: Teacher whose scores the training uses. None without distillation.
    """

    parts: ComponentFactory
    _: KW_ONLY
    pair_encoder: ConfiguredComponent | None
    features: Mapping[str, Any]
    settings: FitSettings
    teacher: Teacher | None

    def complete(self, name: str, prepared: PreparedDataset, splits: _Splits) -> PreparedDataset:
        """Limit the number of queries of a data set, and add the scores of the teacher and the features."""
        if self.teacher is not None and splits.table is not None:
            _check_table_split(prepared, splits.table, val_split=splits.val)
        unjudged = unjudged_queries(prepared.dataset)
        if self.settings.num_queries is not None:
            prepared = _limit_queries(prepared, self.settings.num_queries, splits)
            unjudged = evenly_spaced(unjudged, self.settings.num_queries)
        if self.teacher is not None:
            prepared = with_teacher(
                prepared, self.teacher, train_split=splits.train, val_split=splits.val, unjudged=unjudged
            )
        if top_k := self.features.get("cross_encoder_top_k"):
            prepared, scored_queries = _select_scored_queries(prepared, name, self.settings, splits)
            prepared = self.parts.with_cross_encoder(prepared, self.pair_encoder, scored_queries, top_k=top_k)
        # a data set on disk already has its text-match features
        return prepared if self.settings.buffer is not None else with_matches(prepared, self.features)


def _check_table_split(prepared: PreparedDataset, table_split: str, *, val_split: str) -> None:
    """Require the evaluation split before a teacher scores anything. A missing validation split will be added."""
    dataset = prepared.dataset
    if table_split not in (*dataset.splits, val_split):
        raise UserError(
            f"data set {dataset.name!r} must have the split {table_split!r} to evaluate on, got the splits "
            f"{list(dataset.splits)}. Add judgements, or use test_split={val_split}"
        )


def _check_limits(settings: FitSettings, data: Mapping[str, ConfiguredComponent]) -> None:
    limits = settings.cross_encoder_queries
    if isinstance(limits, Mapping) and (unknown := set(limits) - set(data)):
        raise UserError(f"`cross_encoder_queries` must be keyed by data sets in {sorted(data)}, got {sorted(unknown)}")


def _check_buffer(buffer: int, *, reads_pairs: bool, has_teacher: bool) -> None:
    """Refuse a shuffle buffer with scores that are computed for all queries in memory."""
    if reads_pairs:
        raise UserError(f"`buffer` must be null for models and features of a cross-encoder, got {buffer}")
    if has_teacher:
        raise UserError(f"`buffer` must be null for a training with a teacher, got {buffer}")


def pair_reader(parts: ComponentFactory, pair_encoder: ConfiguredComponent | None) -> PairCache:
    """Load the cross-encoder for models that encode (query, passage) pairs.

    Args:
        parts: Factory that builds the cross-encoder.
        pair_encoder: Configured cross-encoder, or None.

    Returns:
        Cross-encoder with its cache.

    Raises:
        ValueError: If ``pair_encoder`` is None or cannot be loaded.
    """
    if pair_encoder is None:
        raise UserError("`pair_encoder` must be set for a model of (query, passage) pairs, got None")
    reader = parts.pair_encoder(pair_encoder)
    _ = reader.hidden_size  # loads the model, so that a missing model fails before any computation
    return reader


def read_pairs(data: TrainingData, reader: PairCache, settings: FitSettings, table_split: str | None) -> None:
    """Encode the (query, passage) pairs of the training and of the evaluation into the cache, and estimate the time.

    Args:
        data: Prepared data sets.
        reader: Cross-encoder with its cache.
        settings: Settings of the training. The names of the splits are used.
        table_split: Split of the first data set on which the models will be evaluated. None if they will not be
            evaluated.
    """
    texts: list[str] = []
    passages: list[str] = []
    for name, prepared in data.prepared.items():
        queries = [prepared.training_queries(settings.train_split)]
        if name in data.judged:
            queries.append(prepared.dataset.split(settings.val_split).queries)
        if table_split is not None and prepared is data.first:
            queries.append(prepared.dataset.split(table_split).queries)
        more_texts, more_passages = prepared.pairs(torch.unique(torch.cat(queries)))
        texts += more_texts
        passages += more_passages
    reader.read_ahead(texts, passages)


def _limit_queries(prepared: PreparedDataset, limit: int, splits: _Splits) -> PreparedDataset:
    """Limit each split to ``limit`` evenly spaced queries. Remove training queries without a relevant candidate."""
    dataset = prepared.dataset
    queries_of_split = {}
    if splits.train in dataset.splits:  # with a teacher, a split may be missing
        queries_of_split[splits.train] = prepared.answerable(splits.train)
    for name in splits.evaluated:
        if name in dataset.splits:
            queries_of_split[name] = dataset.split(name).queries
    limited_splits = {
        name: dataset.split(name).select_queries(evenly_spaced(queries, limit))
        for name, queries in queries_of_split.items()
    }
    return replace(prepared, dataset=_with_splits(dataset, limited_splits))


def _with_splits(dataset: Dataset, splits: Mapping[str, Qrels]) -> Dataset:
    """Replace some splits. The fingerprint stays that of the whole data set, so that caches apply to it."""
    return replace(dataset, splits={**dataset.splits, **splits}, known_fingerprint=dataset.fingerprint)


class TextMatchFeatures:
    """Add the text-match features to one block of queries after the other, with one matcher for all of them.

    Args:
        features: Settings in the form of a file of ``conf/features``. ``text_match`` and ``num_words`` are used.
    """

    def __init__(self, features: Mapping[str, Any]) -> None:
        self._features = features
        self._text_match: TextMatch | None = None

    @property
    def description(self) -> str:
        """Description of the features for the key of a cache."""
        return repr({name: self._features.get(name) or 0 for name in ("text_match", "num_words")})

    def __call__(self, prepared: PreparedDataset) -> PreparedDataset:
        """Return a copy of the data set with the additional features.

        Args:
            prepared: Data set with the candidates of a block of queries.

        Returns:
            Result of :func:`with_matches`.
        """
        if self._text_match is None and self._features.get("text_match"):
            self._text_match = TextMatch.of(prepared.dataset.graph)
        return with_matches(prepared, self._features, text_match=self._text_match)


def with_matches(
    prepared: PreparedDataset, features: Mapping[str, Any], *, text_match: TextMatch | None = None
) -> PreparedDataset:
    """Add the text-match features. Cross-encoder scores come before the features of single words and after all others.

    Args:
        prepared: Data set with its candidates.
        features: Settings in the form of a file of ``conf/features``. ``text_match`` and ``num_words`` are used.
        text_match: Matcher for the texts of the corpus. If None, it is built.

    Returns:
        The data set with the additional features, or with its present features if ``text_match`` is false.
    """
    present = list(prepared.feature_names)
    if not features.get("text_match"):
        return prepared.with_features(present, text_match=text_match)
    word_features = WORD_FEATURES[: features.get("num_words") or 0]
    # from single words, a model computes the coverage of any neighbourhood itself
    match_features = MATCH_FEATURES[:2] if word_features else MATCH_FEATURES
    pair_features = [name for name in present if name in CROSS_ENCODER_FEATURES]
    other_features = [name for name in present if name not in pair_features]
    names = [*other_features, *match_features, *pair_features, *word_features]
    return prepared.with_features(names, text_match=text_match)


def _select_scored_queries(
    prepared: PreparedDataset, name: str, settings: FitSettings, splits: _Splits
) -> tuple[PreparedDataset, Tensor]:
    """Select the queries whose candidates the cross-encoder scores.

    These are training queries, half as many validation queries, and all queries of the evaluation split. If only the
    layer of the cross-encoder scores is trained, all other training and validation queries are removed.
    """
    limits = settings.cross_encoder_queries
    limit = limits.get(name, 0) if isinstance(limits, Mapping) else limits
    dataset = prepared.dataset
    train_queries = dataset.split(splits.train).queries
    val_queries = dataset.split(splits.val).queries
    if limit is not None:
        train_queries = evenly_spaced(train_queries, limit)
        val_queries = evenly_spaced(val_queries, math.ceil(limit / 2))
    trains_only_pair_layer = settings.train_only is not None and set(settings.train_only) == {PAIR_SCORE_LAYER}
    if trains_only_pair_layer:
        scored_splits = {
            split: dataset.split(split).select_queries(queries)
            for split, queries in ((splits.train, train_queries), (splits.val, val_queries))
        }
        dataset = _with_splits(dataset, scored_splits)
    scored_queries = [train_queries, val_queries]
    if len(train_queries) and splits.table is not None:
        scored_queries.append(dataset.split(splits.table).queries)
    return replace(prepared, dataset=dataset), torch.cat(scored_queries)


def evenly_spaced(queries: Tensor, limit: int) -> Tensor:
    """Return at most ``limit`` evenly spaced queries.

    Consecutive queries of a split often ask about the same passages, so that evenly spaced queries are more diverse.

    Args:
        queries: Queries ``[Q]``.
        limit: Maximum number of queries.
    """
    count = min(limit, len(queries))
    return queries[torch.arange(count) * len(queries) // max(1, count)]
