"""Checkpoints: model weights with a manifest that describes them.

A checkpoint is one of

- a folder with ``manifest.json`` and ``model.safetensors`` (a shipped checkpoint or an exported artifact),
- a Lightning ``.ckpt`` file of a training run, with ``manifest.json`` in a folder above it,
- a run folder with one subfolder per model, ``<system>/checkpoints/best.ckpt``. One of the manifests sets ``primary``.

No checkpoint can execute code. Weights are loaded with ``weights_only=True`` or from safetensors.
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
from graphrerank.utils.files import hash_files
from graphrerank.utils.safe_loading import untrusted_file
from graphrerank.utils.tensor_files import save_tensors

#: Name of the weights file in a checkpoint folder.
WEIGHTS_FILE = "model.safetensors"
#: Arguments of the constructor that change when cross-encoder scores are added.
ADDED = ("num_scores", "num_pair_scores")
#: Name of the layer for cross-encoder scores.
PAIR_SCORE_LAYER = "lin_pairs"
#: Prefix of the model's weights in the state of a ``RerankerModule``.
MODULE_PREFIX = "model."
#: Folder of the shipped checkpoints.
PRETRAINED = Path(__file__).parent.parent / "pretrained"
#: Path of the best checkpoint in the folder of a model.
BEST = Path("checkpoints", "best.ckpt")


@dataclass(frozen=True)
class Checkpoint:
    """Loaded model with its manifest.

    Attributes:
        model: Model with its weights, in evaluation mode.
        manifest: Description of the model and its training.
        path: Path of the weights file.
    """

    model: nn.Module
    manifest: Manifest
    path: Path

    @property
    def reranker(self) -> RerankerManifest:
        """Manifest of a model that scores candidates.

        Raises:
            UserError: If the model scores something else, such as queries.
        """
        if not isinstance(self.manifest, RerankerManifest):
            raise UserError(f"{self.path} must contain a reranker, got a {self.manifest.model.name}")
        return self.manifest

    @property
    def graph_reranker(self) -> RerankerManifest:
        """Manifest of a model that reranks candidates by their scores and edges.

        Raises:
            UserError: If the model needs the pair vectors of a cross-encoder, or is not a reranker.
        """
        if self.reranker.inputs.reads_pairs:
            raise UserError(
                f"{self.path} must contain a model of scores and edges, such as gatv2_reranker. This model needs the "
                "cross-encoder's vectors of (query, passage) pairs"
            )
        return self.reranker

    def check_encoder(self, name: str | None, fingerprint: str | None, *, of_pairs: bool = False) -> None:
        """Check that an encoder is the one that the model was trained with.

        Args:
            name: Name of the encoder for messages, or None if there is no encoder.
            fingerprint: Fingerprint of the encoder, or None if there is no encoder.
            of_pairs: Whether to check the cross-encoder instead of the text encoder.

        Raises:
            UserError: If the encoder differs.
        """
        kind = "pair_encoder" if of_pairs else "encoder"
        trained = self.reranker.pair_encoder if of_pairs else self.reranker.encoder
        if trained is None or fingerprint != trained.fingerprint:
            expected = "no encoder"
            if trained is not None:
                expected = f"{trained.name or 'the cross-encoder'} ({trained.fingerprint[:12]})"
            hint = ". Only models with features=scores accept any encoder" if self.reranker.inputs.reads_vectors else ""
            raise UserError(
                f"`{kind}` must be that of the training of {self.path}, {expected}, got {name} "
                f"({str(fingerprint)[:12]}){hint}"
            )


def load_checkpoint(path: str | Path, *, model: nn.Module | None = None) -> Checkpoint:
    """Load a checkpoint folder or a Lightning ``.ckpt`` file.

    Args:
        path: Path of the folder or file.
        model: Model into which the weights are loaded. If None, the model is built from the manifest.

    Returns:
        Checkpoint with the model in evaluation mode.

    Raises:
        UserError: If there is no such checkpoint, if it is damaged, or if the weights do not fit the manifest.
    """
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
    with torch.device("meta"):  # an untrusted manifest may declare huge sizes, so compare them with the file first
        outline = build_model(manifest)
    try:
        outline.load_state_dict(state, assign=True)
    except RuntimeError as error:
        features = manifest.model.arguments.get("features")
        mode = manifest.model.name if features is None else f"features={features}"
        raise UserError(f"{weights}: the weights do not fit the model of the manifest ({mode}): {error}") from error
    model = build_model(manifest)
    model.load_state_dict(state)
    return Checkpoint(model.eval(), manifest, weights)


def shipped_checkpoints() -> list[str]:
    """Return the names of the checkpoints that come with the package.

    Example:
        >>> "base" in shipped_checkpoints()
        True
    """
    return sorted(folder.name for folder in PRETRAINED.glob("*") if (folder / MANIFEST).is_file())


def find_checkpoint(name: str | Path) -> Path:
    """Return the path of a checkpoint.

    Args:
        name: Name of a shipped checkpoint, or path of any other. Write ``./base`` or pass a ``Path`` for a path that
            has the name of a shipped checkpoint.

    Returns:
        Path of the checkpoint.

    Raises:
        UserError: If there is no such checkpoint.

    Example:
        >>> find_checkpoint("base").name
        'base'
    """
    path = Path(name)
    shipped = shipped_checkpoints()
    if isinstance(name, str) and name in shipped:
        if path.exists():
            warnings.warn(
                f"{name} is the shipped checkpoint. Write ./{name} to use the path of that name", stacklevel=2
            )
        return PRETRAINED / name
    if path.exists():
        return path
    raise UserError(
        f"`checkpoint` must be a run folder, a .ckpt file, an artifact or one of the shipped names {shipped}, "
        f"got {str(name)!r}"
    )


def load_checkpoints(name: str | Path) -> dict[str, Checkpoint]:
    """Load all models of a checkpoint.

    Args:
        name: Name of a shipped checkpoint, or path of any other.

    Returns:
        Checkpoints by system name. The primary model of a run comes last.

    Raises:
        UserError: If there is no such checkpoint, or if it cannot be loaded.
    """
    files = checkpoint_files(find_checkpoint(name))
    loaded = {checkpoint.manifest.name: checkpoint for checkpoint in map(load_checkpoint, files)}
    primary = _primary_names([checkpoint.manifest for checkpoint in loaded.values()])
    return {name: loaded[name] for name in sorted(loaded, key=lambda name: (name in primary, name))}


def load_primary(name: str | Path) -> Checkpoint:
    """Load the only model of a checkpoint, or the primary model of a run folder.

    Args:
        name: Name of a shipped checkpoint, or path of any other.

    Returns:
        Checkpoint with the model in evaluation mode.

    Raises:
        UserError: If a run folder has several models and none of them is primary, or if the model cannot be loaded.
    """
    path = find_checkpoint(name)
    manifests = [(file, read_manifest(file)) for file in checkpoint_files(path)]
    files = {manifest.name: file for file, manifest in manifests}
    primary = _primary_names([manifest for _, manifest in manifests])
    if len(primary) != 1:
        raise UserError(
            f"{path} contains the models {sorted(files)}, and none of them is marked as primary. Choose the folder of "
            f"one model, such as {path / min(files)}"
        )
    return load_checkpoint(files[primary[0]])


def checkpoint_files(path: Path) -> list[Path]:
    """Return the checkpoint files or folders at a path.

    Args:
        path: Checkpoint file, checkpoint folder, folder of a model, or run folder.

    Returns:
        The path itself, the best checkpoint of the model, or the best checkpoint of each model of the run.

    Raises:
        UserError: If there is no checkpoint at the path.
    """
    if path.is_file() or (path / WEIGHTS_FILE).is_file():
        return [path]
    if (path / MANIFEST).is_file() and (path / BEST).is_file():
        return [path / BEST]
    files = [folder.parent / BEST for folder in sorted(path.glob(f"*/{MANIFEST}"))]
    if not files:
        raise UserError(
            f"{path} must be a checkpoint or a run folder, but contains neither {WEIGHTS_FILE} nor <system>/{MANIFEST}"
        )
    return files


def _primary_names(manifests: Sequence[Manifest]) -> list[str]:
    """Return the names of the manifests that set ``primary``, or the name of the only manifest."""
    return [manifest.name for manifest in manifests if manifest.primary or len(manifests) == 1]


def build_model(manifest: Manifest) -> nn.Module:
    """Build an untrained model from a manifest.

    Args:
        manifest: Manifest with the name of the model and the arguments of its constructor.

    Returns:
        Model with new weights.

    Raises:
        UserError: If the model does not accept the arguments.
    """
    name = manifest.model.name
    try:
        return find_model(name)(**manifest.model.arguments)
    except (TypeError, ValueError) as error:
        raise UserError(f"{manifest.source}: the arguments in the manifest do not fit {name}: {error}") from error


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write the weights of a model to ``model.safetensors``. An existing file is replaced atomically.

    Args:
        folder: Folder of the checkpoint.
        model: Model to save.
    """
    save_tensors(folder / WEIGHTS_FILE, model.state_dict())


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries and plugins that can affect a result.

    Returns:
        Versions by package name.
    """
    versions = dict.fromkeys(("graphrerank", "torch", "lightning", "sentence-transformers", "bm25s", "numpy"), "")
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {name: number or "not installed" for name, number in versions.items()} | extension_versions()


def read_lightning_checkpoint(path: Path) -> dict[str, Any]:
    """Read a Lightning ``.ckpt`` file without executing code from it.

    Args:
        path: Path of the file.

    Returns:
        Content of the file, with tensors on the CPU.

    Raises:
        UserError: If there is no such file, if it is compressed, or if it contains objects other than plain data.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if zipfile.is_zipfile(path) and any(record.compress_type for record in zipfile.ZipFile(path).infolist()):
        raise UserError(f"{path} must be an uncompressed Lightning checkpoint, got a compressed record")
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        _ = content["state_dict"]
    except Exception as error:  # the exception for a damaged file depends on the damage
        raise UserError(f"{path} is not a Lightning checkpoint that can be loaded safely: {error}") from error
    return content


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.is_file() and path.suffix == ".safetensors":
        try:
            return load_file(path)
        except safetensors.SafetensorError as error:
            raise UserError(f"{path}: damaged weights: {error}") from error
    try:
        state = read_lightning_checkpoint(path)["state_dict"]
        return {name.removeprefix(MODULE_PREFIX): v for name, v in state.items() if name.startswith(MODULE_PREFIX)}
    except (AttributeError, TypeError) as error:
        raise UserError(f"{path} is not a Lightning checkpoint that can be loaded safely: {error}") from error


def start_from(model: nn.Module, arguments: Mapping[str, Any], feature_names: Sequence[str], start: Checkpoint) -> None:
    """Copy the weights of a trained model into a new model of the same kind.

    A model with cross-encoder scores may start from a model without them. Its layer for these scores keeps its initial
    value of zero.

    Args:
        model: New model, which is changed.
        arguments: Arguments of the constructor of the new model.
        feature_names: Names of the retriever scores that the new model uses.
        start: Checkpoint of the trained model.

    Raises:
        UserError: If the models differ in their class, their arguments or their scores.
    """
    before = start.reranker
    if (name := model_name(type(model))) != before.model.name:
        raise UserError(f"`start` must be a checkpoint of a {name}, got a {before.model.name} in {start.path}")
    start_arguments = dict(before.model.arguments)
    adds = bool(arguments.get("num_pair_scores")) and not start_arguments.get("num_pair_scores")
    ignored = (*(ADDED if adds else ()), *(() if before.inputs.reads_vectors else ("embedding_dim",)))
    differing = [
        f"{key}={start_arguments.get(key)} (got {arguments.get(key)})"
        for key in sorted(arguments.keys() & start_arguments.keys())
        if key not in ignored and arguments[key] != start_arguments[key]
    ]
    if differing:
        raise UserError(f"the model must have the arguments of `start`, {start.path}: {', '.join(differing)}")
    names = [name for name in feature_names if not (adds and name in CROSS_ENCODER_FEATURES)]
    if names != list(before.retriever.feature_names):
        raise UserError(
            f"the scores must be those that `start`, {start.path}, was trained on, "
            f"{list(before.retriever.feature_names)}, got {names}"
        )
    missing, unexpected = model.load_state_dict(start.model.state_dict(), strict=False)
    unknown = [name for name in missing if not (adds and name.startswith(PAIR_SCORE_LAYER))] + unexpected
    if unknown:
        raise UserError(f"the weights of `start`, {start.path}, do not fit the model: {unknown}")


def start_entry(start: Checkpoint, name: str) -> dict[str, Any]:
    """Return the manifest entry ``start``, which describes the checkpoint that a training run started from.

    Args:
        start: Checkpoint that the training started from.
        name: Name of the checkpoint.

    Returns:
        Name, hash of the weights, and data sets of the earlier training.
    """
    return {
        "name": name,
        "sha256": hash_files([start.path]),
        "trained_on": {
            key: {"arguments": dict(entry.arguments), "fingerprint": entry.fingerprint}
            for key, entry in start.reranker.trained_on.items()
        },
    }


def train_only(model: nn.Module, parts: Sequence[str]) -> None:
    """Freeze all parameters of a model except those of the given parts.

    Args:
        model: Model, which is changed.
        parts: Prefixes of the parameter names to train, up to the first dot.

    Raises:
        UserError: If a part has no parameters.
    """
    valid = {name.split(".")[0] for name, _ in model.named_parameters()}
    if unknown := sorted(set(parts) - valid):
        raise UserError(f"`train_only` must only contain parts of the model, {sorted(valid)}, got {unknown}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in parts)
