"""What a study leaves in a run folder."""

from pathlib import Path

from graphrerank.evaluation.html import render_html
from graphrerank.evaluation.plots import write_plots
from graphrerank.evaluation.study import Study, write_study
from graphrerank.files import write_text


def write_study_files(run_dir: Path, study: Study) -> None:
    """Write ``study.json``, ``report.html`` and ``plots/*.png``."""
    write_study(run_dir, study)
    write_text(run_dir / "report.html", render_html(study))
    write_plots(run_dir / "plots", study)
