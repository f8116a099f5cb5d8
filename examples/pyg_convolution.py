"""Train a reranker whose layers are a PyTorch Geometric convolution.

Usage: python examples/pyg_convolution.py [--conv SAGEConv] [--epochs 3]

`conv` names a class of `torch_geometric.nn`. A convolution that cannot be used is refused before training,
with the reason.
"""

import argparse

from graphrerank import FitSettings, evaluate, fit


def main() -> None:
    """Train with the convolution and with our GATv2 layer, and compare both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--conv", default="SAGEConv", help="class of torch_geometric.nn")
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split")
    arguments = parser.parse_args()

    settings = FitSettings(max_epochs=arguments.epochs, num_queries=arguments.num_queries)
    pyg_model = {
        "_target_": "graphrerank.models.pyg_reranker.PyGReranker",
        "conv": arguments.conv,
        "hidden_channels": 32,
        "num_layers": 2,
    }
    rerankers = {
        name: fit(
            arguments.data, model=model, name=name, retriever="bm25", encoder=None, features="scores", settings=settings
        )
        for name, model in (("gatv2", "gatv2"), (arguments.conv.lower(), pyg_model))
    }
    result = evaluate(rerankers, arguments.data, retriever="bm25", num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
