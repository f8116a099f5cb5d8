"""Base class of trackers, to subclass for a new tracker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.results import ResultTable


class TrackedRun:
    """Run of one Lightning logger.

    The base class works with any logger, because it sends numbers with ``log_metrics``, which every logger implements.
    A tracker that supports tables, images or artifacts overrides the methods ``log_...``. A tracker whose runs have ids
    overrides :meth:`open` and :attr:`run_id`. Training curves are not sent by this class, because Lightning logs them
    during the training.

    Args:
        logger: Lightning logger.

    Attributes:
        logger: Lightning logger.
        logger_class: Class of the supported loggers, including its subclasses. Override in subclasses.
        extra: Extra of this package that installs the tracker, or None. Override in subclasses.
        keeps_results: Whether results are sent. False for a logger that only records curves. Override in subclasses.
    """

    logger_class: ClassVar[type[Logger]] = Logger
    extra: ClassVar[str | None] = None
    keeps_results: ClassVar[bool] = True

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    @classmethod
    def open(cls, settings: DictConfig, *, run_id: str | None, group: str) -> "TrackedRun":
        """Build the logger and start a new run, or continue an earlier run.

        Args:
            settings: Settings of the logger, in the form of ``conf/logger``.
            run_id: Id of the run to continue. If None, a new run starts.
            group: Group name that all runs of a command, or of a sweep, have in common.

        Returns:
            The run.
        """
        return cls(instantiate(settings))

    @property
    def run_id(self) -> str | None:
        """Id of the run, with which a later command can continue it. None if the tracker has no run ids."""
        return None

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log the command, its configuration and the metadata of its inputs.

        Args:
            settings: Settings by name.
        """

    def log_test(self, numbers: Mapping[str, float]) -> None:
        """Log the test measures of the system that the run trained.

        Args:
            numbers: Means by log key, such as ``test/attack/ndcg@10``.
        """
        self.logger.log_metrics(dict(numbers))

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Log the numbers of the job's ``metrics.json``.

        Args:
            numbers: Numbers by log key.
        """
        self.logger.log_metrics(dict(numbers))

    def log_table(self, table: ResultTable) -> None:
        """Log a result table.

        Args:
            table: Result table.
        """

    def log_image(self, name: str, path: Path) -> None:
        """Log a plot.

        Args:
            name: Name of the plot.
            path: PNG file.
        """

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Log an input of the run.

        Args:
            artifact: Data set or checkpoint.
        """

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Log an output of the run.

        Args:
            artifact: Checkpoint or report.
        """

    def close(self, *, failed: bool) -> None:
        """End the run.

        Args:
            failed: Whether the command failed.
        """
        self.logger.finalize("failed" if failed else "success")
