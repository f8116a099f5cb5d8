"""Tracking of the inputs, results and outputs of commands in W&B, MLflow, TensorBoard or any Lightning logger.

``session.py`` opens the loggers of a command and sends its results. ``base.py`` defines the base class of all trackers;
each tracker overrides it in a separate file. ``results.py`` reads the results of a job from its run folder.
"""

from graphrerank.cli.tracking.session import Tracking

__all__ = ["Tracking"]
