"""Time an epoch of training for several settings of the loading of batches.

``python benchmarks/loading.py`` prints the time of an epoch relative to the default (32 queries per batch, built in the
training process), the number of batches, and the largest batch. The settings take turns in one process, so that a busy
machine slows all of them alike. ``--accelerator gpu`` trains on a GPU, where processes build batches while it computes.
"""

import argparse
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
from interleaved import median_seconds

from graphrerank import FitSettings, RerankerTrainer
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.training.trainer import BuiltTraining

#: Settings by name of the row. The first row is the default.
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "num_workers=1": {"num_workers": 1},
    "num_workers=2": {"num_workers": 2},
    "num_workers=2 prefetch=8": {"num_workers": 2, "prefetch": 8},
    "batch_size=8": {"batch_size": 8},
    "batch_size=128": {"batch_size": 128},
    "max_nodes=3200": {"max_nodes": 3200},
    "max_nodes=3200 max_edges=4000": {"max_nodes": 3200, "max_edges": 4000},
}


def epoch_of(trainer: RerankerTrainer, training: BuiltTraining, data: CandidateDataModule, accelerator: str) -> None:
    """Train one epoch without validation."""
    lightning = L.Trainer(
        max_epochs=1,
        accelerator=accelerator,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
    )
    lightning.fit(trainer.build_module(training), datamodule=data)


def main() -> None:
    """Prepare the data once, time an epoch of each setting in turn, and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--num-queries", type=int, default=1000, help="queries per split")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--accelerator", default="cpu")
    arguments = parser.parse_args()
    with TemporaryDirectory() as run_dir:
        settings = FitSettings(num_queries=arguments.num_queries)
        create = partial(RerankerTrainer, retriever="bm25", encoder=None, features="scores", run_dir=run_dir)
        prepared = create("gatv2", settings, arguments.data).prepare()
        epochs: dict[str, Callable[[], None]] = {}
        loaded: dict[str, CandidateDataModule] = {}
        for name, changes in SETTINGS.items():
            trainer = create("gatv2", settings.with_changes(**changes), prepared)
            training = trainer.build(prepared)
            loaded[name] = trainer.build_batches(training)
            epochs[name] = partial(epoch_of, trainer, training, loaded[name], arguments.accelerator)
        seconds = median_seconds(epochs, repeats=arguments.repeats)
    print("| setting | time of an epoch | batches | nodes of the largest batch | edges of the largest batch |")
    print("| --- | --: | --: | --: | --: |")
    for name, data in loaded.items():
        data.trainer = None
        batches = list(data.train_dataloader())
        nodes, edges = (
            max(sizes) for sizes in zip(*((b.num_nodes, b.edge_index.shape[1]) for b in batches), strict=True)
        )
        ratio = seconds[name] / seconds["default"]
        print(f"| {name} | {ratio:.2f} | {len(batches)} | {nodes:,} | {edges:,} |")


if __name__ == "__main__":
    main()
