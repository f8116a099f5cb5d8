"""Settings of ``graphrerank calibrate``."""

from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class CalibrateSettings(TrackedSettings):
    """Settings of a calibration of a finished checkpoint.

    Attributes:
        checkpoint: Checkpoint to calibrate: a run folder, a .ckpt file, an exported artifact, or the name of a
            checkpoint that ships with the package.
        num_queries: Number of judged queries of `data` to fit on, chosen by a hash of their ids. The others evaluate
            the fit. null fits on all of them, cross-validated.
        val_split: Split of `data` to fit on. All judged queries are used if there is no split of that name.
    """

    checkpoint: str
    num_queries: int | None = None
    val_split: str = "val"
    system: str = "calibrate"
