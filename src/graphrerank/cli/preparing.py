"""A data set as ``evaluate.py`` is told to judge on it: chosen, encoded, and with what pipelines are built from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from graphrerank.cli.parts import (
    compose_group,
    data_group,
    group_from_manifest,
    pick_device,
    prepare_dataset,
    with_pair_encoder,
)
from graphrerank.data import PreparedDataset, VectorCache
from graphrerank.models.checkpoint import reads_vectors
from graphrerank.pipelines import Pipeline


def dataset_names(cfg: DictConfig) -> list[str]:
    """Name the data sets to judge on: the one that ``data=`` chose, else those of ``datasets``.

    Raises:
        ValueError: If there is none.
    """
    names = list(cfg.datasets) if cfg.data is None else [str(HydraConfig.get().runtime.choices["data"])]
    if not names:
        raise ValueError("`datasets` must name at least one file of conf/data, got []")
    return names


def prepare_for_pipelines(cfg: DictConfig, name: str) -> tuple[PreparedDataset, Callable[[DictConfig], Pipeline]]:
    """Make a data set ready.

    Returns:
        The data set, and what builds a pipeline over its graph, on the device, from a group of ``conf/pipeline``.
    """
    encoder = cfg.encoder or compose_group(cfg, "encoder", "minilm")
    retriever = cfg.retriever or compose_group(cfg, "retriever", "dense")
    prepared = prepare_dataset(choose_data(cfg, name, None), encoder, retriever, cfg.paths.cache)
    if cfg.pair_encoder is not None:
        prepared = with_pair_encoder(prepared, cfg.pair_encoder, cfg.paths.cache)
    torch.set_num_threads(cfg.num_threads)
    graph = prepared.dataset.graph.to(pick_device(cfg.device))
    parts = {
        "retriever": instantiate(retriever),
        "pair_encoder": prepared.pair_encoder,
        "text_encoder": VectorCache(instantiate(encoder), Path(cfg.paths.cache) / "vectors"),
    }
    return prepared, lambda group: instantiate(group)(graph, **parts)


def choose_data(cfg: DictConfig, name: str, manifest: Mapping[str, Any] | None) -> DictConfig:
    """Take the data set that ``data=`` chose, with its settings; else compose the one of a name.

    The one that a manifest says was trained on comes with its own settings, any other as :func:`data_group` gives it.
    """
    if cfg.data is not None:
        return cfg.data
    if manifest is not None and manifest["data"]["choice"] == name:
        return group_from_manifest(cfg, "data", manifest["data"])
    return data_group(cfg, name)


def check_encoder(path: str, manifest: Mapping[str, Any], prepared: PreparedDataset) -> None:
    """Refuse vectors of another encoder than a model was trained on.

    Args:
        path: Of the checkpoint, for the message.
        manifest: The checkpoint's.
        prepared: The data set, as it would read it.

    Raises:
        ValueError: If the encoder of texts, or that of pairs, is another one.
    """
    trained = manifest["encoder"]
    if reads_vectors(manifest) and prepared.encoder_fingerprint != trained["fingerprint"]:
        now = f"{prepared.encoder_name} ({str(prepared.encoder_fingerprint)[:12]})"
        raise ValueError(
            f"{path}: was trained on vectors of {trained['name']} ({trained['fingerprint'][:12]}), the encoder now is "
            f"{now}; only features=scores changes encoders"
        )
    if prepared.pair_encoder is not None:
        trained_on_pairs = manifest["pair_encoder"]
        if prepared.pair_encoder.fingerprint != trained_on_pairs["fingerprint"]:
            raise ValueError(
                f"{path}: was trained on vectors of the cross-encoder {trained_on_pairs['fingerprint'][:12]}, "
                f"`pair_encoder` now is {prepared.pair_encoder.fingerprint[:12]}"
            )
