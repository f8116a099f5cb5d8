"""Train with plain Lightning, then test, predict and reload the module.

Usage: python examples/test_and_predict.py [--epochs 2]

`Trainer.predict` returns the ranked passages of each query with probabilities of relevance, and the callback
`TrecRunWriter` writes them as a TREC run.
"""

import argparse

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint

from graphrerank.config.components import ComponentFactory
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.loaders.attack import load_attack_paths
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.training import RerankerModule, TrecRunWriter


def main() -> None:
    """Train, load the best epoch, measure it on the test split, and print the first ranking."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()

    L.seed_everything(0)
    prepared = ComponentFactory().prepare(load_attack_paths(), retriever="bm25", reads_vectors=False)
    model = GATv2Reranker(features="scores", num_scores=len(prepared.feature_names))
    module = RerankerModule(model, listwise_softmax_cross_entropy, learning_rate=1e-3)
    batches = CandidateDataModule(prepared, batch_size=32, inputs=model.inputs, test_split="test")

    best = ModelCheckpoint(monitor="val/ndcg@10", mode="max")
    trainer = L.Trainer(
        max_epochs=arguments.epochs,
        limit_train_batches=20,
        limit_val_batches=5,
        limit_test_batches=5,
        limit_predict_batches=5,
        accelerator="cpu",
        logger=False,
        default_root_dir="runs/test_and_predict",
        callbacks=[best, TrecRunWriter("predictions.trec", tag="mine")],
    )
    trainer.fit(module, batches)

    # The checkpoint contains the names and settings of model and loss. No code from it is executed.
    module = RerankerModule.load_from_checkpoint(best.best_model_path)
    (measures,) = trainer.test(module, batches, verbose=False)
    print(f"Test nDCG@10: {measures['test/ndcg@10']:.4f}")

    first = trainer.predict(module, batches)[0][0]
    print(f"Query {first.query_id}:")
    for passage, probability in zip(first.passage_ids[:3], first.probabilities.tolist(), strict=False):
        print(f"  {passage}  {probability:.0%}")


if __name__ == "__main__":
    main()
