"""The trackers by the class of their Lightning logger."""

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
    """Return the class that serves a logger; the base class for loggers that none of :data:`TRACKERS` names.

    Args:
        settings: Settings of the logger; ``_target_`` is its class, or a function that builds it.

    Raises:
        UserError: If ``_target_`` cannot be imported.
    """
    try:
        target = get_object(str(settings._target_))
    except (ImportError, ValueError) as error:
        raise UserError(f"`logger` must name Lightning loggers, got {settings._target_!r}: {error}") from error
    fitting = (each for each in TRACKERS if isinstance(target, type) and issubclass(target, each.logger_class))
    return next(fitting, TrackedRun)


def check_loggers(loggers: DictConfig | None) -> None:
    """Refuse a logger whose package is not installed.

    Args:
        loggers: Settings of each logger by name; None for no logger.

    Raises:
        MissingExtraError: With the line that installs the package.
    """
    for settings in (loggers or {}).values():
        extra = tracker_of(settings).extra
        if extra is not None:
            require_extra(extra, EXTRAS[extra].purpose)
