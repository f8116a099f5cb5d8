"""``graphrerank calibrate``: a finished checkpoint's scores as probabilities, as trained or for one corpus."""

from pathlib import Path

from graphrerank.cli.session import Session
from graphrerank.fitting.calibrate import calibrate_as_trained, calibrate_for_corpus
from graphrerank.models.checkpoint import load_primary
from graphrerank.parts import Parts
from graphrerank.training.score_calibration import calibration_method


def calibrate_checkpoint(session: Session) -> Path:
    """Calibrate a finished checkpoint: for the corpus of ``data=``, else on the validation splits of its training."""
    cfg = session.cfg
    if cfg.calibration is None:
        raise ValueError("`calibrate` needs a method: calibration=logistic or isotonic, got null")
    calibration_method(cfg.calibration)
    checkpoint = load_primary(cfg.calibrate)
    session.tracking.reads_checkpoint(cfg.calibrate)
    if checkpoint.graph_reranker.reads_cross_encoder:
        print("calibrated without a cross-encoder's scores, as lists are that give none")
    parts = Parts(
        paths=dict(cfg.paths),
        device=cfg.device,
        num_threads=cfg.num_threads,
        seed=cfg.seed,
        on_dataset=session.tracking.reads_data,
    )
    retriever, encoder = (
        session.chosen(group) if session.overrides_key(group) else None for group in ("retriever", "encoder")
    )
    if session.overrides_key("data"):
        calibrate_for_corpus(
            parts,
            checkpoint,
            session.chosen("data"),
            session.run_dir,
            method=cfg.calibration,
            retriever=retriever,
            encoder=encoder,
            val_split=cfg.batches.val_split,
            num_queries=cfg.calibrate_queries,
        )
    elif cfg.calibrate_queries is not None:
        raise ValueError(
            "`calibrate_queries` needs the judged questions of a corpus of yours: data=folder data.path=DIR"
        )
    else:
        calibrate_as_trained(
            parts, checkpoint, session.run_dir, method=cfg.calibration, retriever=retriever, encoder=encoder
        )
    return session.run_dir
