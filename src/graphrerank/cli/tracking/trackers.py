"""Selection of the tracker of a Lightning logger."""

from hydra.utils import get_object
from omegaconf import DictConfig

from graphrerank.cli.tracking.base import TrackedRun
from graphrerank.cli.tracking.csv_run import CSVRun
from graphrerank.cli.tracking.mlflow_run import MLflowRun
from graphrerank.cli.tracking.tensorboard_run import TensorBoardRun
from graphrerank.cli.tracking.wandb_run import WandbRun
from graphrerank.installation.extras import EXTRAS, require_extra
from graphrerank.utils.checks import UserError

TRACKERS: tuple[type[TrackedRun], ...] = (WandbRun, MLflowRun, TensorBoardRun, CSVRun)


def tracker_of(settings: DictConfig) -> type[TrackedRun]:
    """Return the tracker class of a logger.

    Args:
        settings: Settings of the logger. ``_target_`` is the logger's class, or a function that builds the logger.

    Returns:
        The class in :data:`TRACKERS` that supports the logger, otherwise the base class.

    Raises:
        UserError: If ``_target_`` cannot be imported.
    """
    try:
        target = get_object(str(settings._target_))
    except (ImportError, ValueError) as error:
        raise UserError(
            f"`_target_` of a logger must be a Lightning logger, got {settings._target_!r}: {error}"
        ) from error
    fitting = (each for each in TRACKERS if isinstance(target, type) and issubclass(target, each.logger_class))
    return next(fitting, TrackedRun)


def check_loggers(loggers: DictConfig | None) -> None:
    """Check that the packages of all loggers are installed.

    Args:
        loggers: Settings of each logger by name, or None.

    Raises:
        MissingExtraError: If a package is not installed.
    """
    for settings in (loggers or {}).values():
        extra = tracker_of(settings).extra
        if extra is not None:
            require_extra(extra, EXTRAS[extra].purpose)
