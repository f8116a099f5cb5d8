"""Data sets with the candidates and features that a model is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from hydra.utils import get_object
from torch import Tensor

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.core import ModelInputs
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES
from graphrerank.models.checkpoint import ADDED_PART
from graphrerank.models.registry import read_inputs
from graphrerank.training.settings import FitSettings
from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class TrainingData:
    """Prepared data sets by name, and the parts that prepared them, as a manifest names them."""

    prepared: Mapping[str, PreparedDataset]  # all with the same features; the first one is the table's
    data: Mapping[str, ConfiguredComponent]
    retriever: ConfiguredComponent
    encoder: ConfiguredComponent | None = None  # None where nothing is encoded
    pair_encoder: ConfiguredComponent | None = None  # None where no pair is read

    @property
    def first(self) -> PreparedDataset:
        """The data set of the table."""
        return next(iter(self.prepared.values()))

    @property
    def judged(self) -> dict[str, PreparedDataset]:
        """The data sets to validate and calibrate on: those with judged questions, or all where none has any."""
        return {name: part for name, part in self.prepared.items() if not part.dataset.drafted} or dict(self.prepared)


def declared_inputs(model: ConfiguredComponent) -> ModelInputs:
    """Return the inputs of a model before it is built; a ValueError if another training trains it."""
    model_class = type(model.instance) if model.settings is None else get_object(model.settings._target_)
    if (training := getattr(model_class, "trained_by", None)) is not None:
        raise UserError(f"`model` must be a reranker, got {model.name}, which `train.py {training}` trains")
    return (
        cast(ModelInputs, model.instance.inputs)
        if model.settings is None
        else read_inputs(model_class, model.arguments)
    )


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
    table_split: str | None = None,
) -> TrainingData:
    """Load and encode data sets, with the candidates and features of a training.

    The ``models`` to train decide what is encoded, ``features`` are settings of ``conf/features``, and ``table_split``
    is that of the first data set that will be evaluated.
    """
    limit, top_k = settings.cross_encoder_queries, features.get("cross_encoder_top_k")
    if isinstance(limit, Mapping) and (unknown := set(limit) - set(data)):
        raise UserError(f"`cross_encoder_queries` must name data sets of {sorted(data)}, got {sorted(unknown)}")
    inputs = list(map(declared_inputs, models))
    reader = None
    if any(declared.reads_pairs for declared in inputs):
        if pair_encoder is None:
            raise UserError("`pair_encoder` must be chosen for a model of (query, passage) pairs, got none")
        reader = parts.pair_encoder(pair_encoder)
        _ = reader.hidden_size  # loads the model: one that cannot be had is refused before anything is computed
    retriever = replace(retriever, instance=None) if retriever.settings is not None else retriever
    searches: dict[str, Any] = {
        "retriever": retriever,
        "encoder": encoder,
        "reads_vectors": any(declared.reads_vectors for declared in inputs),
    }
    prepared: dict[str, PreparedDataset] = {}
    for name, part in data.items():
        tables = [table_split] if table_split is not None and not prepared else []
        searches["splits"] = [settings.train_split, settings.val_split, *tables]
        ranked = parts.prepare(part, **searches)
        if settings.num_queries is not None:
            ranked = _few_queries(ranked, settings.num_queries, searches["splits"])
        if top_k:
            queries = limit.get(name, 0) if isinstance(limit, Mapping) else limit
            only_pairs = settings.train_only is not None and set(settings.train_only) == {ADDED_PART}
            ranked, read = _queries_of_pairs(ranked, queries, searches["splits"], only_these=only_pairs)
            ranked = parts.with_cross_encoder(ranked, pair_encoder, read, top_k=top_k)
        prepared[name] = with_matches(ranked, features)
    if reader is not None:
        prepared = {name: parts.with_pair_encoder(part, reader) for name, part in prepared.items()}
    trained = TrainingData(prepared, data, retriever, encoder, pair_encoder)
    if reader is not None:
        read_pairs(trained, reader, settings, table_split)
    return trained


def read_pairs(data: TrainingData, reader: PairCache, settings: FitSettings, table_split: str | None) -> None:
    """Read the (query, passage) pairs of a training and its table into the cache, with an estimate of the time.

    Args:
        data: Prepared data sets.
        reader: Cross-encoder with its cache.
        settings: Settings of the training, which name the splits.
        table_split: Split of the first data set that will be evaluated; None for none.
    """
    texts, passages = list[str](), list[str]()
    for name, part in data.prepared.items():
        queries = [part.answerable(settings.train_split)]
        if name in data.judged:
            queries.append(part.dataset.split(settings.val_split).queries)
        if table_split is not None and part is data.first:
            queries.append(part.dataset.split(table_split).queries)
        more_texts, more_passages = part.pairs(torch.unique(torch.cat(queries)))
        texts += more_texts
        passages += more_passages
    reader.read_ahead(texts, passages)


def _few_queries(prepared: PreparedDataset, count: int, splits: Sequence[str]) -> PreparedDataset:
    """Keep some queries of each split, evenly spaced; of the first one, of training, those that teach something."""
    dataset, few = prepared.dataset, {}
    for number, name in enumerate(splits):
        queries = dataset.split(name).queries if number else prepared.answerable(name)
        few[name] = dataset.split(name).of_queries(evenly_spaced(queries, count))
    dataset = replace(dataset, splits={**dataset.splits, **few}, known_fingerprint=dataset.fingerprint)
    return replace(prepared, dataset=dataset)


def with_matches(prepared: PreparedDataset, features: Mapping[str, Any]) -> PreparedDataset:
    """Add the features of matched words that ``conf/features`` asks for, before and behind a cross-encoder's."""
    names, of_pairs, words = list(prepared.feature_names), list[str](), tuple[str, ...]()
    if features.get("text_match"):
        words = WORD_FEATURES[: features.get("num_words") or 0]
        of_pairs = [name for name in names if name in CROSS_ENCODER_FEATURES]
        names = [name for name in names if name not in of_pairs] + list(MATCH_FEATURES[:2] if words else MATCH_FEATURES)
    return prepared.with_features([*names, *of_pairs, *words])


def _queries_of_pairs(
    prepared: PreparedDataset, limit: int | None, splits: Sequence[str], *, only_these: bool
) -> tuple[PreparedDataset, Tensor]:
    """Choose the queries whose candidates a cross-encoder reads: of training, half as many of validation, all tables'.

    With ``only_these`` other queries of training and validation are left out of the data set.
    """
    dataset, names = prepared.dataset, splits[:2]
    train, val = (dataset.split(split).queries for split in names)
    read = [train, val] if limit is None else [evenly_spaced(train, limit), evenly_spaced(val, -(-limit // 2))]
    if only_these:
        few = {split: dataset.split(split).of_queries(some) for split, some in zip(names, read, strict=True)}
        dataset = replace(dataset, splits={**dataset.splits, **few}, known_fingerprint=dataset.fingerprint)
    if len(read[0]):
        read += [dataset.split(table).queries for table in splits[2:]]
    return replace(prepared, dataset=dataset), torch.cat(read)


def evenly_spaced(queries: Tensor, limit: int) -> Tensor:
    """Return at most ``limit`` queries, evenly spaced: neighbours in a split often ask about the same passages."""
    count = min(limit, len(queries))
    return queries[torch.arange(count) * len(queries) // max(1, count)]
