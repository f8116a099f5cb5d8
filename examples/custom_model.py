"""Train a reranker that is a class of your own.

Usage: python examples/custom_model.py [--epochs 3]

A model is a subclass of `graphrerank.core.Reranker`, which is a `torch.nn.Module`. Its `inputs` name the tensors that
`forward` takes. docs/extending.md lists them, and shows how to package a model so that every command knows its name.
"""

import argparse

import torch
from torch import Tensor, nn

from graphrerank import FitSettings, evaluate, fit
from graphrerank.core import ModelInputs, Reranker


class NeighbourMLP(Reranker):
    """Score a candidate by its own features and the mean of its neighbours' features."""

    inputs = ModelInputs(("base_features", "edge_index"))

    def __init__(self, *, num_scores: int, hidden_channels: int = 32) -> None:
        """Create the layers.

        Args:
            num_scores: Number of features per candidate. `fit` sets it from the retriever and `features`.
            hidden_channels: Width of the hidden layer.
        """
        super().__init__()
        self.hidden = nn.Linear(2 * num_scores, hidden_channels)
        self.score = nn.Linear(hidden_channels, 1)

    def forward(self, base_features: Tensor, edge_index: Tensor) -> Tensor:
        """Return scores `[num_nodes]` of all candidates in a batch.

        Args:
            base_features: Features `[num_nodes, num_scores]`.
            edge_index: Edges `[2, num_edges]` from source to target, by position in the batch.
        """
        source, target = edge_index[0], edge_index[1]
        total = torch.zeros_like(base_features).index_add(0, target, base_features[source])
        degree = torch.zeros_like(base_features[:, 0]).index_add(0, target, torch.ones_like(source, dtype=total.dtype))
        neighbours = total / degree.clamp(min=1).unsqueeze(1)
        return self.score(torch.relu(self.hidden(torch.cat([base_features, neighbours], dim=1)))).squeeze(1)


def main() -> None:
    """Train the model and compare it with its retriever."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split")
    arguments = parser.parse_args()

    settings = FitSettings(max_epochs=arguments.epochs, num_queries=arguments.num_queries)
    reranker = fit(arguments.data, model=NeighbourMLP, retriever="bm25", encoder=None, settings=settings)
    result = evaluate({"neighbour_mlp": reranker}, arguments.data, retriever="bm25", num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
