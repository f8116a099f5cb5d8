"""Filter for Lightning's log output: tips and unfounded warnings are hidden, and warnings to act on are shown."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Loggers of Lightning's informative messages: available devices, tips, seeds, the reason why `fit` ended. Loggers of
# callbacks are not included, because a callback only logs if it was built with `verbose=True`.
REMARKS = tuple(
    f"lightning.{package}.{part}"
    for package in ("fabric", "pytorch")
    for part in ("accelerators", "loops", "plugins", "strategies", "trainer", "utilities")
)
# Beginnings of warnings that do not apply here, each with the reason. All other warnings are shown.
UNFOUNDED = (
    r"The number of training batches \(\d+\) is smaller than the logging interval",  # The mean of the epoch is logged.
    r"The '\w+' does not have many workers",  # Batches are built from memory.
    r"It is recommended to use `self\.log\(.*sync_dist=True",  # Our modules sum over processes themselves.
    r"Checkpoint directory .* exists and is not empty",  # The run is resumed.
    r"You're resuming from a checkpoint that ended before the epoch ended",  # Our data module resumes in the epoch.
    r"(GPU|TPU) available but not used",  # The user chose the device.
    r"MLFlow only allows",  # The logger removes the @ from names of measures.
    r".*isinstance\(treespec, LeafSpec\)",  # torch warns about a call inside Lightning.
)
# Logger, and beginning of its warning about a new MLflow store.
EXPECTED = "lightning.pytorch.loggers.mlflow", "Experiment with name"


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's tips and unfounded warnings in a block, or in a function when used as a decorator.

    Errors, and warnings that are not in :data:`UNFOUNDED`, are shown. Loggers whose level is already above WARNING are
    not changed. The caller's levels and filters are restored afterwards.

    Yields:
        None.

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
