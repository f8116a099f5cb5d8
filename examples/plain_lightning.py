"""Train `RerankerModule` in a `lightning.Trainer` of your own, with your own callbacks and logger.

Usage: python examples/plain_lightning.py [--epochs 2]

`fit` builds the same objects. Use this form for a training loop that `fit` does not offer.
"""

import argparse

import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from graphrerank.config.components import ComponentFactory
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.loaders.attack import load_attack_paths
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.training import RerankerModule


def main() -> None:
    """Prepare candidates, train, and print the best validation measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()

    L.seed_everything(0)
    data = load_attack_paths()
    # The candidates of each query, with the retriever's scores as features. They are kept in the cache.
    prepared = ComponentFactory().prepare(data, retriever="bm25", reads_vectors=False)
    model = GATv2Reranker(features="scores", num_scores=len(prepared.feature_names))
    module = RerankerModule(model, listwise_softmax_cross_entropy, learning_rate=1e-3)
    batches = CandidateDataModule(prepared, batch_size=32, inputs=model.inputs)

    best = ModelCheckpoint(monitor="val/ndcg@10", mode="max", save_weights_only=True)
    trainer = L.Trainer(
        max_epochs=arguments.epochs,
        limit_train_batches=20,
        limit_val_batches=5,
        accelerator="cpu",
        logger=CSVLogger("runs", name="plain_lightning"),
        callbacks=[best, LearningRateMonitor("step")],
    )
    trainer.fit(module, batches)
    print(f"Best validation nDCG@10: {best.best_model_score:.4f} ({best.best_model_path})")


if __name__ == "__main__":
    main()
