"""Parts that more than one door builds from its configuration."""

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
from graphrerank.operators import GCS, PPR, ClassificationHead, CrossEncoder

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


def with_pair_encoder(prepared: PreparedDataset, pair_encoder: DictConfig, cache: str) -> PreparedDataset:
    """Let a data set's graphs carry a cross-encoder's vectors, kept on disk."""
    encoder = PairCache(instantiate(pair_encoder), Path(cache) / "pairs")
    return replace(prepared, pair_encoder=encoder)


def own_head(prepared: PreparedDataset) -> ClassificationHead:
    """Return the head of the cross-encoder that :func:`with_pair_encoder` gave.

    Raises:
        ValueError: If it is not one of transformers.
    """
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise ValueError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder.classification_head


def frozen_grankers(prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Give the rows that a trained head is compared with: the cross-encoder, and GRanker with its own head.

    Empty where the data set has no pair encoder.
    """
    if prepared.pair_encoder is None:
        return {}
    head = own_head(prepared)
    return {"cross_encoder": GRankerHead.from_head(head, smoothing=0.0), "granker": GRankerHead.from_head(head)}


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
        ValueError: If the choice is not a file of the group, or an argument is unknown to it.
    """
    arguments = _without_hydra_keys(dict(entry.get("arguments", {})))
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


def _without_hydra_keys(content: dict[Any, Any]) -> dict[str, Any]:
    return {
        key: _without_hydra_keys(entry) if isinstance(entry, dict) else entry
        for key, entry in content.items()
        if not str(key).startswith("_")
    }


def _without_machine_keys(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: argument for key, argument in arguments.items() if key not in MACHINE_KEYS}
