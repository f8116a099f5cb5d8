"""Runs of Lightning's ``CSVLogger``: curves alone, as the results are files of the same folder."""

from lightning.pytorch.loggers import CSVLogger

from graphrerank.cli.tracking.base import TrackedRun


class CSVRun(TrackedRun):
    """A ``metrics.csv``: a row per logged step; ``metrics.json`` and the report have the results."""

    logger_class = CSVLogger
    keeps_results = False
