"""``python evaluate.py report=RUN1,RUN2``: finished runs side by side, without ranking anything again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from graphrerank.cli.session import Session
from graphrerank.cli.study_files import write_study_files
from graphrerank.evaluation.compare_runs import compare_runs
from graphrerank.evaluation.study import Study, read_study
from graphrerank.evaluation.study_report import print_study, render_study
from graphrerank.files import write_text


def compare(session: Session) -> Path:
    """Compare finished runs and return the folder of the report.

    Raises:
        ValueError: If a folder holds no finished run, or the runs cannot be compared (:func:`compare_runs`).
    """
    cfg, run_dir = session.cfg, session.run_dir
    command = shlex.join(["python", "evaluate.py", f"report={','.join(cfg.report)}"])
    study = compare_runs(_read_all([Path(folder) for folder in cfg.report]), command=command)
    write_study_files(run_dir, study)
    write_text(run_dir / "report.md", render_study(study))
    for dataset in study.datasets.values():
        print_study(dataset, ties=study.settings["ties"])
    return run_dir


def _read_all(folders: Sequence[Path]) -> dict[str, Study]:
    """Read studies by the names of their folders, or by their paths where two have one name."""
    names = [folder.name for folder in folders]
    studies = {}
    for folder, name in zip(folders, names, strict=True):
        studies[name if names.count(name) == 1 else str(folder)] = read_study(folder)
    return studies
