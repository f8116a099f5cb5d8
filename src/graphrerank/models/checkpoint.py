"""Checkpoints: weights with a manifest beside them that says what they are.

A checkpoint is one of

- a folder with ``manifest.json`` and ``model.safetensors`` (what ships, what is exported),
- a Lightning ``.ckpt`` with ``manifest.json`` in a folder above it (what training writes, one per system of a run).

Nothing in either can run code: weights are read with ``weights_only=True`` or from safetensors, and the manifest names
a model that is registered here (:mod:`graphrerank.models.registry`), never a class to import.
"""

import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from graphrerank.extensions import extension_versions
from graphrerank.files import save_tensors
from graphrerank.models.integrity import check_file, check_manifest
from graphrerank.models.manifest import MANIFEST, Manifest, RerankerManifest, read_manifest
from graphrerank.models.registry import find_model
from graphrerank.strangers import file_of

WEIGHTS = "model.safetensors"
MODULE_PREFIX = "model."  # of the weights within a RerankerModule's state
PRETRAINED = Path(__file__).parent.parent / "pretrained"
PRIMARY = "gatv2"  # the model of a run that is used where only one is needed


@dataclass(frozen=True)
class Checkpoint:
    """A model with its weights, and the manifest that came with it.

    Attributes:
        model: The model, in evaluation mode.
        manifest: What the model is and was trained on.
        path: The file of the weights.
    """

    model: nn.Module
    manifest: Manifest
    path: Path

    @property
    def reranker(self) -> RerankerManifest:
        """The manifest of a model that scores candidates.

        Raises:
            ValueError: If the model scores queries.
        """
        if not isinstance(self.manifest, RerankerManifest):
            raise ValueError(f"{self.path}: needed a reranker, got a {self.manifest.model.name}")
        return self.manifest

    @property
    def graph_reranker(self) -> RerankerManifest:
        """The manifest of a reranker that needs no cross-encoder.

        Raises:
            ValueError: If the model scores queries, or reads what a cross-encoder makes of pairs.
        """
        if self.reranker.inputs.reads_pairs:
            raise ValueError(
                f"{self.path}: reads a cross-encoder's vectors of (query, passage) pairs; needed a model of scores and "
                "edges, such as gatv2_reranker"
            )
        return self.reranker

    def check_encoder(self, name: str | None, fingerprint: str | None) -> None:
        """Refuse vectors of another encoder than the model was trained on.

        Args:
            name: Of the encoder, for the message; None where there is none.
            fingerprint: Of the encoder.

        Raises:
            ValueError: If it is another one, or nothing was encoded in training.
        """
        trained = self.reranker.encoder
        if trained is None or fingerprint != trained.fingerprint:
            of = "no vectors" if trained is None else f"vectors of {trained.name} ({trained.fingerprint[:12]})"
            hint = "; only a model of features=scores changes encoders" if self.reranker.inputs.reads_vectors else ""
            raise ValueError(f"{self.path}: was trained on {of}, `encoder` is {name} ({str(fingerprint)[:12]}){hint}")

    def check_pair_encoder(self, fingerprint: str) -> None:
        """Refuse vectors of another cross-encoder than the model was trained on.

        Raises:
            ValueError: If it is another one, or the model reads none.
        """
        trained = self.reranker.pair_encoder
        if trained is None or fingerprint != trained.fingerprint:
            of = "none" if trained is None else trained.fingerprint[:12]
            raise ValueError(
                f"{self.path}: was trained on vectors of the cross-encoder {of}, `pair_encoder` now is "
                f"{fingerprint[:12]}"
            )


def load_checkpoint(path: str | Path, *, model: nn.Module | None = None) -> Checkpoint:
    """Load a checkpoint folder or a Lightning ``.ckpt``, into a model of the caller's or a new one.

    Raises:
        ValueError: If a file is missing or damaged or, in an artifact, not the one that was exported, or the weights do
            not fit the manifest (another feature mode, say).
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: no such checkpoint")
    manifest = read_manifest(path)
    weights = file_of(path, WEIGHTS) if path.is_dir() else path
    if path.is_dir() and manifest.artifact is not None:
        check_manifest(path, manifest)
        check_file(path, manifest, WEIGHTS)
    state = _read_weights(weights)
    if model is not None:
        model.load_state_dict(state)
        return Checkpoint(model.eval(), manifest, weights)
    with torch.device("meta"):  # which takes no memory: the manifest's sizes may be anything, the file's are there
        outline = build_model(manifest)
    try:
        outline.load_state_dict(state, assign=True)
    except RuntimeError as error:
        mode = f"features={outline.features}" if hasattr(outline, "features") else manifest.model.name
        raise ValueError(f"{weights}: these weights are not those of the manifest ({mode}): {error}") from error
    model = build_model(manifest)
    model.load_state_dict(state)
    return Checkpoint(model.eval(), manifest, weights)


def find_checkpoint(name: str) -> Path:
    """Return the path of a checkpoint: as it is where it exists, else of that name among those that ship.

    Raises:
        ValueError: If there is nothing of that name, naming what ships.
    """
    path = Path(name)
    shipped = sorted(folder.name for folder in PRETRAINED.glob("*") if (folder / MANIFEST).is_file())
    if path.exists():
        return path
    if name in shipped:
        return PRETRAINED / name
    raise ValueError(
        f"`checkpoint` must be a run folder, a .ckpt file, an artifact or one of the shipped names {shipped}, "
        f"got {name!r}"
    )


def load_checkpoints(name: str) -> dict[str, Checkpoint]:
    """Load the models behind a name, by system name, the primary one last.

    Args:
        name: A run folder, a ``.ckpt``, an exported artifact, or a checkpoint that ships with the package.

    Raises:
        ValueError: If there is nothing of that name, or it holds no checkpoint.
    """
    files = checkpoint_files(find_checkpoint(name))
    loaded = {checkpoint.manifest.name: checkpoint for checkpoint in map(load_checkpoint, files)}
    return {name: loaded[name] for name in sorted(loaded, key=lambda name: (name == PRIMARY, name))}


def checkpoint_files(path: Path) -> list[Path]:
    """List what a path holds to load: itself, or the best checkpoint of each system of a run folder.

    Raises:
        ValueError: If it holds none.
    """
    if path.is_file() or (path / WEIGHTS).is_file():
        return [path]
    files = [folder.parent / "checkpoints" / "best.ckpt" for folder in path.glob(f"*/{MANIFEST}")]
    if not files:
        raise ValueError(f"{path}: holds neither {WEIGHTS} nor <system>/{MANIFEST}: not a run folder")
    return files


def load_primary(name: str | Path) -> Checkpoint:
    """Load one model: of a run folder with several the primary one; arguments as :func:`load_checkpoints`.

    Raises:
        ValueError: As :func:`load_checkpoints`.
    """
    return list(load_checkpoints(str(name)).values())[-1]


def build_model(manifest: Manifest) -> nn.Module:
    """Build an untrained model from a manifest.

    Raises:
        ValueError: If the manifest holds arguments that the model does not take.
    """
    name = manifest.model.name
    try:
        return find_model(name)(**manifest.model.arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{manifest.source}: the manifest's arguments do not fit {name}: {error}") from error


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write ``model.safetensors``, atomically."""
    save_tensors(folder / WEIGHTS, model.state_dict())


def library_versions() -> dict[str, str]:
    """Versions of the libraries, and of the packages with extensions, that decide a result."""
    versions = {}
    for name in ("graphrerank", "torch", "lightning", "sentence-transformers", "bm25s", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions | extension_versions()


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if zipfile.is_zipfile(path) and any(record.compress_type for record in zipfile.ZipFile(path).infolist()):
        raise ValueError(f"{path}: needed a Lightning checkpoint, which is not compressed, found a compressed record")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path}: damaged weights: {error}") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        return {name.removeprefix(MODULE_PREFIX): v for name, v in state.items() if name.startswith(MODULE_PREFIX)}
    except Exception as error:  # the unpickler of a damaged file raises almost anything
        raise ValueError(f"{path}: not a Lightning checkpoint that is safe to load: {error}") from error
