"""The files of a study in a run folder: ``study.json``, ``report.md``, ``report.html`` and plots."""

from pathlib import Path
from tempfile import TemporaryDirectory

from graphrerank.evaluation.html.page import render_html
from graphrerank.evaluation.plots import write_plots
from graphrerank.evaluation.study import Study, write_study
from graphrerank.evaluation.study_report import render_study
from graphrerank.files import copy_file, write_text


def write_study_files(run_dir: Path, study: Study) -> None:
    """Render ``report.md``, ``report.html`` and ``plots/*.png``, then write them: if one fails, no file is left."""
    texts = {"report.md": render_study(study), "report.html": render_html(study)}
    with TemporaryDirectory() as drawn:
        plots = write_plots(Path(drawn), study)
        write_study(run_dir, study)
        for name, text in texts.items():
            write_text(run_dir / name, text)
        for plot in plots:
            copy_file(plot, run_dir / "plots" / plot.name)
