"""``graphrerank serve``: export a checkpoint, serve it over HTTP, or benchmark its formats."""

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
    """Serve, export or benchmark, depending on ``mode``. The last printed line is the returned folder.

    Args:
        cfg: Settings of ``conf/serve.yaml``.

    Returns:
        Folder of the artifact. With ``mode=bench``, the run folder with the measured times.

    Raises:
        ValueError: If ``mode`` is unknown, or a setting is invalid for it.
    """
    check_choice(MODES, mode=cfg.mode)
    if cfg.mode != "export":
        return bench(cfg) if cfg.mode == "bench" else serve_http(cfg)
    if cfg.checkpoint is None:
        raise UserError("`checkpoint` must be set for mode=export, got null")
    if cfg.format is not None:
        raise UserError(f"`format` must be null for mode=export, got {cfg.format}. Use `formats` to select the formats")
    return export(cfg)


def bench(cfg: DictConfig) -> Path:
    """Measure the latency of each format of an artifact.

    Args:
        cfg: Settings of ``conf/serve.yaml``.

    Returns:
        Run folder with ``bench.json``.

    Raises:
        ValueError: If both ``artifact`` and ``checkpoint`` are null.
    """
    if cfg.artifact is None and cfg.checkpoint is None:
        raise UserError("`checkpoint` or `artifact` must be set for mode=bench, got null for both")
    torch.set_num_threads(cfg.num_threads)
    artifact, folder = artifact_folder(cfg), Path(cfg.paths.run_dir)
    times = bench_artifact(artifact, **cfg.bench)
    content = {"artifact": str(artifact), "settings": dict(cfg.bench), "formats": times}
    write_json(folder / BENCH, content)
    print(bench_table(times))
    print(folder, flush=True)
    return folder
