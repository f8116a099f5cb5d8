"""``python evaluate.py verify=RUN``: do a run again and say where it differs."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from graphrerank.cli import schema
from graphrerank.cli.evaluate import evaluate
from graphrerank.cli.places import Places
from graphrerank.cli.replay import compose_again
from graphrerank.cli.session import Session
from graphrerank.evaluation.capsule import capsule_differences, read_capsule


def verify(session: Session) -> None:
    """Run what a capsule says once more, and compare versions, configuration, data, candidates and measures.

    What else the command sets (``paths.datasets=DIR``) holds for the second run. The capsule may be a stranger's: it
    chooses among our own settings, and names no class, no package and no path that the user has not named. One line per
    difference is printed, or ``same``; with differences the command exits with status 1.

    Raises:
        ValueError: If ``verify`` is no folder of a finished run, or as :func:`compose_again`.
    """
    earlier = Path(session.cfg.verify)
    own = [override for override in session.overrides if override.split("=")[0] != "verify"]
    again = compose_again(read_capsule(earlier).overrides, own, Places(session.cache))
    HydraConfig.instance().set_config(again)
    with open_dict(again):
        del again["hydra"]
    schema.check_keys(again, schema.EvaluateConfig)
    again.paths.run_dir = str(session.run_dir)
    differences = capsule_differences(earlier, evaluate(Session(again)))
    print("\n".join([f"{earlier} differs:", *differences]) if differences else f"same as {earlier}", flush=True)
    if differences:
        sys.exit(1)
