"""Export and serve a checkpoint: ``python serve.py mode=export checkpoint=RUN``, ``python serve.py artifact=DIR``."""

import hydra
from omegaconf import DictConfig

from graphrerank.cli import schema

schema.register()


@hydra.main(version_base="1.3", config_path="conf", config_name="serve")
def main(cfg: DictConfig) -> None:
    """Export an artifact, or serve one over HTTP."""
    from graphrerank.cli.serve import serve

    schema.check_keys(cfg, schema.ServeConfig)
    serve(cfg)


if __name__ == "__main__":
    main()
