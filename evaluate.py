"""Judge a checkpoint on data sets: ``python evaluate.py checkpoint=RUN 'datasets=[attack]'``."""

import sys

import hydra
from omegaconf import DictConfig

from graphrerank.doors import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    """Judge, print the tables and the run folder."""
    schema.check_keys(cfg, schema.EvaluateConfig)
    if cfg.report:
        from graphrerank.doors.compare import compare

        compare(cfg)
    elif cfg.verify is not None:
        from graphrerank.doors.verify import verify

        if verify(cfg):
            sys.exit(1)
    elif cfg.curves is not None:
        from graphrerank.doors.curves import write_curves

        write_curves(cfg)
    elif cfg.routing is not None:
        from graphrerank.doors.routing import judge_routing

        judge_routing(cfg)
    elif cfg.ket is not None:
        from graphrerank.doors.ket import judge_ket

        judge_ket(cfg)
    elif cfg.retag is not None:
        from graphrerank.doors.retag import judge_retag

        judge_retag(cfg)
    else:
        from graphrerank.doors.evaluate import evaluate  # heavy: not for --help

        evaluate(cfg)


if __name__ == "__main__":
    sys.argv[1:] = [schema.list_override(argument, "report") for argument in sys.argv[1:]]
    main()
