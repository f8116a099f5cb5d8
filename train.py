"""Train a graph reranker: ``python train.py``; every setting is in ``conf/train.yaml``."""

import hydra
from omegaconf import DictConfig

from graphrerank.doors import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """Train, judge, print the table and the run folder."""
    from graphrerank.doors.train import train  # heavy: not for --help

    schema.check_keys(cfg, schema.TrainConfig)
    train(cfg)


if __name__ == "__main__":
    main()
