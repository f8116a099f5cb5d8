"""Train with a loss function of your own.

Usage: python examples/custom_loss.py [--epochs 3]

A loss is a function of padded scores, relevance and mask, each of shape `[num_queries, num_candidates]`, that returns a
scalar tensor. The mask is True for candidates and False for padding.
"""

import argparse

import torch
from torch import Tensor

from graphrerank import FitSettings, evaluate, fit


def pairwise_margin_loss(scores: Tensor, relevance: Tensor, mask: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean hinge loss over pairs of a more and a less relevant candidate.

    Args:
        scores: Scores of the model.
        relevance: Graded relevance; 0 is not relevant.
        mask: True for candidates.
        margin: Difference of scores from which a pair costs nothing.
    """
    is_pair = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    violation = torch.relu(margin - (scores[:, :, None] - scores[:, None, :]))
    return torch.where(is_pair, violation, 0.0).sum() / is_pair.sum().clamp(min=1)


def main() -> None:
    """Train one reranker with our listwise loss and one with the function above, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split")
    arguments = parser.parse_args()

    settings = FitSettings(max_epochs=arguments.epochs, num_queries=arguments.num_queries)
    rerankers = {
        name: fit(arguments.data, loss=loss, name=name, retriever="bm25", encoder=None, settings=settings)
        for name, loss in (("listwise", "listwise"), ("margin", pairwise_margin_loss))
    }
    result = evaluate(rerankers, arguments.data, retriever="bm25", num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
