"""``graphrerank calibrate``: calibrate the scores of a finished checkpoint to probabilities of relevance."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.command import CommandContext
from graphrerank.cli.jobs import run_job
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import read_manifest
from graphrerank.training.calibrate import calibrate_checkpoint
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_json


def run(cfg: DictConfig) -> Path | None:
    """Run the command with the settings of ``conf/calibrate.yaml``.

    Args:
        cfg: Settings of ``conf/calibrate.yaml``.

    Returns:
        Run folder, or None in a process that is not the first.
    """
    return run_job(cfg, calibrate)


def calibrate(command: CommandContext) -> Path:
    """Calibrate a checkpoint on the corpus of ``data`` or, without ``data``, on the validation splits of its training.

    Args:
        command: Running command.

    Returns:
        Run folder with the calibrated checkpoint.

    Raises:
        ValueError: If ``num_queries`` is set without ``data``, or the checkpoint cannot be calibrated.
    """
    cfg = command.cfg
    checkpoint = load_primary(cfg.checkpoint)
    command.tracking.reads_checkpoint(cfg.checkpoint)
    if checkpoint.graph_reranker.reads_cross_encoder:
        print("calibrating without cross-encoder scores, for rankings that do not use them")
    if cfg.data is None and cfg.num_queries is not None:
        raise UserError(
            f"`num_queries` must be null without `data`, got {cfg.num_queries}. "
            "To use your own corpus, set data=folder data.path=DIR"
        )
    calibrate_checkpoint(
        command.parts,
        checkpoint,
        command.run_dir,
        data=None if cfg.data is None else command.chosen("data"),
        retriever=command.chosen("retriever"),
        encoder=command.chosen("encoder"),
        val_split=cfg.val_split,
        num_queries=cfg.num_queries,
    )
    manifest = read_manifest(command.run_dir).content
    fits = ("calibration", "list_confidence")
    write_json(command.run_dir / "metrics.json", {fit: manifest[fit] for fit in fits if fit in manifest})
    return command.run_dir
