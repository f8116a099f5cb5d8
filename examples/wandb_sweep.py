"""Search hyperparameters with a Weights & Biases sweep, from Python.

Usage: python examples/wandb_sweep.py [--trials 10] [--project graphrerank]

A sweep needs a W&B account and a network. With `--offline`, one training with the defaults is logged locally instead.
`benchmarks/wandb_sweep.yaml` is the same sweep for `wandb sweep` and `graphrerank train`.
"""

import argparse
from typing import Any

import wandb
from lightning.pytorch.loggers import WandbLogger

from graphrerank import FitSettings, fit

SWEEP: dict[str, Any] = {
    "method": "bayes",
    "metric": {"name": "val/ndcg@10", "goal": "maximize"},
    "parameters": {
        "learning_rate": {"distribution": "log_uniform_values", "min": 3e-4, "max": 1e-2},
        "loss": {"values": ["listwise", "lambdaloss"]},
        "seed": {"values": [1, 2, 3]},
    },
}


def main() -> None:
    """Create the sweep and run trials, or run one training offline."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--project", default="graphrerank")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split")
    parser.add_argument("--offline", action="store_true", help="run one training without an account")
    arguments = parser.parse_args()

    def train() -> None:
        """Run one trial with the settings that the sweep chose."""
        with wandb.init(project=arguments.project, mode="offline" if arguments.offline else "online") as run:
            settings = FitSettings(
                max_epochs=arguments.epochs,
                num_queries=arguments.num_queries,
                learning_rate=run.config.get("learning_rate", 1e-3),
                seed=run.config.get("seed", 0),
            )
            loss = run.config.get("loss", "listwise")
            logger = WandbLogger(experiment=run)
            reranker = fit(arguments.data, loss=loss, retriever="bm25", encoder=None, settings=settings, logger=logger)
            print(f"Trained {reranker.source} with {loss}.")

    if arguments.offline:
        train()
    else:
        wandb.agent(wandb.sweep(SWEEP, project=arguments.project), function=train, count=arguments.trials)


if __name__ == "__main__":
    main()
