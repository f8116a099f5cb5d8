"""``python evaluate.py``: evaluate checkpoints, pipelines and run files on data sets, and print a table of each."""

from pathlib import Path

from graphrerank.cli.lineup import read_lineup
from graphrerank.cli.ranking import Rankings
from graphrerank.cli.results import Results
from graphrerank.cli.session import Session
from graphrerank.evaluation.build_study import build_study


def evaluate(session: Session) -> Path:
    """Evaluate all systems that the command names on every data set; the last one is compared with the others."""
    lineup = read_lineup(session)
    results = Results(session, lineup.plan, prompts=lineup.prompts)
    for ranked in Rankings(session, lineup):
        stages = []
        if lineup.answers is not None:
            stages = [lineup.answers(ranked, run_dir=session.run_dir, seed=lineup.plan.seed)]
        results.add(build_study(ranked, lineup.plan, stages), ranked.dataset.graph.node_ids)
    return session.run_dir
