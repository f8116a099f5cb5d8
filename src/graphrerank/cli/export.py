"""``graphrerank export``: a checkpoint as an artifact, past the parity gate."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.schema import check_settings
from graphrerank.inference.hub import locate_model
from graphrerank.models.checkpoint import load_primary
from graphrerank.serving.artifact import read_artifact_manifest
from graphrerank.serving.export import export_artifact


def run(cfg: DictConfig) -> Path:
    """Export a checkpoint, and print how far each format differs from it; the artifact is the last line printed."""
    check_settings(cfg, "export")
    located = locate_model(str(cfg.checkpoint), revision=cfg.revision)
    folder = export_artifact(load_primary(located), Path(cfg.artifact or cfg.paths.run_dir), list(cfg.formats))
    parity = read_artifact_manifest(folder).content["artifact"]["parity"]
    for name, difference in parity["max_difference"].items():
        print(f"{name}: differs from the eager scores by at most {difference:.1e}, on {parity['batches']} batches")
    print(folder, flush=True)
    return folder
