"""Commands in this process: what they set for all of it is taken back, and their pictures may be left blank."""

import logging
import os
import random
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from graphrerank.utils.files import write_bytes

if TYPE_CHECKING:
    from graphrerank.evaluation.plots import Picture
    from graphrerank.training.callbacks import LearningCurves

GET_MODE = Hydra.get_mode
SETS_MODE = re.compile(r"hydra\.mode|hparams_search=").search  # overrides that can set `hydra.mode`
TIMED = 4  # queries of each system
BLANK_PNG = b"\x89PNG\r\n\x1a\n"


@contextmanager
def isolated(environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Give a command an environment and a working folder, and take back all that it sets for the whole process.

    Its warnings go to standard error, as those of a process do.
    """
    hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    main, arguments = sys.modules["__main__"], sys.argv
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    levels = [(logger, logger.level, logger.disabled) for logger in (logging.root, *loggers)]
    handlers = list(logging.root.handlers)
    random_states = (random.getstate(), np.random.get_state(), torch.get_rng_state())
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    GlobalHydra.instance().clear()
    try:
        with (
            patch.dict(os.environ, environment),
            patch.object(Hydra, "get_mode", mode_of_overrides),
            chdir(folder),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("default")
            yield
        for each in caught:
            text = warnings.formatwarning(each.message, each.category, each.filename, each.lineno, each.line)
            sys.stderr.write(text)
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra, config
        sys.modules["__main__"], sys.argv = main, arguments
        logging.root.handlers[:] = handlers
        for logger, level, disabled in levels:
            if logger.level != level:  # setLevel clears the caches of all loggers
                logger.setLevel(level)
            logger.disabled = disabled
        random.setstate(random_states[0])
        np.random.set_state(random_states[1])
        torch.set_rng_state(random_states[2])
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic)


def mode_of_overrides(hydra: Hydra, config_name: str | None, overrides: list[str]) -> Any:
    """Return ``hydra.mode`` as Hydra does, which composes all settings once more for it, a fifth of a small training.

    Of the files of ``conf``, only those of ``hparams_search`` set it, so it is None unless an override can set it.
    """
    return GET_MODE(hydra, config_name, overrides) if any(map(SETS_MODE, overrides)) else None


@contextmanager
def blank_pictures() -> Iterator[None]:
    """Write blank pictures and draw nothing, because drawing is more than half of the time of a small evaluation.

    ``tests/evaluation/test_plots.py`` and ``tests/training/test_callbacks.py`` draw each kind of picture, and
    ``tests/cli/test_report.py`` all pictures of an evaluation.
    """
    from graphrerank.evaluation import plots  # most tests run no command
    from graphrerank.training.callbacks import LearningCurves

    with patch.object(plots, "_render", _render_blank), patch.object(LearningCurves, "_draw", draw_blank):
        yield


@contextmanager
def few_timed() -> Iterator[None]:
    """Time a few queries of each system in the place of some hundred; tests of :mod:`latency` have the others."""
    from graphrerank.evaluation import latency
    from graphrerank.evaluation.runners import checkpoint, pipeline

    with (
        patch.object(latency, "LATENCY_QUERIES", TIMED),
        patch.object(latency, "WARM_UP", 1),
        patch.object(checkpoint, "WARM_UP", 1),
        patch.object(pipeline, "NUM_TIMED", TIMED),
    ):
        yield


def _render_blank(picture: "Picture", form: str, title: str = "") -> bytes:
    return b'<svg viewBox="0 0 1 1"></svg>' if form == "svg" else BLANK_PNG


def draw_blank(curves: "LearningCurves") -> None:
    """Write a blank picture in the place of learning curves."""
    write_bytes(curves.path, BLANK_PNG)
