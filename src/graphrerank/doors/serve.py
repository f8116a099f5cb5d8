"""``python serve.py``: export a checkpoint, or answer HTTP requests from an exported artifact."""

from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from graphrerank.doors.parts import group_from_manifest
from graphrerank.models import find_checkpoint, load_checkpoints
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
    entry = artifact.manifest["encoder"]
    encoder = instantiate(cfg.encoder or group_from_manifest(cfg, "encoder", entry))
    torch.set_num_threads(cfg.num_threads)
    service = RerankService(artifact, encoder)
    service.rerank("warm-up", ["loads the encoder before the first request"])
    print(f"POST http://{cfg.host}:{cfg.port}/rerank, documented at http://{cfg.host}:{cfg.port}/docs")
    print(artifact.folder, flush=True)
    serve_http(create_app(service), host=cfg.host, port=cfg.port)
    return artifact.folder
