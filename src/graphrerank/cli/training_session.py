"""A run of ``train.py``: its data sets with the candidates that models are trained on, and the training of a model."""

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra import compose
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from graphrerank.cli.compose import compose_group, dotted_settings, plain_arguments, portable_arguments
from graphrerank.cli.session import Session
from graphrerank.cli.tracking import Tracking
from graphrerank.cli.train_model import CHECKPOINT, build_trainer, train_model
from graphrerank.data.candidate_shards import SHARD_QUERIES, CandidateShards, write_shards
from graphrerank.data.candidates import PreparedDataset, prepare, with_vectors
from graphrerank.evaluation.tune import tune_restart_prob
from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.manifest import MANIFEST, read_manifest
from graphrerank.models.start import ADDED_PART
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR


class TrainingSession(Session):
    """The interface of ``train.py`` to its job, beyond that of any command."""

    def __init__(self, cfg: DictConfig, mix: Mapping[str, Any] | None = None, tracking: Tracking | None = None) -> None:
        super().__init__(cfg, tracking)
        self._mix = (cfg.mix or {}) if mix is None else mix
        self.shards: dict[
            str, CandidateShards
        ] = {}  # of training queries by data set, if `batches.buffer` asks for them
        self.resumed = None if cfg.ckpt_path is None else Path(cfg.ckpt_path)

    @property
    def training_names(self) -> list[str]:
        """Names of the data sets to train on: ``data``, then those of ``mix``, which must be others."""
        first, others = self.choice("data"), [str(name) for name in self.cfg.mix or {}]
        if first in others:
            raise ValueError(f"`mix` must name data sets beside `data`, got {first!r}, which `data` is")
        return [first, *others]

    @property
    def candidates_key(self) -> str:
        """All settings that decide the candidates of a data set, in one string."""
        cfg = self.cfg
        key = [OmegaConf.to_yaml(cfg.retriever, resolve=True), cfg.features.text_match]
        if cfg.features.cross_encoder_top_k:
            key += [cfg.features.cross_encoder_top_k, cfg.cross_encoder_queries, cfg.pair_encoder]
        return str(key)

    @property
    def top_k(self) -> int:
        """Candidates of a query."""
        return int(self.cfg.retriever.top_k)

    def variant(self, overrides: Sequence[str], *, system: str, mix: Sequence[str]) -> "TrainingSession":
        """Compose the same command with more overrides, for one model and the data sets of ``mix`` that are kept."""
        cfg = compose("train", overrides=[*self.overrides, *overrides])
        cfg.paths, cfg.system = self.cfg.paths, system
        cfg.mix = {name: entry for name, entry in self._mix.items() if name in mix}
        return TrainingSession(cfg, self._mix, self.tracking)

    def ablation(self, name: str, run_dir: Path) -> "TrainingSession":
        """Return the same run for one of its models: under its name, with the settings of ``ablations`` for it."""
        cfg = deepcopy(self.cfg)
        cfg.system, cfg.paths.run_dir = name, str(run_dir)
        OmegaConf.set_struct(cfg.model, True)
        cfg.model = OmegaConf.merge(cfg.model, cfg.ablations.get(name, {}))
        return TrainingSession(cfg, tracking=self.tracking)

    def dataset(self, name: str, *, reads_vectors: bool = True, splits: Sequence[str] | None = None) -> PreparedDataset:
        """Load and encode a data set, with candidates and features as models are trained on.

        ``name`` is one of ``training_names``, a file of ``conf/data``, or the path of a data set folder. ``splits``
        are those that will be read; None: those of a training, and the table's of the first data set.
        """
        if name == self.choice("data"):
            group = self.cfg.data
        elif name in self._mix:
            arguments = dict(self._mix[name] or {})
            group = compose_group(self.cfg, "data", str(arguments.pop("data", name)), **arguments)
        else:
            group = self.group("data", name)
        if splits is None:
            tables = [self.cfg.test_split] if name == self.choice("data") else []
            splits = [str(split) for split in (self.cfg.batches.train_split, self.cfg.batches.val_split, *tables)]
        if self.cfg.batches.buffer is not None and self.cfg.batches.train_split in splits:
            return self._streamed(name, group, reads_vectors=reads_vectors, splits=splits)
        prepared = self.prepare(group, self.cfg.encoder, self.cfg.retriever, reads_vectors=reads_vectors, splits=splits)
        if self.cfg.features.cross_encoder_top_k:
            prepared = self._read_pairs(name, prepared)
        return self._with_features(prepared)

    def _with_features(self, prepared: PreparedDataset, *, text_match: TextMatch | None = None) -> PreparedDataset:
        """Add the features that models are trained on; those of a cross-encoder are there."""
        features, names = self.cfg.features, list(prepared.feature_names)
        of_pairs = [name for name in names if name in CROSS_ENCODER_FEATURES]
        matched: Sequence[str] = MATCH_FEATURES if features.text_match else ()
        words = WORD_FEATURES[: features.num_words] if features.text_match else ()
        names = [name for name in names if name not in of_pairs] + list(matched[:2] if words else matched)
        return prepared.with_features([*names, *of_pairs, *words], text_match=text_match)

    def _streamed(self, name: str, group: Any, *, reads_vectors: bool, splits: Sequence[str]) -> PreparedDataset:
        """Write the candidates of training queries to shards; return the data set with those of all others."""
        cfg = self.cfg
        if cfg.features.cross_encoder_top_k:
            raise ValueError(
                f"`batches.buffer` must be null with `features.cross_encoder_top_k`, got {cfg.batches.buffer}"
            )
        dataset, encoder, build = self.load(
            group, cfg.encoder, cfg.retriever, reads_vectors=reads_vectors, splits=splits
        )
        cache, train_split = self.cache / "candidates", str(cfg.batches.train_split)
        dataset = with_vectors(dataset, encoder, cache)
        if encoder is not None:
            dataset = replace(dataset, encoded_by=encoder.fingerprint, known_fingerprint=dataset.fingerprint)
        match = TextMatch.of(dataset.graph) if cfg.features.text_match else None  # once for all shards
        self.shards[name] = write_shards(
            dataset,
            train_split,
            encoder=encoder,
            build_retriever=build,
            with_features=partial(self._with_features, text_match=match),
            folder=self.cache / "shards",
            settings=self.candidates_key + str(cfg.features.num_words),
            shard_size=min(SHARD_QUERIES, cfg.batches.buffer),
        )
        is_other = torch.ones(len(dataset.query_ids), dtype=torch.bool)
        is_other[dataset.split(train_split).queries] = False
        others = dataset.with_queries(is_other.nonzero().flatten())
        return self._with_features(prepare(others, encoder=encoder, build_retriever=build, cache=cache))

    def _read_pairs(self, name: str, prepared: PreparedDataset) -> PreparedDataset:
        """Let the cross-encoder read as ``cross_encoder_queries`` says, half as many of validation, and for the table.

        Where nothing is trained but what reads its scores, all other queries would teach nothing, and are left out.
        """
        cfg, limit = self.cfg, self.cfg.cross_encoder_queries
        if OmegaConf.is_dict(limit):
            known = {self.choice("data"), *map(str, self._mix)}
            if strangers := {str(stranger) for stranger in limit} - known:
                raise ValueError(
                    f"`cross_encoder_queries` must name data sets of {sorted(known)}, got {sorted(strangers)}"
                )
            limit = limit.get(name, 0)
        dataset, splits = prepared.dataset, [str(cfg.batches.train_split), str(cfg.batches.val_split)]
        train, val = (dataset.split(split).queries for split in splits)
        read = [train, val] if limit is None else [_evenly_spaced(train, limit), _evenly_spaced(val, -(-limit // 2))]
        if cfg.train_only is not None and set(cfg.train_only) == {ADDED_PART}:
            few = {split: dataset.split(split).of_queries(some) for split, some in zip(splits, read, strict=True)}
            dataset = replace(dataset, splits={**dataset.splits, **few}, known_fingerprint=dataset.fingerprint)
        if len(read[0]) and name == self.choice("data"):
            read.append(dataset.split(cfg.test_split).queries)
        top_k = cfg.features.cross_encoder_top_k
        prepared = self.with_cross_encoder(prepared, cfg.pair_encoder, torch.cat(read), top_k=top_k)
        return replace(prepared, dataset=dataset)

    def tune_operators(self, prepared: PreparedDataset, split: str) -> dict[str, float]:
        """Choose the frozen operators' restart probabilities on a split, except those that are set."""
        build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
        return {
            name: self.cfg.operator[name].restart_prob or tune_restart_prob(prepared, split, build[name])
            for name in build
        }

    def trainer(self, folder: Path) -> L.Trainer:
        """Build the chosen trainer with the chosen callbacks and loggers, which write to a run folder."""
        self.cfg.paths.run_dir = str(folder)
        return build_trainer(self.cfg, self.tracking.open(self.cfg))

    def train(self, folder: Path, parts: Mapping[str, PreparedDataset], operators: Mapping[str, float]) -> Path:
        """Train the model, or resume where its training stopped, and return the best checkpoint."""
        self.cfg.paths.run_dir = str(folder)
        train_model(self.cfg, parts, operators, self.tracking.open(self.cfg), self.shards)
        self.tracking.close(trained=True)
        return folder / self.cfg.system / CHECKPOINT

    def training_folder(self) -> Path:
        """Choose the run folder of an ordinary training: a new one, or the one that is resumed."""
        if self.resumed is None:
            return self.run_dir
        path = self.resumed
        if not path.exists():
            raise ValueError(
                f"`ckpt_path` must be a run folder or a .ckpt file in one, got {self.cfg.ckpt_path!r}: no such path"
            )
        run_dir = path if path.is_dir() else path.parent.parent.parent
        if not any(run_dir.glob(f"*/{MANIFEST}")):
            raise ValueError(
                f"`ckpt_path` must lie in a run folder of train.py, but {run_dir} holds no <system>/{MANIFEST}"
            )
        cfg, mix = self.cfg, plain_arguments(self.cfg.mix) if self.cfg.mix else {}
        asked = {
            "data": {"choice": self.choice("data"), "arguments": portable_arguments(cfg.data)},
            "retriever": {"choice": self.choice("retriever"), "arguments": plain_arguments(cfg.retriever)},
            "mix": {name: {"arguments": entry or {}} for name, entry in mix.items()},
        }
        check_resumed(run_dir, asked)
        return run_dir


def _evenly_spaced(queries: Tensor, limit: int) -> Tensor:
    """Return at most so many of some queries, from the first on; neighbours in a split often ask about the same."""
    count = min(limit, len(queries))
    return queries[torch.arange(count) * len(queries) // max(1, count)]


def check_resumed(run_dir: Path, asked: Mapping[str, Any]) -> None:
    """Refuse to resume a run of other settings, before anything is read; the error has the run's settings.

    Args:
        run_dir: The run folder.
        asked: The entries ``data``, ``retriever`` and ``mix`` of a manifest of this training, but for fingerprints.

    Raises:
        ValueError: Naming the first setting that is another.
    """
    now = _by_name(asked)
    for path in sorted(run_dir.glob(f"*/{MANIFEST}")):
        before = _by_name(read_manifest(path.parent).content)
        for name in dict.fromkeys((*before, *now)):
            if before.get(name) != now.get(name):
                file = run_dir / ".hydra" / "overrides.yaml"
                given = map(str, OmegaConf.load(file)) if file.is_file() else ["..."]
                settings = shlex.join(part for part in given if not part.startswith(("ckpt_path=", "hydra.run.dir=")))
                raise ValueError(
                    f"`ckpt_path` needs the settings of its run, which was trained with {name}={before.get(name)}, got "
                    f"{name}={now.get(name)}; give them again: {settings} ckpt_path={run_dir}"
                )


def _by_name(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of a manifest, and the settings of its data sets and retriever, by their whole names."""
    mix, entries = manifest.get("mix") or {}, {group: manifest.get(group) or {} for group in ("data", "retriever")}
    named = {group: entry.get("choice") for group, entry in entries.items()} | {"mix": sorted(map(str, mix))}
    for group, entry in (entries | {f"mix.{name}": entry for name, entry in mix.items()}).items():
        named |= {f"{group}.{key}": setting for key, setting in dotted_settings(entry.get("arguments") or {})}
    return named
