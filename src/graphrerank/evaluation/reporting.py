"""Last step of an evaluation: collect the results, print the table of a data set, and write the files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphrerank.corpus.filters import Filter
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import CONFIDENCE, across_datasets
from graphrerank.models.checkpoint import library_versions


def summarize(
    datasets: Mapping[str, DatasetResult],
    plan: EvaluationPlan,
    *,
    command: str,
    config: Mapping[str, Any] | None = None,
    filter: Filter | None = None,
    counts: Mapping[str, int] | None = None,
) -> EvaluationResult:
    """Collect the results of the data sets evaluated so far, and run the tests over all of them.

    Args:
        datasets: Results by name of the data set.
        plan: Resampling and tie-breaking.
        command: Command line, for the report.
        config: Configuration of the command. If None, it is empty.
        filter: Metadata filter, or None if all passages were used.
        counts: Counts of texts and requests of an encoder behind an endpoint. None without such an encoder.

    Returns:
        Result of the evaluation.
    """
    settings: dict[str, Any] = {
        "ties": plan.ties,
        "resamples": plan.resamples,
        "level": CONFIDENCE,
        "seed": plan.seed,
    }
    if filter:
        settings["filter"] = json.dumps(filter)
    return EvaluationResult(
        command,
        dict(datasets),
        across_datasets(list(datasets.values()), permutations=plan.resamples, seed=plan.seed),
        settings,
        config or {},
        library_versions(),
        counts or {},
    )


def report_dataset(result: EvaluationResult, name: str, *, show: bool = True, run_dir: Path | None = None) -> None:
    """Print the table of a data set, and write the files of the evaluation.

    Args:
        result: Result of the evaluation.
        name: Name of the data set to print.
        show: Whether to print the table.
        run_dir: Folder for the files. If None, no files are written.
    """
    if show:
        print_result(result.datasets[name], ties=result.ties, with_legend=len(result.datasets) == 1)
    if run_dir is not None:
        result.save(run_dir)
