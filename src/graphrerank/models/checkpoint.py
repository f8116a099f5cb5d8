"""Checkpoints: weights with a manifest beside them that says what they are.

A checkpoint is one of

- a folder with ``manifest.json`` and ``model.safetensors`` (what ships, what is exported),
- a Lightning ``.ckpt`` with ``manifest.json`` in a folder above it (what training writes, one per system of a run).

Nothing in either can run code: weights are read with ``weights_only=True`` or from safetensors, and the manifest names
a model of :data:`MODELS`, never a class to import.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from graphrerank.files import save_tensors, write_text
from graphrerank.models.complexity_adapter import ComplexityAdapter
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker_head import GRankerHead
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.models.integrity import check_file, check_manifest

MODELS: dict[str, type[nn.Module]] = {
    "complexity_adapter": ComplexityAdapter,
    "gatv2_reranker": GATv2Reranker,
    "granker_head": GRankerHead,
    "granker_layers": GRankerLayers,
}
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
MODULE_PREFIX = "model."  # of the weights within a RerankerModule's state
PRETRAINED = Path(__file__).parent.parent / "pretrained"
PRIMARY = "gatv2"  # the system of a run that is meant where one model is asked for


@dataclass(frozen=True)
class Checkpoint:
    """A model with its weights, and the manifest that came with it.

    Attributes:
        model: The model, in evaluation mode.
        manifest: What the model is and was trained on; see :func:`read_manifest`.
        path: The file of the weights.
    """

    model: nn.Module
    manifest: dict[str, Any]
    path: Path


def model_name(model_class: type[nn.Module] | Any) -> str:
    """Return the name under which a manifest can hold this model.

    Raises:
        ValueError: If the class is not in :data:`MODELS`.
    """
    for name, known in MODELS.items():
        if known is model_class:
            return name
    raise ValueError(f"a checkpoint can hold {sorted(MODELS)}, got {model_class!r}")


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Load a checkpoint folder or a Lightning ``.ckpt``.

    Raises:
        ValueError: If a file is missing or damaged or, in an artifact, not the one that was exported, or the weights do
            not fit the manifest (another feature mode, say).
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: no such checkpoint")
    weights = path / WEIGHTS if path.is_dir() else path
    manifest = read_manifest(path)
    if path.is_dir() and isinstance(manifest.get("artifact"), dict):
        check_manifest(path, manifest)
        check_file(path, manifest, WEIGHTS)
    model = build_model(manifest, source=path)
    state = _read_weights(weights)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(
            f"{weights}: these weights are not those of the manifest (features={model.features}): {error}"
        ) from error
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
    path = find_checkpoint(name)
    if path.is_file() or (path / WEIGHTS).is_file():
        files = [path]
    else:
        files = [folder.parent / "checkpoints" / "best.ckpt" for folder in path.glob(f"*/{MANIFEST}")]
    if not files:
        raise ValueError(f"{path}: holds neither {WEIGHTS} nor <system>/{MANIFEST}: not a run folder")
    loaded = {checkpoint.manifest["name"]: checkpoint for checkpoint in map(load_checkpoint, files)}
    return {name: loaded[name] for name in sorted(loaded, key=lambda name: (name == PRIMARY, name))}


def build_model(manifest: dict[str, Any], *, source: str | Path) -> nn.Module:
    """Build an untrained model from a manifest.

    Raises:
        ValueError: If the manifest names no known model, or arguments that it does not take.
    """
    entry = manifest.get("model", {})
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"{source}: the manifest's model must be one of {sorted(MODELS)}, got {name!r}")
    try:
        return MODELS[name](**entry.get("arguments", {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: the manifest's arguments do not fit {name}: {error}") from error


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint: in its folder, or beside a ``.ckpt`` or one folder up.

    Raises:
        ValueError: If there is none, or it is not a JSON object.
    """
    file = manifest_folder(path) / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise ValueError(f"{file}: needed a JSON object, got {type(manifest).__name__}")
    return manifest


def manifest_folder(path: Path) -> Path:
    """Return the folder of a checkpoint's manifest: its own, or that of a ``.ckpt`` or one folder up.

    Raises:
        ValueError: If there is no manifest.
    """
    folders = [path] if path.is_dir() else [path.parent, path.parent.parent]
    for folder in folders:
        if (folder / MANIFEST).is_file():
            return folder
    raise ValueError(f"{path}: needed {MANIFEST} in {' or '.join(str(f) for f in folders)}, found none")


def reads_vectors(manifest: Mapping[str, Any]) -> bool:
    """Tell whether the model reads query and node vectors."""
    return "query_vector" in manifest_entry(manifest, "features")


def reads_pairs(manifest: Mapping[str, Any]) -> bool:
    """Tell whether the model reads what a cross-encoder makes of (query, node) pairs, and nothing else of a node."""
    return not {"pair_vector", "token_states"}.isdisjoint(manifest_entry(manifest, "features"))


def scores_queries(manifest: Mapping[str, Any]) -> bool:
    """Tell whether the model scores queries by their syntax, and no candidates."""
    return MODELS.get(manifest_entry(manifest, "model", "name")) is ComplexityAdapter


def manifest_entry(manifest: Mapping[str, Any], *keys: str) -> Any:
    """Read an entry within an entry.

    Raises:
        ValueError: If it is not there.

    Example:
        >>> manifest_entry({"encoder": {"dim": 384}}, "encoder", "dim")
        384
    """
    entry: Any = manifest
    for key in keys:
        if not isinstance(entry, Mapping) or key not in entry:
            raise ValueError(f"the manifest needs an entry `{'.'.join(keys)}`, found none")
        entry = entry[key]
    return entry


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write ``manifest.json``, atomically."""
    write_text(folder / MANIFEST, json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write ``model.safetensors``, atomically."""
    save_tensors(folder / WEIGHTS, model.state_dict())


def library_versions() -> dict[str, str]:
    """Versions of the libraries that decide a result."""
    versions = {}
    for name in ("graphrerank", "torch", "lightning", "sentence-transformers", "bm25s", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
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
