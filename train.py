"""Train a graph reranker: ``python train.py``; every setting is in ``conf/train.yaml``."""

import sys

import hydra
from omegaconf import DictConfig

from graphrerank.cli import schema
from graphrerank.cli.arguments import read_arguments

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """Run the job: by default train, judge, print the table and the run folder."""
    from graphrerank.cli.jobs import run_job
    from graphrerank.cli.training_session import TrainingSession

    run_job(cfg, schema.TrainConfig, TrainingSession)


if __name__ == "__main__":
    sys.argv[1:] = read_arguments(sys.argv[1:])
    main()
