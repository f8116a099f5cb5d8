"""Data sets with the candidates and features that a model is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.candidate_shards import SHARD_QUERIES, CandidateShards, write_shards
from graphrerank.data.candidates import PreparedDataset, prepare, with_vectors
from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.parts import Part, Parts

PairLimit = int | Mapping[str, int] | None


@dataclass(frozen=True)
class TrainingData:
    """Prepared data sets, and the parts that prepared them, as a manifest names them.

    Attributes:
        prepared: Data sets by name, all with the same features; the first one is the table's.
        data: Each data set's part, by name.
        retriever: The candidates' source.
        encoder: The texts' encoder; None where nothing is encoded.
        pair_encoder: The cross-encoder; None where no pair is read.
        train_split: Split to train on.
        val_split: Split to validate on.
        shards: Candidates of training queries on disk, by data set; empty where they are in memory.
    """

    prepared: Mapping[str, PreparedDataset]
    data: Mapping[str, Part]
    retriever: Part
    encoder: Part | None = None
    pair_encoder: Part | None = None
    train_split: str = "train"
    val_split: str = "val"
    shards: Mapping[str, CandidateShards] = field(default_factory=dict)

    @property
    def first(self) -> PreparedDataset:
        """The data set of the table."""
        return next(iter(self.prepared.values()))

    @property
    def judged(self) -> dict[str, PreparedDataset]:
        """The data sets to validate and calibrate on: those with judged questions, or all where none has any."""
        return {name: part for name, part in self.prepared.items() if not part.dataset.drafted} or dict(self.prepared)


@dataclass(frozen=True)
class FeaturePlan:
    """Features of a candidate beyond the retriever's scores.

    Attributes:
        text_match: Whether words of queries and passages are matched.
        num_words: Words of a query that are matched one by one.
        cross_encoder_top_k: Candidates of a query that a cross-encoder reads; 0 for none.
        cross_encoder_queries: Training queries, and half as many of validation, whose candidates it reads: a number for
            each data set, or by name, where others have none; None for all.
        only_pairs_train: Whether nothing is trained but the layer of the cross-encoder's scores: queries without any
            are left out.
    """

    text_match: bool = False
    num_words: int = 0
    cross_encoder_top_k: int = 0
    cross_encoder_queries: PairLimit = None
    only_pairs_train: bool = False

    def of(self, prepared: PreparedDataset, *, text_match: TextMatch | None = None) -> PreparedDataset:
        """Return a data set with these features; a cross-encoder's are there already."""
        names = list(prepared.feature_names)
        of_pairs = [name for name in names if name in CROSS_ENCODER_FEATURES]
        matched: Sequence[str] = MATCH_FEATURES if self.text_match else ()
        words = WORD_FEATURES[: self.num_words] if self.text_match else ()
        names = [name for name in names if name not in of_pairs] + list(matched[:2] if words else matched)
        return prepared.with_features([*names, *of_pairs, *words], text_match=text_match)


def prepare_training(
    parts: Parts,
    data: Mapping[str, Part],
    *,
    retriever: Part,
    encoder: Part | None,
    pair_encoder: Part | None,
    plan: FeaturePlan,
    reads_vectors: bool,
    reads_pairs: bool = False,
    train_split: str = "train",
    val_split: str = "val",
    table_split: str | None = None,
    buffer: int | None = None,
) -> TrainingData:
    """Load and encode data sets, with the candidates and features of a training.

    Args:
        parts: Builds them.
        data: Data sets by name; the first one is the table's.
        retriever: The candidates' source.
        encoder: The texts' encoder, or None.
        pair_encoder: The cross-encoder, or None.
        plan: Features beyond the retriever's scores.
        reads_vectors: Whether a model reads vectors.
        reads_pairs: Whether a model reads a cross-encoder's vectors of pairs.
        train_split: Split to train on.
        val_split: Split to validate on.
        table_split: Split of the first data set that will be evaluated; None for none.
        buffer: Training queries in memory, whose candidates are read from shards on disk; None for all in memory.

    Raises:
        ValueError: If a split or an encoder is missing, or settings exclude each other.
    """
    if isinstance(plan.cross_encoder_queries, Mapping) and (unknown := set(plan.cross_encoder_queries) - set(data)):
        raise ValueError(f"`cross_encoder_queries` must name data sets of {sorted(data)}, got {sorted(unknown)}")
    if buffer is not None and plan.cross_encoder_top_k:
        raise ValueError(f"`batches.buffer` must be null with `features.cross_encoder_top_k`, got {buffer}")
    retriever = replace(retriever, given=None) if retriever.settings is not None else retriever
    prepared, shards = {}, {}
    for place, (name, part) in enumerate(data.items()):
        tables = [table_split] if table_split is not None and not place else []
        splits = [train_split, val_split, *tables]
        if buffer is not None:
            prepared[name], shards[name] = _streamed(
                parts, part, retriever, encoder, plan, splits, reads_vectors=reads_vectors, buffer=buffer
            )
            continue
        ranked = parts.prepare(part, retriever=retriever, encoder=encoder, reads_vectors=reads_vectors, splits=splits)
        if plan.cross_encoder_top_k:
            ranked = _read_pairs(parts, name, ranked, pair_encoder, plan, splits)
        prepared[name] = plan.of(ranked)
    if reads_pairs:
        prepared = {name: parts.with_pair_encoder(part, pair_encoder) for name, part in prepared.items()}
    return TrainingData(prepared, data, retriever, encoder, pair_encoder, train_split, val_split, shards)


def _streamed(
    parts: Parts,
    data: Part,
    retriever: Part,
    encoder: Part | None,
    plan: FeaturePlan,
    splits: Sequence[str],
    *,
    reads_vectors: bool,
    buffer: int,
) -> tuple[PreparedDataset, CandidateShards]:
    """Write the candidates of training queries to shards; return the data set with the other queries, and them."""
    dataset, encodes, build = parts.load(
        data, encoder=encoder, retriever=retriever, reads_vectors=reads_vectors, splits=splits
    )
    cache = parts.cache / "candidates"
    dataset = with_vectors(dataset, encodes, cache)
    if encodes is not None:
        dataset = replace(dataset, encoded_by=encodes.fingerprint, known_fingerprint=dataset.fingerprint)
    match = TextMatch.of(dataset.graph) if plan.text_match else None  # once for all shards
    shards = write_shards(
        dataset,
        splits[0],
        encoder=encodes,
        build_retriever=build,
        with_features=partial(plan.of, text_match=match),
        folder=parts.cache / "shards",
        settings=str([retriever.arguments, plan.text_match, plan.num_words]),
        shard_size=min(SHARD_QUERIES, buffer),
    )
    is_other = torch.ones(len(dataset.query_ids), dtype=torch.bool)
    is_other[dataset.split(splits[0]).queries] = False
    others = dataset.with_queries(is_other.nonzero().flatten())
    return plan.of(prepare(others, encoder=encodes, build_retriever=build, cache=cache)), shards


def _read_pairs(
    parts: Parts,
    name: str,
    prepared: PreparedDataset,
    pair_encoder: Any,
    plan: FeaturePlan,
    splits: Sequence[str],
) -> PreparedDataset:
    """Let the cross-encoder read candidates of training queries, half as many of validation, and all of the table."""
    limit = plan.cross_encoder_queries
    if isinstance(limit, Mapping):
        limit = limit.get(name, 0)
    dataset, (train_split, val_split, *tables) = prepared.dataset, splits
    train, val = (dataset.split(split).queries for split in (train_split, val_split))
    read = [train, val] if limit is None else [_evenly_spaced(train, limit), _evenly_spaced(val, -(-limit // 2))]
    if plan.only_pairs_train:
        names = (train_split, val_split)
        few = {split: dataset.split(split).of_queries(some) for split, some in zip(names, read, strict=True)}
        dataset = replace(dataset, splits={**dataset.splits, **few}, known_fingerprint=dataset.fingerprint)
    if len(read[0]):
        read += [dataset.split(table).queries for table in tables]
    prepared = parts.with_cross_encoder(prepared, pair_encoder, torch.cat(read), top_k=plan.cross_encoder_top_k)
    return replace(prepared, dataset=dataset)


def _evenly_spaced(queries: Tensor, limit: int) -> Tensor:
    """Return at most ``limit`` queries, evenly spaced: neighbours in a split often ask about the same passages."""
    count = min(limit, len(queries))
    return queries[torch.arange(count) * len(queries) // max(1, count)]
