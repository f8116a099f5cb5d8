"""``python serve.py``: export a checkpoint, or answer HTTP requests from an exported artifact."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.doors.http_service import serve_http
from graphrerank.models import load_checkpoints
from graphrerank.serving import export_artifact, load_artifact


def serve(cfg: DictConfig) -> Path:
    """Export or serve; the artifact's folder is the last line printed, when serving before the first request."""
    if cfg.mode not in ("export", "http"):
        raise ValueError(f"`mode` must be export or http, got {cfg.mode!r}")
    return _export(cfg) if cfg.mode == "export" else serve_http(cfg)


def _export(cfg: DictConfig) -> Path:
    if cfg.checkpoint is None:
        raise ValueError("mode=export needs `checkpoint`: a run folder, a .ckpt or a shipped name, got none")
    checkpoint = list(load_checkpoints(cfg.checkpoint).values())[-1]  # of a run folder the primary model
    folder = export_artifact(checkpoint, Path(cfg.artifact or cfg.paths.run_dir))
    parity = load_artifact(folder).manifest["artifact"]["parity"]
    print(f"{checkpoint.path}: scripted and eager scores differ by at most {parity['max_difference']:.1e}")
    print(folder, flush=True)
    return folder
