"""Train with an optimiser, a schedule, parameter groups and a weight average of your own.

Usage: python examples/custom_optimizer.py [--epochs 3]

On the command line, the same training is
`graphrerank train optimizer=sgd scheduler=plateau module.learning_rate=0.05 'module.parameter_groups={lin_out: 0.01}'
callbacks=ema`.
"""

import argparse
from functools import partial

import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim.lr_scheduler import StepLR

from graphrerank import FitSettings, evaluate, fit
from graphrerank.models.manifest import read_manifest
from graphrerank.training.schedules import plateau


def main() -> None:
    """Train three rerankers that differ in their optimisation only, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split")
    arguments = parser.parse_args()

    settings = FitSettings(max_epochs=arguments.epochs, num_queries=arguments.num_queries)
    train = partial(fit, arguments.data, retriever="bm25", encoder=None, settings=settings)
    rerankers = {
        # AdamW with a cosine schedule
        "default": train(name="default"),
        # any optimiser of torch, a schedule that waits for the validation, and an exponential moving average
        "sgd": train(
            name="sgd",
            optimizer=partial(torch.optim.SGD, momentum=0.9),
            scheduler=partial(plateau, patience=0),
            learning_rate=0.05,
            parameter_groups={"lin_out": 0.01},
            callbacks=[EMAWeightAveraging(decay=0.9)],
        ),
        # Muon for the matrices, and a scheduler of torch, which is updated after each epoch
        "muon": train(name="muon", optimizer="muon", scheduler=partial(StepLR, step_size=1, gamma=0.5)),
    }
    for name, reranker in rerankers.items():
        manifest = read_manifest(reranker.checkpoint.path.parent.parent).content
        print(name, manifest["optimizer"]["name"], f"{manifest['parameters']['all']:,} parameters")
    result = evaluate(rerankers, arguments.data, retriever="bm25", num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
