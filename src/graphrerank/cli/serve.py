"""``python serve.py``: export a checkpoint, answer HTTP requests from it, or time its formats."""

from pathlib import Path

import torch
from omegaconf import DictConfig

from graphrerank.artifacts.benchmark import bench_artifact, bench_table
from graphrerank.cli.export import export
from graphrerank.cli.http_service import artifact_folder, serve_http
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.files import write_json

BENCH = "bench.json"
MODES = ("http", "bench", "export")


def run(cfg: DictConfig) -> Path:
    """Do what ``mode`` says; the last line printed is a folder.

    Args:
        cfg: Settings of ``conf/serve.yaml``.

    Returns:
        The artifact's folder, or with ``mode=bench`` the run's, which has the times.

    Raises:
        ValueError: If a setting is unknown, or does not fit ``mode``.
    """
    check_choice(MODES, mode=cfg.mode)
    if cfg.mode != "export":
        return bench(cfg) if cfg.mode == "bench" else serve_http(cfg)
    if cfg.checkpoint is None:
        raise UserError("mode=export needs `checkpoint`: what to export, written to the folder `artifact`, got none")
    if cfg.format is not None:
        raise UserError(f"mode=export writes `formats`; `format` says which one serves, got format={cfg.format}")
    return export(cfg)


def bench(cfg: DictConfig) -> Path:
    """Time the formats of an artifact."""
    if cfg.artifact is None and cfg.checkpoint is None:
        raise UserError("mode=bench needs `checkpoint`, or `artifact`: a folder that mode=export wrote, got neither")
    torch.set_num_threads(cfg.num_threads)
    artifact, folder = artifact_folder(cfg), Path(cfg.paths.run_dir)
    times = bench_artifact(artifact, **cfg.bench)
    content = {"artifact": str(artifact), "settings": dict(cfg.bench), "formats": times}
    write_json(folder / BENCH, content)
    print(bench_table(times))
    print(folder, flush=True)
    return folder
