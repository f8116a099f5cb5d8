"""``python evaluate.py``: evaluate checkpoints, pipelines and run files on data sets, and print a table of each."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.jobs import run_job
from graphrerank.cli.lineup import read_lineup
from graphrerank.cli.ranking import Rankings
from graphrerank.cli.results import Results
from graphrerank.cli.schema import EvaluateConfig
from graphrerank.cli.session import Session
from graphrerank.evaluation.build_study import build_study


def run(cfg: DictConfig) -> Path | None:
    """Run the job of ``conf/evaluate.yaml``."""
    return run_job(cfg, EvaluateConfig)


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
