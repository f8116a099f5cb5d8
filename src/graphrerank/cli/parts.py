"""Parts that more than one door builds from its configuration."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra import compose
from hydra.errors import MissingConfigException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor, nn

from graphrerank.data import PairCache, PreparedDataset, VectorCache, prepare
from graphrerank.evaluation import System, base_ranking
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.retriever import needs_vectors
from graphrerank.models import GRankerHead
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.operators import GCS, PPR, CrossEncoder
from graphrerank.operators.first_layers import FirstLayers

MACHINE_KEYS = ("device", "datasets", "cache")  # settings that name a device or folder of this machine


def pick_device(device: str | None) -> torch.device:
    """Return the named device; without a name CUDA where there is one, else the CPU."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def prepare_dataset(
    data: DictConfig, encoder: DictConfig | None, retriever: DictConfig, cache: str, *, reads_vectors: bool = True
) -> PreparedDataset:
    """Load, encode and rank a data set, from the caches where they are there.

    Args:
        data: The data set.
        encoder: The encoder, or None. It is not loaded where nobody reads vectors: neither a model nor the retriever.
        retriever: The retriever.
        cache: Folder of the caches.
        reads_vectors: Whether a model reads query and node vectors.

    Raises:
        ValueError: If there is no encoder, and somebody reads vectors.
    """
    dataset, build_retriever = instantiate(data), instantiate(retriever)
    readers = {
        "a model that reads vectors (features=scores does not)": reads_vectors,
        "a retriever that reads vectors": needs_vectors(build_retriever),
        "edges to nearest neighbours (data.knn)": dataset.knn > 0,
    }
    reader = next((reader for reader, reads in readers.items() if reads), None)
    if encoder is None and reader is not None:
        raise ValueError(f"`encoder` must be chosen (encoder=minilm) for {reader}, got none")
    print(dataset.summary(), flush=True)
    return prepare(
        dataset,
        encoder=None if reader is None else VectorCache(instantiate(encoder), Path(cache) / "vectors"),
        build_retriever=build_retriever,
        cache=Path(cache) / "candidates",
    )


def with_pair_encoder(
    prepared: PreparedDataset, pair_encoder: DictConfig, cache: str, *, last_layers: int = 0
) -> PreparedDataset:
    """Let a data set's graphs carry a cross-encoder's vectors, kept on disk.

    Args:
        prepared: The data set.
        pair_encoder: The cross-encoder.
        cache: Folder of the caches.
        last_layers: Layers that a model has of its own; with any, graphs carry the states before them, not kept.
    """
    encoder = instantiate(pair_encoder)
    return replace(
        prepared,
        pair_encoder=PairCache(encoder, Path(cache) / "pairs"),
        state_encoder=FirstLayers(encoder, last_layers) if last_layers else None,
    )


def trained_layers(arguments: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many of a cross-encoder's last layers models have of their own.

    Args:
        arguments: Of each model, by name.

    Raises:
        ValueError: If the models differ in it.
    """
    layers: dict[str, int] = {name: entry.get("train_last_layers", 0) for name, entry in arguments.items()}
    if len(set(layers.values())) > 1:
        raise ValueError(f"`train_last_layers` must be the same for all systems of a run, got {layers}")
    return next(iter(layers.values()))


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder that :func:`with_pair_encoder` gave.

    Raises:
        ValueError: If it is not one of transformers.
    """
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise ValueError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder


def frozen_grankers(prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Give the rows that a trained head is compared with: the cross-encoder, and GRanker with its own head.

    Empty where the data set has no pair encoder.
    """
    if prepared.pair_encoder is None:
        return {}
    encoder, first = own_encoder(prepared), prepared.state_encoder
    smoothing = {"cross_encoder": 0.0, "granker": 0.2}
    if isinstance(first, FirstLayers):  # the rows read what the trained model reads
        layers = first.without_last
        return {name: GRankerLayers.from_encoder(encoder, layers, smoothing=s) for name, s in smoothing.items()}
    head = encoder.classification_head
    return {name: GRankerHead.from_head(head, smoothing=s) for name, s in smoothing.items()}


def plain_arguments(node: DictConfig) -> dict[str, Any]:
    """Return a group's resolved settings without Hydra's own keys (``_target_`` and the like), nested ones too."""
    content = OmegaConf.to_container(node, resolve=True)
    assert isinstance(content, dict)
    return _without_hydra_keys(content)


def portable_arguments(node: DictConfig) -> dict[str, Any]:
    """Return a group's resolved settings as :func:`plain_arguments`, without those of this machine."""
    return _without_machine_keys(plain_arguments(node))


def compose_group(door: DictConfig, group: str, choice: str, **arguments: Any) -> DictConfig:
    """Compose one file of ``conf/<group>``, resolved with the folders and the device of a door's configuration.

    Args:
        door: The configuration of the door that asks.
        group: A folder of ``conf``.
        choice: A file of that folder, without ending.
        arguments: Settings of the group to replace.

    Raises:
        ValueError: If ``choice`` is not a plain name, there is no such file, or an argument is unknown to it.
    """
    if not re.fullmatch(r"[\w-]+", choice):
        raise ValueError(f"`{group}` must name a file of conf/{group}, got {choice!r}")
    try:
        cfg = compose("evaluate", overrides=[f"{group}={choice}", "checkpoint=none"])
    except MissingConfigException as error:
        raise ValueError(f"`{group}` must name a file of conf/{group}, got {choice!r}: {error}") from error
    cfg.device, cfg.paths = door.device, door.paths
    node: DictConfig = cfg[group]
    OmegaConf.set_struct(node, True)
    try:
        node.merge_with(arguments)
    except OmegaConfBaseException as error:
        raise ValueError(f"arguments do not fit conf/{group}/{choice}.yaml: {error}") from error
    OmegaConf.resolve(node)
    return node


def data_group(door: DictConfig, name: str) -> DictConfig:
    """Compose a data set by its name in ``conf/data``, or a data set folder by its path.

    Raises:
        ValueError: If it is neither a path nor a file of ``conf/data``.
    """
    if "/" in name or "\\" in name:
        return compose_group(door, "data", "folder", path=name)
    return compose_group(door, "data", name)


def group_from_manifest(door: DictConfig, group: str, entry: Mapping[str, Any]) -> DictConfig:
    """Compose a group of ``conf`` as a manifest's entry describes it: its choice, then its plain arguments.

    Targets always come from ``conf``, never from the manifest, which may be a stranger's; so do the folders of data
    sets and caches and the device, which are this machine's.

    Raises:
        ValueError: If the choice is not a file of the group, or an argument is unknown to it or refers to something
            outside the manifest.
    """
    arguments = _without_hydra_keys(dict(entry.get("arguments", {})))
    if "${" in (written := json.dumps(arguments)):
        raise ValueError(f"the manifest's arguments of {group} must be plain, got {written[:200]}")
    return compose_group(door, group, str(entry.get("choice")), **_without_machine_keys(arguments))


def systems(models: Mapping[str, nn.Module], *, gcs: float, ppr: float, device: torch.device) -> list[System]:
    """List the rows of the table: the base ranking, the frozen operators, the trained models.

    Args:
        models: Trained models by system name.
        gcs: Restart probability of GCS.
        ppr: Restart probability of PPR.
        device: Where the models run.
    """
    rows = [
        System("base_ranking", base_ranking, reads_graph=False),
        System("ppr", PPR(restart_prob=ppr).score),
        System("gcs", GCS(restart_prob=gcs).score),
    ]
    for name, model in models.items():
        reads_vectors = bool(model.uses_vectors)
        rows.append(System(name, _scorer(model.to(device).eval(), device), reads_vectors=reads_vectors))
    return rows


def _scorer(model: nn.Module, device: torch.device) -> Any:
    def score(graphs: CandidateGraphs) -> Tensor:
        scores: Tensor = model(*graphs.to(device).model_inputs())
        return scores

    return score


def _without_hydra_keys(content: Any) -> Any:
    """Leave out what Hydra would act on, at any depth, also within lists."""
    if isinstance(content, Mapping):
        return {key: _without_hydra_keys(entry) for key, entry in content.items() if not str(key).startswith("_")}
    return [_without_hydra_keys(entry) for entry in content] if isinstance(content, list) else content


def _without_machine_keys(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: argument for key, argument in arguments.items() if key not in MACHINE_KEYS}
