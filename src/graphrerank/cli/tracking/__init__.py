"""Tracking of runs: what a command read, measured and wrote, in W&B, MLflow, TensorBoard or any Lightning logger.

``session.py`` opens the loggers of a command and sends its results. ``base.py`` says what a tracker can keep; each
tracker is one file that overrides it. ``results.py`` reads the results of a job from its run folder.
"""

from graphrerank.cli.tracking.session import Tracking

__all__ = ["Tracking"]
