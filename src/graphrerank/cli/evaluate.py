"""``python evaluate.py``: judge checkpoints, pipelines and run files on data sets, and print a table of each."""

from pathlib import Path

from graphrerank.cli.lineup import read_lineup
from graphrerank.cli.ranking import Rankings
from graphrerank.cli.results import Results
from graphrerank.cli.session import Session
from graphrerank.evaluation import build_study


def evaluate(session: Session) -> Path:
    """Judge all systems that the command names on every data set; the last one is compared with the others.

    Returns:
        The run folder.

    Raises:
        ValueError: If the systems or data sets cannot be read (:func:`read_lineup`), or do not fit (:class:`Rankings`).
    """
    lineup = read_lineup(session)
    results = Results(session, lineup.plan)
    for ranked in Rankings(session, lineup):
        results.add(build_study(ranked, lineup.plan), ranked.dataset.graph.node_ids)
    return session.run_dir
