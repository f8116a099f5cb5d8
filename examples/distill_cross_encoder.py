"""Train a reranker on what a cross-encoder says about questions without judgements.

Usage: python examples/distill_cross_encoder.py --teacher cross-encoder/ms-marco-MiniLM-L12-v2

The cross-encoder reads the candidates of the training and validation questions once, and its scores are cached. The
reranker learns to order candidates like the cross-encoder (loss `kl`), from scores and edges alone, so it needs
neither a GPU nor the cross-encoder afterwards.
"""

import argparse
from dataclasses import replace

from graphrerank import FitSettings, evaluate, fit
from graphrerank.config.components import ComponentFactory
from graphrerank.data.dataset import Dataset
from graphrerank.data.teachers import CrossEncoderTeacher
from graphrerank.operators.cross_encoder import CrossEncoder


def without_training_judgements(dataset: Dataset) -> Dataset:
    """Return the data set without judgements of its training questions, as if nobody had judged them."""
    return replace(dataset, splits={name: qrels for name, qrels in dataset.splits.items() if name != "train"})


def main() -> None:
    """Train without judged training questions, and with judgements and the teacher together, and compare both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--teacher", required=True, help="folder or hub id of a cross-encoder")
    parser.add_argument("--max-length", type=int, default=128, help="tokens of a question and a passage")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-queries", type=int, default=200, help="queries per split")
    arguments = parser.parse_args()

    dataset = ComponentFactory().dataset(arguments.data)
    teacher = CrossEncoderTeacher(
        pair_encoder=CrossEncoder(arguments.teacher, max_length=arguments.max_length), top_k=10
    )
    settings = FitSettings(max_epochs=arguments.epochs, num_queries=arguments.num_queries)
    unjudged = without_training_judgements(dataset)
    rerankers = {
        name: fit(data, loss=loss, teacher=teacher, name=name, retriever="bm25", encoder=None, settings=settings)
        for name, data, loss in (
            ("distilled", unjudged, "kl"),
            ("judged_and_distilled", dataset, {"listwise": 1.0, "kl": 0.5}),
        )
    }
    result = evaluate(rerankers, dataset, retriever="bm25", num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
