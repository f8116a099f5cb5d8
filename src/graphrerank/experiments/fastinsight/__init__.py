"""FastInsight's curves."""

from graphrerank.experiments.fastinsight.job import FastInsightCurves

__all__ = ["FastInsightCurves"]
