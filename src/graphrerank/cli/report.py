"""``graphrerank report``: compare finished runs without ranking again, or aggregate training runs over their seeds."""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from graphrerank.installation.extras import require_extra

if TYPE_CHECKING:
    from graphrerank.evaluation.result import EvaluationResult
    from graphrerank.evaluation.seeds import SeedReport


def parser() -> ArgumentParser:
    """Return the argument parser of the command."""
    parser = ArgumentParser(
        "graphrerank report",
        description="Compare finished runs of graphrerank evaluate query by query, or aggregate runs of graphrerank "
        "train over their seeds. Runs are aggregated if a folder of a sweep is named, or if runs differ only in their "
        "seeds.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        help="run folders, folders of sweeps, or patterns such as 'runs/train/2026-11-*'; in a comparison, the last "
        "system of the last run is compared with all others",
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: runs/report/<time>)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--seeds", action="store_true", help="aggregate training runs over their seeds")
    kind.add_argument("--compare", action="store_true", help="compare the systems of all runs query by query")
    parser.add_argument(
        "--tested",
        nargs="+",
        default=[],
        metavar="MEASURE",
        help="measures to run significance tests on (default: those of the first run; nDCG@10 and PR@10 over seeds)",
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=10_000,
        help="number of sign flips of a test, and of bootstrap samples of an interval (default: 10000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed for resampling (default: 0)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Compare finished runs, or aggregate training runs over their seeds, and write the report.

    The functions are :func:`~graphrerank.evaluation.compare.compare_runs` and
    :func:`~graphrerank.evaluation.seeds.aggregate_runs`.

    Args:
        arguments: Command-line arguments after the name of the command.

    Returns:
        Exit status.
    """
    parsed = parser().parse_args(arguments)
    require_extra("train", "graphrerank report")
    from graphrerank.evaluation.seeds import matching_paths
    from graphrerank.utils.files import claim_folder

    runs = [path for run in parsed.runs for path in matching_paths(run) or [Path(run)]]
    is_aggregated = parsed.seeds or (not parsed.compare and varies_seeds(runs))
    result = aggregate(runs, parsed) if is_aggregated else compare(runs, parsed, arguments)
    folder = parsed.out or claim_folder(Path("runs", "report", f"{datetime.now():%Y-%m-%d_%H-%M-%S}"))
    result.save(folder)
    result.show()
    print(folder)
    return 0


def varies_seeds(runs: Sequence[Path]) -> bool:
    """Return whether to aggregate: whether a path is a sweep, or runs differ only in their seeds.

    Args:
        runs: Paths of runs.
    """
    from graphrerank.evaluation.seeds import group_runs, model_folders, read_trained_run
    from graphrerank.models.manifest import MANIFEST

    if any(any(run.glob(f"*/*/{MANIFEST}")) for run in runs):
        return True
    trained = [run for run in runs if any(run.glob(f"*/{MANIFEST}"))]
    models = [read_trained_run(folder) for folder in model_folders(trained)]
    validated = [model for model in models if model is not None]
    return bool(validated) and any(len(group.seeds) > 1 for group in group_runs(validated))


def aggregate(runs: Sequence[Path], parsed: Namespace) -> "SeedReport":
    """Aggregate training runs over their seeds.

    Args:
        runs: Folders of runs and sweeps.
        parsed: Parsed arguments of the command.

    Returns:
        Means, standard deviations and comparisons.
    """
    from graphrerank.evaluation.seeds import TEST_MEASURES, aggregate_runs

    return aggregate_runs(runs, measures=parsed.tested or TEST_MEASURES)


def compare(runs: Sequence[Path], parsed: Namespace, arguments: Sequence[str]) -> "EvaluationResult":
    """Compare finished runs query by query.

    Args:
        runs: Run folders.
        parsed: Parsed arguments of the command.
        arguments: Command-line arguments, for the report.

    Returns:
        Combined result.
    """
    from graphrerank.evaluation.compare import compare_runs
    from graphrerank.evaluation.result import EvaluationResult

    names = [folder.name for folder in runs]
    folders = {folder.name if names.count(folder.name) == 1 else str(folder): folder for folder in runs}
    results = {run: EvaluationResult.load(folder) for run, folder in folders.items()}
    command = shlex.join(["graphrerank", "report", *arguments])
    return compare_runs(results, command=command, tested=parsed.tested, resamples=parsed.resamples, seed=parsed.seed)
