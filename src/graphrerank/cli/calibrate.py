"""``graphrerank calibrate``: a finished checkpoint's scores as probabilities, as trained or for one corpus."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.command import Command
from graphrerank.cli.jobs import run_job
from graphrerank.fitting.calibrate import calibrate_as_trained, calibrate_for_corpus
from graphrerank.models.checkpoint import load_primary
from graphrerank.training.score_calibration import calibration_method


def run(cfg: DictConfig) -> Path | None:
    """Run the command."""
    return run_job(cfg, "calibrate", calibrate)


def calibrate(command: Command) -> Path:
    """Calibrate a finished checkpoint: for the corpus of ``data``, else on the validation splits of its training."""
    cfg = command.cfg
    calibration_method(cfg.method)
    checkpoint = load_primary(cfg.checkpoint)
    command.tracking.reads_checkpoint(cfg.checkpoint)
    if checkpoint.graph_reranker.reads_cross_encoder:
        print("calibrated without a cross-encoder's scores, as for lists that have none")
    retriever, encoder = command.chosen("retriever"), command.chosen("encoder")
    if cfg.data is not None:
        calibrate_for_corpus(
            command.parts,
            checkpoint,
            command.chosen("data"),
            command.run_dir,
            method=cfg.method,
            retriever=retriever,
            encoder=encoder,
            val_split=cfg.val_split,
            num_queries=cfg.num_queries,
        )
    elif cfg.num_queries is not None:
        raise ValueError("`num_queries` needs the judged queries of a corpus of yours: data=folder data.path=DIR")
    else:
        calibrate_as_trained(
            command.parts, checkpoint, command.run_dir, method=cfg.method, retriever=retriever, encoder=encoder
        )
    return command.run_dir
