"""Judge a checkpoint on data sets: ``python evaluate.py checkpoint=RUN 'datasets=[attack]'``."""

import hydra
from omegaconf import DictConfig

from graphrerank.doors import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    """Judge, print the tables and the run folder."""
    from graphrerank.doors.evaluate import evaluate  # heavy: not for --help

    schema.check_keys(cfg, schema.EvaluateConfig)
    evaluate(cfg)


if __name__ == "__main__":
    main()
