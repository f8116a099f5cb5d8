"""The benchmark that others can run, beside what is published."""

from graphrerank.experiments.benchmark.job import Benchmark

__all__ = ["Benchmark"]
