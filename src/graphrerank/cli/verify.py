"""``python evaluate.py verify=RUN``: do a run again and say where it differs."""

from pathlib import Path

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from graphrerank.cli import schema
from graphrerank.cli.evaluate import evaluate
from graphrerank.evaluation.capsule import capsule_differences, read_capsule


def verify(cfg: DictConfig) -> list[str]:
    """Run what a capsule says once more, and compare versions, configuration, data, candidates and measures.

    What else the command sets (``paths.datasets=DIR``) holds for the second run.

    Returns:
        One line per difference, which are printed, else ``same``.

    Raises:
        ValueError: If ``verify`` is no folder of a finished run.
    """
    earlier, run_dir = Path(cfg.verify), cfg.paths.run_dir
    own = [override for override in HydraConfig.get().overrides.task if override.split("=")[0] != "verify"]
    again = compose("evaluate", overrides=[*read_capsule(earlier).overrides, *own], return_hydra_config=True)
    HydraConfig.instance().set_config(again)
    with open_dict(again):
        del again["hydra"]
    schema.check_keys(again, schema.EvaluateConfig)
    again.paths.run_dir = run_dir
    differences = capsule_differences(earlier, evaluate(again))
    print("\n".join([f"{earlier} differs:", *differences]) if differences else f"same as {earlier}", flush=True)
    return differences
