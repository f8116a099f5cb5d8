"""Train a graph reranker: ``python train.py``; every setting is in ``conf/train.yaml``."""

import hydra
from omegaconf import DictConfig

from graphrerank.cli import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """Train, judge, print the table and the run folder."""
    schema.check_keys(cfg, schema.TrainConfig)
    if cfg.tables is not None:
        from graphrerank.experiments.grapher.job import write_tables

        write_tables(cfg)
    elif cfg.adapter is not None:
        from graphrerank.experiments.ea_graphrag.training_job import train_adapter

        train_adapter(cfg)
    elif cfg.calibrate is not None:
        from graphrerank.cli.calibration import calibrate_checkpoint

        calibrate_checkpoint(cfg)
    else:
        from graphrerank.cli.train import train

        train(cfg)


if __name__ == "__main__":
    main()
