"""Train a reranker from Python, compare it with its retriever, and save it.

Usage: python examples/train_from_python.py [--data NAME_OR_FOLDER] [--epochs 3] [--out my_reranker]

The default data set is the MITRE ATT&CK knowledge graph, which `pip install "graphrerank[train]"` includes. A folder in
BEIR's layout with an optional `edges.tsv` works, too (docs/your_data.md).
"""

import argparse

from graphrerank import FitSettings, evaluate, fit


def main() -> None:
    """Train, evaluate and save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-queries", type=int, default=300, help="queries per split; 0 uses all of them")
    parser.add_argument("--out", default="my_reranker", help="folder for the trained reranker")
    arguments = parser.parse_args()

    # Settings that are not listed keep the defaults of `graphrerank train`; `help(FitSettings)` describes all of them.
    settings = FitSettings(
        max_epochs=arguments.epochs,
        learning_rate=1e-3,
        batch_size=16,
        num_queries=arguments.num_queries or None,
        seed=0,
    )
    # BM25 needs no text encoder. For `retriever="hybrid_expand"`, the default of `fit`, choose `encoder="minilm"`.
    reranker = fit(
        arguments.data,
        retriever="bm25",
        encoder=None,
        features="scores_match",
        model="gatv2",
        loss="listwise",
        settings=settings,
        name="my_reranker",
    )
    reranker.save(arguments.out)

    # The last system of the table is compared with the others by a paired randomization test.
    result = evaluate(
        {"base": "base", "my_reranker": reranker},
        arguments.data,
        split="test",
        retriever="bm25",
        num_queries=arguments.num_queries or None,
    )
    result.show()
    print(f"Saved the reranker in {arguments.out}.")


if __name__ == "__main__":
    main()
