"""Train a graph reranker: ``python train.py``; every setting is in ``conf/train.yaml``."""

import hydra
from omegaconf import DictConfig

from graphrerank.doors import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """Train, judge, print the table and the run folder."""
    schema.check_keys(cfg, schema.TrainConfig)
    if cfg.tables is not None:
        from graphrerank.doors.tables import write_tables

        write_tables(cfg)
    elif cfg.adapter is not None:
        from graphrerank.doors.adapter import train_adapter

        train_adapter(cfg)
    elif cfg.calibrate is not None:
        from graphrerank.doors.calibration import calibrate_checkpoint

        calibrate_checkpoint(cfg)
    else:
        from graphrerank.doors.train import train  # heavy: not for --help

        train(cfg)


if __name__ == "__main__":
    main()
