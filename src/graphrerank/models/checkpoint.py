"""Checkpoints: weights with a manifest that describes them.

A checkpoint is one of

- a folder with ``manifest.json`` and ``model.safetensors`` (a shipped checkpoint, an exported artifact),
- a Lightning ``.ckpt`` with ``manifest.json`` in a folder above it (of a training),
- a run folder with one folder per model, ``<system>/checkpoints/best.ckpt``; one manifest says ``primary``.

None of them can run code: weights are read with ``weights_only=True`` or from safetensors.
"""

import warnings
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.installation.plugins import extension_versions
from graphrerank.models.manifest import (
    MANIFEST,
    Manifest,
    RerankerManifest,
    check_artifact_file,
    check_manifest,
    read_manifest,
)
from graphrerank.models.registry import find_model, model_name
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files, save_tensors
from graphrerank.utils.safe_loading import untrusted_file

WEIGHTS_FILE = "model.safetensors"
ADDED = ("num_scores", "num_pair_scores")  # arguments that a cross-encoder's scores change
PAIR_SCORE_LAYER = "lin_pairs"  # the layer that reads them
MODULE_PREFIX = "model."  # of the weights within a RerankerModule's state
PRETRAINED = Path(__file__).parent.parent / "pretrained"
BEST = Path("checkpoints", "best.ckpt")  # in a model's folder within a run folder


@dataclass(frozen=True)
class Checkpoint:
    """A model with its weights, and its manifest."""

    model: nn.Module  # in evaluation mode
    manifest: Manifest  # describes the model and its training
    path: Path  # the file of the weights

    @property
    def reranker(self) -> RerankerManifest:
        """The manifest of a model that scores candidates; a ValueError if the model scores queries."""
        if not isinstance(self.manifest, RerankerManifest):
            raise UserError(f"{self.path}: needed a reranker, got a {self.manifest.model.name}")
        return self.manifest

    @property
    def graph_reranker(self) -> RerankerManifest:
        """The manifest of a reranker; a ValueError if it reads a cross-encoder's vectors of pairs."""
        if self.reranker.inputs.reads_pairs:
            raise UserError(
                f"{self.path}: reads a cross-encoder's vectors of (query, passage) pairs; needed a model of scores and "
                "edges, such as gatv2_reranker"
            )
        return self.reranker

    def check_encoder(self, name: str | None, fingerprint: str | None, *, of_pairs: bool = False) -> None:
        """Refuse another encoder, of texts or of pairs, than that of the training; both are None if there is none."""
        kind = "pair_encoder" if of_pairs else "encoder"
        trained = self.reranker.pair_encoder if of_pairs else self.reranker.encoder
        if trained is None or fingerprint != trained.fingerprint:
            of = "no vectors"
            if trained is not None:
                of = f"vectors of {trained.name or 'the cross-encoder'} ({trained.fingerprint[:12]})"
            hint = "; only a model of features=scores changes encoders" if self.reranker.inputs.reads_vectors else ""
            raise UserError(f"{self.path}: was trained on {of}, `{kind}` is {name} ({str(fingerprint)[:12]}){hint}")


def load_checkpoint(path: str | Path, *, model: nn.Module | None = None) -> Checkpoint:
    """Load a checkpoint folder or a Lightning ``.ckpt``, into the given model or a new one."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint")
    manifest = read_manifest(path)
    weights = untrusted_file(path, WEIGHTS_FILE) if path.is_dir() else path
    if path.is_dir() and manifest.artifact is not None:
        check_manifest(path, manifest)
        check_artifact_file(path, manifest, WEIGHTS_FILE)
    state = _read_weights(weights)
    if model is not None:
        model.load_state_dict(state)
        return Checkpoint(model.eval(), manifest, weights)
    with torch.device("meta"):  # without memory: the manifest's sizes may be anything, the file's are real
        outline = build_model(manifest)
    try:
        outline.load_state_dict(state, assign=True)
    except RuntimeError as error:
        features = manifest.model.arguments.get("features")
        mode = manifest.model.name if features is None else f"features={features}"
        raise UserError(f"{weights}: these weights are not those of the manifest ({mode}): {error}") from error
    model = build_model(manifest)
    model.load_state_dict(state)
    return Checkpoint(model.eval(), manifest, weights)


def find_checkpoint(name: str | Path) -> Path:
    """Return the path of a checkpoint: of a shipped one by its name, or the given path.

    A folder here that has the name of a shipped checkpoint is given as ``./base`` or as a ``Path``.
    """
    path = Path(name)
    shipped = sorted(folder.name for folder in PRETRAINED.glob("*") if (folder / MANIFEST).is_file())
    if isinstance(name, str) and name in shipped:
        if path.exists():
            warnings.warn(f"{name} is the shipped checkpoint; write ./{name} for the path of that name", stacklevel=2)
        return PRETRAINED / name
    if path.exists():
        return path
    raise UserError(
        f"`checkpoint` must be a run folder, a .ckpt file, an artifact or one of the shipped names {shipped}, "
        f"got {str(name)!r}"
    )


def load_checkpoints(name: str | Path) -> dict[str, Checkpoint]:
    """Load the models of a checkpoint, by system name, a run's primary one last; ``name`` as in the module's list."""
    files = checkpoint_files(find_checkpoint(name))
    loaded = {checkpoint.manifest.name: checkpoint for checkpoint in map(load_checkpoint, files)}
    primary = _primary_names([checkpoint.manifest for checkpoint in loaded.values()])
    return {name: loaded[name] for name in sorted(loaded, key=lambda name: (name in primary, name))}


def load_primary(name: str | Path) -> Checkpoint:
    """Load one model, of a run folder with several the primary one."""
    path = find_checkpoint(name)
    manifests = [(file, read_manifest(file)) for file in checkpoint_files(path)]
    files = {manifest.name: file for file, manifest in manifests}
    primary = _primary_names([manifest for _, manifest in manifests])
    if len(primary) != 1:
        raise UserError(
            f"{path}: holds the models {sorted(files)}, and does not say which is the primary one; name the folder of "
            f"one: {path / min(files)}"
        )
    return load_checkpoint(files[primary[0]])


def checkpoint_files(path: Path) -> list[Path]:
    """List the checkpoints of a path: itself, the best one of its model, or that of each model of a run folder."""
    if path.is_file() or (path / WEIGHTS_FILE).is_file():
        return [path]
    if (path / MANIFEST).is_file() and (path / BEST).is_file():
        return [path / BEST]
    files = [folder.parent / BEST for folder in sorted(path.glob(f"*/{MANIFEST}"))]
    if not files:
        raise UserError(f"{path}: holds neither {WEIGHTS_FILE} nor <system>/{MANIFEST}: not a run folder")
    return files


def _primary_names(manifests: Sequence[Manifest]) -> list[str]:
    """Name the model whose manifest says ``primary``, or the only one."""
    return [manifest.name for manifest in manifests if manifest.primary or len(manifests) == 1]


def build_model(manifest: Manifest) -> nn.Module:
    """Build an untrained model; a ValueError if it does not take the manifest's arguments."""
    name = manifest.model.name
    try:
        return find_model(name)(**manifest.model.arguments)
    except (TypeError, ValueError) as error:
        raise UserError(f"{manifest.source}: the manifest's arguments do not fit {name}: {error}") from error


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write ``model.safetensors``, atomically."""
    save_tensors(folder / WEIGHTS_FILE, model.state_dict())


def library_versions() -> dict[str, str]:
    """Versions of the libraries, and of the packages with extensions, that decide a result."""
    versions = dict.fromkeys(("graphrerank", "torch", "lightning", "sentence-transformers", "bm25s", "numpy"), "")
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {name: found or "not installed" for name, found in versions.items()} | extension_versions()


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if zipfile.is_zipfile(path) and any(record.compress_type for record in zipfile.ZipFile(path).infolist()):
        raise UserError(f"{path}: needed a Lightning checkpoint, which is not compressed, found a compressed record")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except safetensors.SafetensorError as error:
            raise UserError(f"{path}: damaged weights: {error}") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        return {name.removeprefix(MODULE_PREFIX): v for name, v in state.items() if name.startswith(MODULE_PREFIX)}
    except Exception as error:  # the unpickler of a damaged file raises almost anything
        raise UserError(f"{path}: not a Lightning checkpoint that is safe to load: {error}") from error


def start_from(model: nn.Module, arguments: Mapping[str, Any], feature_names: Sequence[str], start: Checkpoint) -> None:
    """Give a new model, of some ``arguments`` and scores, the weights of a finished one with the same.

    A model that reads a cross-encoder's scores may start from one that does not: its layer of them starts at zero.
    """
    before = start.reranker
    if (name := model_name(type(model))) != before.model.name:
        raise UserError(f"`start` must be a {name}, {start.path} holds a {before.model.name}")
    of_before = dict(before.model.arguments)
    adds = bool(arguments.get("num_pair_scores")) and not of_before.get("num_pair_scores")
    ignored = (*(ADDED if adds else ()), *(() if before.inputs.reads_vectors else ("embedding_dim",)))
    differing = [
        f"{key}={of_before.get(key)} (here {arguments.get(key)})"
        for key in sorted(arguments.keys() & of_before.keys())
        if key not in ignored and arguments[key] != of_before[key]
    ]
    if differing:
        raise UserError(f"`start` needs the model that {start.path} holds, with {', '.join(differing)}")
    kept = [name for name in feature_names if not (adds and name in CROSS_ENCODER_FEATURES)]
    if kept != list(before.retriever.feature_names):
        raise UserError(
            f"`start` needs the scores that {start.path} was trained on, {list(before.retriever.feature_names)}, got "
            f"{kept}"
        )
    missing, unexpected = model.load_state_dict(start.model.state_dict(), strict=False)
    unknown = [name for name in missing if not (adds and name.startswith(PAIR_SCORE_LAYER))] + unexpected
    if unknown:
        raise UserError(f"`start`: the weights of {start.path} do not fit the model: {unknown}")


def start_entry(start: Checkpoint, name: str) -> dict[str, Any]:
    """Return a manifest's entry ``start``: name, hash of the weights, and their training's data."""
    return {
        "name": name,
        "sha256": hash_files([start.path]),
        "trained_on": {
            key: {"arguments": dict(entry.arguments), "fingerprint": entry.fingerprint}
            for key, entry in start.reranker.trained_on.items()
        },
    }


def train_only(model: nn.Module, parts: Sequence[str]) -> None:
    """Freeze a model except some parts, named by the first words of its parameters' names."""
    known = {name.split(".")[0] for name, _ in model.named_parameters()}
    if unknown := sorted(set(parts) - known):
        raise UserError(f"`train_only` must name parts of the model, {sorted(known)}, got {unknown}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in parts)
