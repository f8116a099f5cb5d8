"""Training that starts from finished weights: fine-tuning, and new layers behind a frozen model."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from graphrerank.files import hash_files
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.registry import model_name

ADDED = ("num_scores", "num_pair_scores")  # arguments that a cross-encoder's scores change
ADDED_PART = "lin_pairs"  # the layer that reads them


def start_from(model: nn.Module, arguments: Mapping[str, Any], feature_names: Sequence[str], start: Checkpoint) -> None:
    """Give a new model the weights of a finished one.

    Both must be the same model with the same arguments that reads the same scores. One exception: a model that reads a
    cross-encoder's scores may start from one that does not; the layer that reads them starts at zero.

    ``arguments`` are those of the new model's constructor, ``feature_names`` the scores that it reads, in order.

    Raises:
        ValueError: If they differ otherwise; names the difference.
    """
    before = start.reranker
    if (name := model_name(type(model))) != before.model.name:
        raise ValueError(f"`start` must be a {name}, {start.path} holds a {before.model.name}")
    of_before = dict(before.model.arguments)
    adds = bool(arguments.get("num_pair_scores")) and not of_before.get("num_pair_scores")
    ignored = (*(ADDED if adds else ()), *(() if before.inputs.reads_vectors else ("embedding_dim",)))
    differing = [
        f"{key}={of_before.get(key)} (here {arguments.get(key)})"
        for key in sorted(arguments.keys() & of_before.keys())
        if key not in ignored and arguments[key] != of_before[key]
    ]
    if differing:
        raise ValueError(f"`start` needs the model that {start.path} holds, with {', '.join(differing)}")
    kept = [name for name in feature_names if not (adds and name in CROSS_ENCODER_FEATURES)]
    if kept != list(before.retriever.feature_names):
        raise ValueError(
            f"`start` needs the scores that {start.path} was trained on, {list(before.retriever.feature_names)}, got "
            f"{kept}"
        )
    missing, unexpected = model.load_state_dict(start.model.state_dict(), strict=False)
    unknown = [name for name in missing if not (adds and name.startswith(ADDED_PART))] + unexpected
    if unknown:
        raise ValueError(f"`start`: the weights of {start.path} do not fit the model: {unknown}")


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
        raise ValueError(f"`train_only` must name parts of the model, {sorted(known)}, got {unknown}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in parts)
