"""``python serve.py``: export a checkpoint, time an artifact's formats, or answer HTTP requests from an artifact."""

from pathlib import Path

import torch
from omegaconf import DictConfig

from graphrerank.cli.artifacts import artifact_folder
from graphrerank.cli.demo import serve_demo
from graphrerank.cli.http_service import serve_http
from graphrerank.files import write_json
from graphrerank.inference.hub import locate_model
from graphrerank.models.checkpoint import load_primary
from graphrerank.serving.artifact import read_artifact_manifest
from graphrerank.serving.bench import bench_artifact, bench_table
from graphrerank.serving.export import export_artifact

BENCH = "bench.json"


def serve(cfg: DictConfig) -> Path:
    """Export, time or serve; a folder is the last line printed: the artifact's, or of times the run's own."""
    modes = {"export": _export, "bench": _bench, "http": serve_http, "demo": serve_demo}
    if cfg.mode not in modes:
        raise ValueError(f"`mode` must be export, bench, http or demo, got {cfg.mode!r}")
    return modes[cfg.mode](cfg)


def _export(cfg: DictConfig) -> Path:
    if cfg.checkpoint is None:
        raise ValueError("mode=export needs `checkpoint`: a run folder, a .ckpt or a shipped name, got none")
    located = locate_model(str(cfg.checkpoint), revision=cfg.revision)
    folder = export_artifact(load_primary(located), Path(cfg.artifact or cfg.paths.run_dir), list(cfg.formats))
    parity = read_artifact_manifest(folder).content["artifact"]["parity"]
    for name, difference in parity["max_difference"].items():
        print(f"{name}: differs from the eager scores by at most {difference:.1e}, on {parity['batches']} batches")
    print(folder, flush=True)
    return folder


def _bench(cfg: DictConfig) -> Path:
    if cfg.artifact is None:
        raise ValueError("mode=bench needs `artifact`: a folder that `python serve.py mode=export` wrote, got none")
    torch.set_num_threads(cfg.num_threads)
    artifact, folder = artifact_folder(cfg), Path(cfg.paths.run_dir)
    times = bench_artifact(artifact, **cfg.bench)
    content = {"artifact": str(artifact), "settings": dict(cfg.bench), "formats": [entry.to_json() for entry in times]}
    write_json(folder / BENCH, content)
    print(bench_table(times))
    print(folder, flush=True)
    return folder
