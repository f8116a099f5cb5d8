"""Data set folders from the files that a data set's authors publish: one module for each, one writer."""

from graphrerank.data.builders.registry import BUILDERS, build_dataset

__all__ = ["BUILDERS", "build_dataset"]
