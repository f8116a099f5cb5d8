"""What a tracker can keep of a run: the class to extend for a further one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.results import ResultTable


class TrackedRun:
    """A run of one Lightning logger.

    The base class serves any logger: it sends numbers with ``log_metrics``, which every logger has. A tracker that
    can keep more overrides the methods named ``log_...``; one whose runs have ids overrides :meth:`open` and
    :attr:`run_id`. Curves of a training are not sent here: Lightning sends them to the logger while it trains.

    Args:
        logger: The logger.

    Attributes:
        logger_class: Loggers that the class serves, with their subclasses. To override.
        extra: Extra of this package that installs the tracker; None if it needs no other package. To override.
        keeps_results: Whether results are sent at all; False for a logger of curves alone. To override.
    """

    logger_class: ClassVar[type[Logger]] = Logger
    extra: ClassVar[str | None] = None
    keeps_results: ClassVar[bool] = True

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @classmethod
    def open(cls, settings: DictConfig, *, run_id: str | None, group: str) -> "TrackedRun":
        """Build the logger and begin its run, or continue an earlier one.

        Args:
            settings: Settings of the logger, as in ``conf/logger``.
            run_id: Id of the run to continue; None for a new one.
            group: Name that the runs of one command, or of one sweep, share.
        """
        return cls(instantiate(settings))

    @property
    def run_id(self) -> str | None:
        """Id of the run, with which a later command continues it; None if the tracker has none."""
        return None

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Send the command, its configuration, and the facts of what it read."""

    def log_test(self, numbers: Mapping[str, float]) -> None:
        """Send the test measures of the system that the run trained, as ``test/attack/ndcg@10``."""
        self.logger.log_metrics(dict(numbers))

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Send the single numbers of the job's ``metrics.json``."""
        self.logger.log_metrics(dict(numbers))

    def log_table(self, table: ResultTable) -> None:
        """Send a table of results."""

    def log_image(self, name: str, path: Path) -> None:
        """Send a plot, a PNG file."""

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Send what the run read."""

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Send what the run wrote."""

    def close(self, *, failed: bool) -> None:
        """End the run."""
        self.logger.finalize("failed" if failed else "success")
