"""Judge a checkpoint on data sets: ``python evaluate.py checkpoint=RUN 'datasets=[attack]'``."""

import sys

import hydra
from omegaconf import DictConfig

from graphrerank.cli import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    """Judge, print the tables and the run folder."""
    schema.check_keys(cfg, schema.EvaluateConfig)
    if cfg.report:
        from graphrerank.cli.compare import compare

        compare(cfg)
    elif cfg.verify is not None:
        from graphrerank.cli.verify import verify

        if verify(cfg):
            sys.exit(1)
    elif cfg.curves is not None:
        from graphrerank.experiments.fastinsight.job import write_curves

        write_curves(cfg)
    elif cfg.routing is not None:
        from graphrerank.experiments.ea_graphrag.benchmark_job import judge_routing

        judge_routing(cfg)
    elif cfg.ket is not None:
        from graphrerank.experiments.ket.job import judge_ket

        judge_ket(cfg)
    elif cfg.retag is not None:
        from graphrerank.experiments.retag.job import judge_retag

        judge_retag(cfg)
    else:
        from graphrerank.cli.evaluate import evaluate

        evaluate(cfg)


if __name__ == "__main__":
    sys.argv[1:] = [schema.list_override(argument, "report") for argument in sys.argv[1:]]
    main()
