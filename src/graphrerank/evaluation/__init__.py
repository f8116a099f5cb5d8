"""Judging systems, tuning frozen operators on validation data, and reports."""

from graphrerank.evaluation.judge import (
    DatasetResult,
    System,
    SystemResult,
    base_ranking,
    judge,
    peak_memory_mib,
    rerank,
)
from graphrerank.evaluation.report import results_table, table_rows, trec_run, write_metrics, write_trec_runs
from graphrerank.evaluation.tune import tune_restart_prob

__all__ = [
    "DatasetResult",
    "System",
    "SystemResult",
    "base_ranking",
    "judge",
    "peak_memory_mib",
    "rerank",
    "results_table",
    "table_rows",
    "trec_run",
    "tune_restart_prob",
    "write_metrics",
    "write_trec_runs",
]
