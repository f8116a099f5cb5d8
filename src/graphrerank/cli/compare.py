"""``python evaluate.py report=RUN1,RUN2``: finished runs side by side, without ranking anything again."""

import shlex
from itertools import pairwise
from pathlib import Path

from graphrerank.cli.session import Session
from graphrerank.evaluation.capsule import CAPSULE, setting_differences
from graphrerank.evaluation.compare_runs import compare_runs
from graphrerank.evaluation.study import read_study
from graphrerank.evaluation.study_files import write_study_files
from graphrerank.evaluation.study_report import print_study

TESTS = ("tested", "resamples", "seed")  # settings that a comparison reads besides `report`


def compare(session: Session) -> Path:
    """Compare finished runs (:func:`compare_runs`) and return the folder of the report."""
    run_folders = [Path(folder) for folder in session.cfg.report]
    names = [folder.name for folder in run_folders]
    folders = {folder.name if names.count(folder.name) == 1 else str(folder): folder for folder in run_folders}
    capsules = [(run, folder) for run, folder in folders.items() if (folder / CAPSULE).is_file()]
    notes = [line for first, second in pairwise(capsules) for line in setting_differences(first, second)]
    given = [setting for setting in session.overrides if setting.split("=", 1)[0] in TESTS]
    command = shlex.join(["python", "evaluate.py", f"report={','.join(session.cfg.report)}", *given])
    study = compare_runs(
        {run: read_study(folder) for run, folder in folders.items()},
        command=command,
        tested=session.cfg.tested,
        notes=notes,
        resamples=session.cfg.resamples,
        seed=session.seed,
    )
    write_study_files(session.run_dir, study)
    for dataset in study.datasets.values():
        print_study(dataset, ties=study.settings["ties"])
    return session.run_dir
