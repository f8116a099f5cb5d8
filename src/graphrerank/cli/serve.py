"""``python serve.py``: answer HTTP requests from an artifact, or time its formats."""

from pathlib import Path

import torch
from omegaconf import DictConfig

from graphrerank.checks import UserError, check_choice
from graphrerank.cli.http_service import artifact_folder, serve_http
from graphrerank.cli.schema import check_settings
from graphrerank.files import write_json
from graphrerank.serving.bench import bench_artifact, bench_table

BENCH = "bench.json"
MODES = ("http", "bench")


def run(cfg: DictConfig) -> Path:
    """Serve or time; a folder is the last line printed: the artifact's, or the run's with the times."""
    check_settings(cfg, "serve")
    check_choice(MODES, mode=cfg.mode)
    return bench(cfg) if cfg.mode == "bench" else serve_http(cfg)


def bench(cfg: DictConfig) -> Path:
    """Time the formats of an artifact."""
    if cfg.artifact is None:
        raise UserError("mode=bench needs `artifact`: a folder that `graphrerank export` wrote, got none")
    torch.set_num_threads(cfg.num_threads)
    artifact, folder = artifact_folder(cfg), Path(cfg.paths.run_dir)
    times = bench_artifact(artifact, **cfg.bench)
    content = {"artifact": str(artifact), "settings": dict(cfg.bench), "formats": times}
    write_json(folder / BENCH, content)
    print(bench_table(times))
    print(folder, flush=True)
    return folder
