"""Runs of Lightning's ``CSVLogger``, which only records curves."""

from lightning.pytorch.loggers import CSVLogger

from graphrerank.cli.tracking.base import TrackedRun


class CSVRun(TrackedRun):
    """Run that writes ``metrics.csv`` with one row per logged step. Results are in ``metrics.json`` and the report."""

    logger_class = CSVLogger
    keeps_results = False
