"""``graphrerank report``: compare finished runs of ``evaluate`` without ranking again."""

import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from graphrerank.installation.extras import require_extra


def parser() -> ArgumentParser:
    """Return the argument parser of the command."""
    parser = ArgumentParser("graphrerank report", description="Compare finished runs of graphrerank evaluate.")
    parser.add_argument(
        "runs", nargs="+", type=Path, help="run folders; the last system of the last run is compared with all others"
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: runs/report/<time>)")
    parser.add_argument(
        "--tested",
        nargs="+",
        default=[],
        metavar="MEASURE",
        help="measures to run significance tests on (default: those of the first run)",
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
    """Compare finished runs (:func:`~graphrerank.evaluation.compare.compare_runs`), and write the report.

    Args:
        arguments: Command-line arguments after the name of the command.

    Returns:
        Exit status.
    """
    given = parser().parse_args(arguments)
    require_extra("train", "graphrerank report")
    from graphrerank.evaluation.compare import compare_runs
    from graphrerank.evaluation.result import EvaluationResult
    from graphrerank.utils.files import claim_folder

    names = [folder.name for folder in given.runs]
    folders = {folder.name if names.count(folder.name) == 1 else str(folder): folder for folder in given.runs}
    results = {run: EvaluationResult.load(folder) for run, folder in folders.items()}
    command = shlex.join(["graphrerank", "report", *arguments])
    result = compare_runs(results, command=command, tested=given.tested, resamples=given.resamples, seed=given.seed)
    folder = given.out or claim_folder(Path("runs", "report", f"{datetime.now():%Y-%m-%d_%H-%M-%S}"))
    result.save(folder)
    result.show()
    print(folder)
    return 0
