"""One training in its folder: the network, its batches, its trainer, its manifest; and resuming it."""

import inspect
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.utils import get_object
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import OmegaConf
from torch import nn

from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.evaluation.rerankers import own_encoder
from graphrerank.fitting.training_data import TrainingData
from graphrerank.graphs import ModelInputs
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import (
    Checkpoint,
    build_model,
    find_checkpoint,
    library_versions,
    load_checkpoint,
    load_primary,
)
from graphrerank.models.granker_layers import measured_arguments
from graphrerank.models.manifest import MANIFEST, parse_manifest, read_manifest, write_manifest
from graphrerank.models.registry import read_features, read_inputs, register_model
from graphrerank.models.start import start_entry, start_from, train_only
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.parts import Part, build, dotted_settings, portable_arguments
from graphrerank.processes import is_first_process
from graphrerank.training.calibration import calibration_method
from graphrerank.training.epoch_table import EpochTable
from graphrerank.training.reranker_module import RerankerModule

CHECKPOINT = Path("checkpoints", "best.ckpt")  # in a model's folder
LAST = Path("checkpoints", "last.ckpt")
FROM_START = "start"  # the calibration of the checkpoint that a training starts from
FINE_TUNED = "cross_encoder"  # folder of a system whose cross-encoder's last layers were trained
RESUMED_ENTRIES = ("model", "features", "encoder", "pair_encoder", "retriever", "data", "mix", "start")


@dataclass(frozen=True)
class FitSettings:
    """Settings of a training beyond its parts.

    Attributes:
        seed: Seed of weights, order, augmentation and dropout.
        batch_size: Queries of a batch.
        buffer: Training queries in memory, whose candidates are read from shards on disk; None for all in memory.
        shares: Share of the batches by data set, relative to each other; None for the number of training queries.
        augmentation: Arguments of :class:`~graphrerank.data.augmentation.CandidateAugmentation`; empty for none.
        start: A finished checkpoint whose weights the training begins with: a run folder, a ``.ckpt``, an artifact, a
            shipped name; None for new weights.
        train_only: Parts of the model whose weights change, by the first word of their names; None for all.
        calibration: ``logistic``, ``isotonic``, ``start`` for the calibration of ``start``, or None.
    """

    seed: int = 1
    batch_size: int = 32
    buffer: int | None = None
    shares: Mapping[str, float] | None = None
    augmentation: Mapping[str, float] = field(default_factory=dict)
    start: str | None = None
    train_only: Sequence[str] | None = None
    calibration: str | None = "logistic"

    def __post_init__(self) -> None:
        if self.calibration == FROM_START and self.start is None:
            raise ValueError("`calibration=start` needs a checkpoint whose calibration is kept, got start=null")
        if self.calibration not in (None, FROM_START):
            calibration_method(self.calibration)  # refused before training, not after


@dataclass
class Training:
    """One training in its folder, which holds the manifest and the checkpoints.

    Attributes:
        data: What it is trained on.
        model: The model.
        folder: Folder of the model, ``<run>/<name>``.
        settings: Of the training.
        operators: Restart probabilities of GCS and PPR, for the manifest.
        config: The recorded configuration.
    """

    data: TrainingData
    model: Part
    folder: Path
    settings: FitSettings
    operators: Mapping[str, float]
    config: dict[str, Any]

    def __post_init__(self) -> None:
        L.seed_everything(self.settings.seed, verbose=False)  # no earlier training must decide the weights
        self.arguments = self._arguments()
        self.network = self.model.build(**self.arguments) if self.model.settings is not None else self.model.given
        self.start = None if self.settings.start is None else load_primary(find_checkpoint(self.settings.start))

    def run(
        self,
        *,
        loss: Any,
        module: Mapping[str, Any],
        trainer: Mapping[str, Any],
        callbacks: Sequence[Callback],
        loggers: Sequence[Logger],
        resume: str | Path | None,
    ) -> dict[str, Any]:
        """Train, or resume where the training stopped, and return the manifest."""
        data, settings, model = self.data, self.settings, self.network
        manifest = self._manifest()
        if self.model.settings is not None:
            with torch.device("meta"):
                build_model(parse_manifest(manifest, self.folder))  # what cannot be loaded is refused before training
        last = self._resumed(resume, manifest)
        if last is not None and (before := read_manifest(self.folder).content).get("finished"):
            return manifest | {key: before[key] for key in ("finished", "fine_tuned", "validation") if key in before}
        if not data.shards and not any(len(part.answerable(data.train_split)) for part in data.prepared.values()):
            raise ValueError(
                f"no query of split {data.train_split!r} has a relevant candidate, so there is nothing to learn: "
                "check the judgements, or take a retriever that finds more (retriever=hybrid_expand, data.edges=auto)"
            )
        if is_first_process():
            write_manifest(self.folder, manifest)
        if model.inputs.reads_pairs:
            model.start_from(own_encoder(data.first))
        if self.start is not None:
            start_from(model, self.arguments, data.first.feature_names, self.start)
        if settings.train_only is not None:
            train_only(model, settings.train_only)
        val_names = list(data.judged) if len(data.prepared) > 1 else []
        lightning_module = build_module(model, loss, {"seed": settings.seed, **module, "val_names": val_names})
        fitted = build_trainer(trainer, callbacks, loggers)
        for logger in loggers:
            logger.log_hyperparams(manifest)
        try:
            fitted.fit(lightning_module, datamodule=self._batches(), ckpt_path=last, weights_only=True)
        except SystemExit as stopped:  # how Lightning ends after Ctrl+C, which it ignores from then on
            if isinstance(stopped.__context__, KeyboardInterrupt):
                signal.signal(signal.SIGINT, signal.default_int_handler)
                raise KeyboardInterrupt from None
            raise
        best = self.folder / CHECKPOINT
        if not fitted.strategy.broadcast(best.is_file()):  # fast_dev_run or no validation: the last state is the best
            fitted.save_checkpoint(best)
        if not is_first_process():
            return manifest
        if model.inputs.last_layers:
            manifest["fine_tuned"] = _save_fine_tuned(best, data.first)
        kept = fitted.checkpoint_callback
        if kept is not None and kept.best_model_score is not None:
            score = float(kept.best_model_score)
            manifest["validation"] = {"measure": kept.monitor, "mode": kept.mode, "score": score}
        manifest["finished"] = True
        write_manifest(self.folder, manifest)
        return manifest

    def best(self) -> Checkpoint:
        """Load the best checkpoint, into the caller's model where there is one."""
        path = self.folder / CHECKPOINT
        return load_checkpoint(path, model=None if self.model.settings is not None else self.network)

    def _arguments(self) -> dict[str, Any]:
        """Return the model's settings, and the sizes that its data set or its cross-encoder gives."""
        arguments, prepared = self.model.arguments, self.data.first
        if self.model.settings is None:
            return arguments
        if declared_inputs(self.model).reads_pairs:
            return measured_arguments(arguments, own_encoder(prepared))
        sizes = {"num_scores": len(prepared.feature_names)}
        if of_pairs := len(set(CROSS_ENCODER_FEATURES) & set(prepared.feature_names)):
            sizes["num_pair_scores"] = of_pairs
        if (embedding := prepared.dataset.graph.embedding) is not None:
            sizes["embedding_dim"] = embedding.shape[1]
        takes = inspect.signature(get_object(self.model.settings._target_)).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        return arguments | {name: size for name, size in sizes.items() if takes_all or name in takes}

    def _batches(self) -> CandidateDataModule:
        data, settings, augmentation = self.data, self.settings, None
        if any(settings.augmentation.values()):
            augmentation = CandidateAugmentation(data.first.feature_names, **settings.augmentation)
        return CandidateDataModule(
            data.prepared,
            batch_size=settings.batch_size,
            seed=settings.seed,
            inputs=self.network.inputs,
            train_split=data.train_split,
            val_split=data.val_split,
            shares=settings.shares,
            augmentation=augmentation,
            validated=list(data.judged),
            shards=data.shards,
            buffer=settings.buffer,
        )

    def _resumed(self, resume: str | Path | None, manifest: Mapping[str, Any]) -> Path | None:
        """Find the checkpoint to resume, and refuse one of another training."""
        if resume is None:
            return None
        named = Path(resume)
        last = named if named.is_file() and named.parent.parent == self.folder else self.folder / LAST
        if not last.is_file():
            return None
        before = read_manifest(self.folder).content
        for key in RESUMED_ENTRIES:
            if before.get(key) != manifest.get(key):
                raise ValueError(f"{last}: was trained with {key}={before.get(key)}, this job has {manifest.get(key)}")
        return last

    def _manifest(self) -> dict[str, Any]:
        data, prepared, settings = self.data, self.data.first, self.settings
        embedding = prepared.dataset.graph.embedding
        encoder = pair_encoder = None
        if prepared.pair_encoder is not None and data.pair_encoder is not None:
            pair_encoder = {
                "choice": data.pair_encoder.name,
                "arguments": portable_arguments(data.pair_encoder.settings or {}),
                "fingerprint": prepared.pair_encoder.fingerprint,
                "dim": prepared.pair_encoder.hidden_size,
            }
        if embedding is not None and data.encoder is not None:
            encoder = {
                "choice": data.encoder.name,
                "arguments": data.encoder.arguments,
                "name": prepared.encoder_name,
                "fingerprint": prepared.encoder_fingerprint,
                "dim": embedding.shape[1],
            }
        of_start = {}
        if self.start is not None:
            of_start["start"] = start_entry(self.start, Path(str(settings.start)).name)
            if settings.calibration == FROM_START:
                kept = ("calibration", "list_confidence")
                of_start |= {
                    key: self.start.manifest.content[key] for key in kept if key in self.start.manifest.content
                }
        return {
            "name": self.folder.name,
            "finished": False,
            "model": {"name": register_model(type(self.network)), "arguments": self.arguments},
            "features": read_features(self.network, prepared.feature_names),
            "encoder": encoder,
            "pair_encoder": pair_encoder,
            **_with_fingerprints(part_entries(data.data, data.retriever), prepared.feature_names, data.prepared),
            "candidate_depth": prepared.top_k,
            "operators": dict(self.operators),
            "config": self.config or {"seed": settings.seed, "batches": {"val_split": data.val_split}},
            "versions": library_versions(),
            "metrics": {},
            **of_start,
        }


def part_entries(data: Mapping[str, Part], retriever: Part) -> dict[str, Any]:
    """Return the manifest's entries ``data``, ``mix`` and ``retriever`` without what only the data themselves tell."""
    (first, part), *mix = data.items()
    return {
        "data": {"choice": part.choice or first, "arguments": portable_arguments(part.settings or {})},
        "mix": {
            name: {"arguments": {"data": given.choice or name, **portable_arguments(given.settings or {})}}
            for name, given in mix
        },
        "retriever": {"choice": retriever.name, "arguments": retriever.arguments},
    }


def _with_fingerprints(
    entries: dict[str, Any], feature_names: Sequence[str], prepared: Mapping[str, PreparedDataset]
) -> dict[str, Any]:
    """Add the names of features, and the data sets' fingerprints."""
    entries["retriever"]["feature_names"] = list(feature_names)
    entries["data"]["fingerprint"] = next(iter(prepared.values())).dataset.fingerprint
    for name, entry in entries["mix"].items():
        entry["fingerprint"] = prepared[name].dataset.fingerprint
    return entries


def check_resumed(run_dir: Path, data: Mapping[str, Part], retriever: Part) -> None:
    """Refuse to resume a run of other data or another retriever, before anything is read.

    Raises:
        ValueError: Naming the first setting that differs, and how to give the run's.
    """
    now = _by_name(part_entries(data, retriever))
    for path in sorted(run_dir.glob(f"*/{MANIFEST}")):
        before = _by_name(read_manifest(path.parent).content)
        for name in dict.fromkeys((*before, *now)):
            if before.get(name) != now.get(name):
                file = run_dir / ".hydra" / "overrides.yaml"
                given = map(str, OmegaConf.load(file)) if file.is_file() else ["..."]
                ours = shlex.join(part for part in given if not part.startswith(("ckpt_path=", "hydra.run.dir=")))
                raise ValueError(
                    f"`ckpt_path` needs the settings of its run, which was trained with {name}={before.get(name)}, got "
                    f"{name}={now.get(name)}; give them again: {ours} ckpt_path={run_dir}"
                )


def _by_name(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of a manifest, and the settings of its data sets and retriever, by their whole names."""
    mix, entries = manifest.get("mix") or {}, {group: manifest.get(group) or {} for group in ("data", "retriever")}
    named = {group: entry.get("choice") for group, entry in entries.items()} | {"mix": sorted(map(str, mix))}
    for group, entry in (entries | {f"mix.{name}": entry for name, entry in mix.items()}).items():
        named |= {f"{group}.{key}": setting for key, setting in dotted_settings(entry.get("arguments") or {})}
    return named


def build_module(model: nn.Module, loss: Any, arguments: Mapping[str, Any]) -> L.LightningModule:
    """Build the Lightning module: ours, or the class that ``_target_`` names."""
    if "_target_" in arguments:
        module: L.LightningModule = build(dict(arguments), model, loss)
        return module
    return RerankerModule(model, loss, **arguments)


def build_trainer(settings: Mapping[str, Any], callbacks: Sequence[Callback], loggers: Sequence[Logger]) -> L.Trainer:
    """Build a trainer that shows its epochs by :class:`EpochTable`, unless a callback shows them or nothing shall."""
    callbacks = list(callbacks)
    settings = {"_target_": "lightning.Trainer", **settings}
    if not any(isinstance(callback, ProgressBar) for callback in callbacks):
        if settings.pop("enable_progress_bar", True):
            callbacks.append(EpochTable())
        settings["enable_progress_bar"] = False
    trainer: L.Trainer = build(settings, callbacks=callbacks, logger=list(loggers))
    return trainer


def _save_fine_tuned(best: Path, prepared: PreparedDataset) -> dict[str, str]:
    """Write the cross-encoder with the layers and head of a checkpoint beside the folder of checkpoints."""
    model: Any = load_checkpoint(best).model
    start, folder = own_encoder(prepared), best.parent.parent / FINE_TUNED
    start.save_trained(folder, model.layers, model.granker.head)
    fingerprint = CrossEncoder(folder, max_length=start.max_length, dtype=start.dtype).fingerprint
    return {"folder": FINE_TUNED, "fingerprint": fingerprint}


def declared_inputs(model: Part) -> ModelInputs:
    """Return the inputs of a model before it is built.

    Raises:
        ValueError: If its class names another training as ``trained_by``.
    """
    model_class = type(model.given) if model.settings is None else get_object(model.settings._target_)
    if (training := getattr(model_class, "trained_by", None)) is not None:
        raise ValueError(f"`model` must be a reranker, got {model.name}, which `train.py {training}` trains")
    if model.settings is None:
        inputs: ModelInputs = model.given.inputs
        return inputs
    return read_inputs(model_class, model.arguments)
