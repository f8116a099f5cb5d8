"""The manifest of a training, and the run folder that a training is resumed in."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch import nn

from graphrerank.fitting.training_data import FROM_START, FitSettings, TrainingData
from graphrerank.models.checkpoint import Checkpoint, library_versions, start_entry
from graphrerank.models.manifest import MANIFEST, read_manifest
from graphrerank.models.registry import read_features, register_model
from graphrerank.part import dotted_settings, portable_arguments

LAST = Path("checkpoints", "last.ckpt")  # in a model's folder
RESUMED_ENTRIES = ("data", "mix", "retriever", "model", "features", "encoder", "pair_encoder", "start")


def training_manifest(
    name: str,
    network: nn.Module,
    arguments: Mapping[str, Any],
    data: TrainingData,
    settings: FitSettings,
    *,
    operators: Mapping[str, float],
    config: Mapping[str, Any],
    start: Checkpoint | None,
) -> dict[str, Any]:
    """Return the manifest of a training that begins."""
    prepared, embedding = data.first, data.first.dataset.graph.embedding
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
    if start is not None:
        of_start["start"] = start_entry(start, Path(str(settings.start)).name)
        if settings.calibration == FROM_START:
            kept, content = ("calibration", "list_confidence"), start.manifest.content
            of_start |= {key: content[key] for key in kept if key in content}
    (first, part), *mix = data.data.items()
    return {
        "name": name,
        "finished": False,
        "model": {"name": register_model(type(network)), "arguments": arguments},
        "features": read_features(network, prepared.feature_names),
        "encoder": encoder,
        "pair_encoder": pair_encoder,
        "data": {
            "choice": part.choice or first,
            "arguments": portable_arguments(part.settings or {}),
            "fingerprint": prepared.dataset.fingerprint,
        },
        "mix": {
            mixed: {
                "arguments": {"data": given.choice or mixed, **portable_arguments(given.settings or {})},
                "fingerprint": data.prepared[mixed].dataset.fingerprint,
            }
            for mixed, given in mix
        },
        "retriever": {
            "choice": data.retriever.name,
            "arguments": data.retriever.arguments,
            "feature_names": list(prepared.feature_names),
        },
        "candidate_depth": prepared.top_k,
        "operators": dict(operators),
        "config": dict(config) or {"seed": settings.seed, "batches": {"val_split": settings.val_split}},
        "versions": library_versions(),
        "metrics": {},
        **of_start,
    }


def run_folder(resume: str | Path) -> Path:
    """Return the run folder that a training is resumed in: the path itself, or that of a ``.ckpt`` file."""
    path = Path(resume)
    if not path.exists():
        raise ValueError(f"`ckpt_path` must be a run folder or a .ckpt file in one, got {str(resume)!r}: no such path")
    folder = path if path.is_dir() else path.parent.parent.parent
    if not any(folder.glob(f"*/{MANIFEST}")):
        raise ValueError(f"`ckpt_path` must lie in a run folder of train.py, but {folder} holds no <system>/{MANIFEST}")
    return folder


def last_checkpoint(resume: str | Path | None, folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """Return the checkpoint of a model's folder to resume from, if there is one; a ValueError if settings differ."""
    if resume is None:
        return None
    named = Path(resume)
    last = named if named.is_file() and named.parent.parent == folder else folder / LAST
    if not last.is_file():
        return None
    before, now = (
        dict(dotted_settings({key: content.get(key) for key in RESUMED_ENTRIES}))
        for content in (read_manifest(folder).content, manifest)
    )
    for name in dict.fromkeys((*before, *now)):
        if before.get(name) != now.get(name):
            file = folder.parent / ".hydra" / "overrides.yaml"
            given = map(str, OmegaConf.load(file)) if file.is_file() else ["..."]
            ours = shlex.join(part for part in given if not part.startswith(("ckpt_path=", "hydra.run.dir=")))
            raise ValueError(
                f"`ckpt_path` needs the settings of its run, which was trained with {name}={before.get(name)}, got "
                f"{now.get(name)}; give them again: {ours} ckpt_path={folder.parent}"
            )
    return last
