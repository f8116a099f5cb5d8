"""Judging systems, tuning frozen operators on validation data, and reports."""

from graphrerank.evaluation.cost import peak_memory_mib
from graphrerank.evaluation.judge import (
    Comparison,
    DatasetResult,
    System,
    SystemResult,
    base_ranking,
    compare_with_baselines,
    judge,
    measure_queries,
    rerank,
)
from graphrerank.evaluation.judge_pipelines import PipelineResult, PipelinesResult, judge_pipelines
from graphrerank.evaluation.pipelines_report import pipelines_table, render_pipelines, write_pipeline_runs
from graphrerank.evaluation.report import results_table, table_rows, trec_run, write_metrics, write_trec_runs
from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tune import tune_restart_prob

__all__ = [
    "Comparison",
    "DatasetResult",
    "PipelineResult",
    "PipelinesResult",
    "System",
    "SystemResult",
    "base_ranking",
    "bootstrap_interval",
    "compare_with_baselines",
    "judge",
    "judge_pipelines",
    "measure_queries",
    "paired_randomization",
    "peak_memory_mib",
    "pipelines_table",
    "render_pipelines",
    "rerank",
    "results_table",
    "table_rows",
    "trec_run",
    "tune_restart_prob",
    "write_metrics",
    "write_pipeline_runs",
    "write_trec_runs",
]
