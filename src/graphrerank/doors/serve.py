"""``python serve.py``: export a checkpoint, or answer HTTP requests from an exported artifact."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from graphrerank.data.encoder import Encoder
from graphrerank.doors.parts import group_from_manifest
from graphrerank.models import find_checkpoint, load_checkpoints
from graphrerank.models.checkpoint import scores_queries
from graphrerank.serving import RerankService, create_app, export_artifact, load_artifact, serve_http


def serve(cfg: DictConfig) -> Path:
    """Export or serve; the artifact's folder is the last line printed, when serving before the first request."""
    if cfg.mode not in ("export", "http"):
        raise ValueError(f"`mode` must be export or http, got {cfg.mode!r}")
    return _export(cfg) if cfg.mode == "export" else _serve(cfg)


def _export(cfg: DictConfig) -> Path:
    if cfg.checkpoint is None:
        raise ValueError("mode=export needs `checkpoint`: a run folder, a .ckpt or a shipped name, got none")
    checkpoint = list(load_checkpoints(cfg.checkpoint).values())[-1]  # of a run folder the primary model
    folder = export_artifact(checkpoint, Path(cfg.artifact or cfg.paths.run_dir))
    parity = load_artifact(folder).manifest["artifact"]["parity"]
    print(f"{checkpoint.path}: scripted and eager scores differ by at most {parity['max_difference']:.1e}")
    print(folder, flush=True)
    return folder


def _serve(cfg: DictConfig) -> Path:
    if cfg.artifact is None:
        raise ValueError("mode=http needs `artifact`: a folder that `python serve.py mode=export checkpoint=...` wrote")
    artifact = load_artifact(find_checkpoint(cfg.artifact))
    if scores_queries(artifact.manifest):
        raise ValueError(
            f"`artifact` must hold a reranker, {artifact.folder} holds a complexity adapter, which ranks no passages; "
            "use it in pipeline=ea_graphrag"
        )
    encoder = _encoder(cfg, artifact.manifest["encoder"])
    torch.set_num_threads(cfg.num_threads)
    service = RerankService(artifact, encoder)
    service.rerank("warm-up", ["loads the encoder before the first request"])
    print(f"POST http://{cfg.host}:{cfg.port}/rerank, documented at http://{cfg.host}:{cfg.port}/docs")
    print(artifact.folder, flush=True)
    serve_http(create_app(service), host=cfg.host, port=cfg.port)
    return artifact.folder


def _encoder(cfg: DictConfig, trained: Mapping[str, Any] | None) -> Encoder | None:
    """Make the encoder that was asked for, else the one of training; None where there is to be none."""
    if cfg.encoder is not None:
        return instantiate(cfg.encoder)
    if trained is None or HydraConfig.get().runtime.choices["encoder"] == "none":
        return None
    return instantiate(group_from_manifest(cfg, "encoder", trained))
