"""Settings of ``graphrerank calibrate``."""

from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class CalibrateSettings(TrackedSettings):
    """Settings of the calibration of a finished checkpoint.

    Attributes:
        checkpoint: Checkpoint to calibrate: a run folder, a .ckpt file, an exported artifact, or the name of a
            checkpoint that ships with the package.
        num_queries: Number of judged queries of `data` to fit on, selected by a hash of their ids. The remaining
            queries evaluate the fit. null fits on all judged queries and evaluates by cross-validation.
        val_split: Split of `data` to fit on. If `data` has no such split, all judged queries are used.
        system: Name of the run in the logger.
    """

    checkpoint: str
    num_queries: int | None = None
    val_split: str = "val"
    system: str = "calibrate"
