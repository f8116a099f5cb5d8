"""Judge a checkpoint on data sets: ``python evaluate.py checkpoint=RUN 'datasets=[attack]'``."""

import sys

import hydra
from omegaconf import DictConfig

from graphrerank.cli import schema
from graphrerank.cli.arguments import read_arguments

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    """Run the job: by default judge, print the tables and the run folder."""
    from graphrerank.cli.jobs import run_job
    from graphrerank.cli.session import Session

    run_job(cfg, schema.EvaluateConfig, Session)


if __name__ == "__main__":
    sys.argv[1:] = read_arguments(sys.argv[1:])
    main()
