"""What Lightning says about itself is left out of our commands' output; what a user must act on is not."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Loggers of Lightning's remarks: available devices, tips, seeds, the reason why `fit` ended. Those of its callbacks are
# not among them, since a callback only speaks if it was built with `verbose=True`.
REMARKS = tuple(
    f"lightning.{package}.{part}"
    for package in ("fabric", "pytorch")
    for part in ("accelerators", "loops", "plugins", "strategies", "trainer", "utilities")
)
# Beginnings of warnings that are wrong about our trainings, each with the reason. All others are shown.
UNFOUNDED = (
    r"The number of training batches \(\d+\) is smaller than the logging interval",  # the epoch's mean is logged
    r"The '\w+' does not have many workers",  # batches are built from memory
    r"It is recommended to use `self\.log\(.*sync_dist=True",  # our modules sum over processes themselves
    r"Checkpoint directory .* exists and is not empty",  # a resumed run
    r"You're resuming from a checkpoint that ended before the epoch ended",  # our data module continues in the epoch
    r"(GPU|TPU) available but not used",  # `trainer.accelerator` or `device` says so
    r"MLFlow only allows",  # the @ of a measure is left out of its name there
    r".*isinstance\(treespec, LeafSpec\)",  # of torch, about a call of Lightning's
)
EXPECTED = "lightning.pytorch.loggers.mlflow", "Experiment with name"  # a logger and the warning of a new store


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's remarks, tips and unfounded warnings in a block, or in a function as a decorator.

    Afterwards the levels of loggers and the filters of warnings are again those that the caller had set. A level above
    WARNING stays. Errors, and warnings that are not in :data:`UNFOUNDED`, are shown.

    Example:
        >>> with quiet_lightning():
        ...     logging.getLogger("lightning.pytorch.utilities.rank_zero").isEnabledFor(logging.INFO)
        False
    """
    loggers = list(map(logging.getLogger, REMARKS))
    levels = [logger.level for logger in loggers]
    new_store = logging.getLogger(EXPECTED[0])
    new_store.addFilter(_is_unexpected)
    try:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(max(level, logging.WARNING))
        with warnings.catch_warnings():
            for beginning in UNFOUNDED:
                warnings.filterwarnings("ignore", message=beginning)
            yield
    finally:
        new_store.removeFilter(_is_unexpected)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(EXPECTED[1])
