"""Compare two systems on a data set, with significance tests and a report.

Usage: python examples/evaluate_two_systems.py [--data attack_paths] [--report report]

A system is a reranker, the path or name of a checkpoint, or a TREC run file of any other tool.
"""

import argparse
from pathlib import Path

from graphrerank import Dataset, evaluate
from graphrerank.data.loaders.attack import load_attack_paths


def main() -> None:
    """Rank, measure, test, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="data set folder; default: MITRE ATT&CK")
    parser.add_argument("--checkpoint", default="base", help="run folder, .ckpt file, name or hub id")
    parser.add_argument("--num-queries", type=int, default=300)
    parser.add_argument("--report", type=Path, default=Path("report"), help="folder for report.html and its tables")
    arguments = parser.parse_args()

    data = load_attack_paths() if arguments.data is None else Dataset.from_folder(arguments.data)
    result = evaluate(
        {"reranker": arguments.checkpoint},
        data,
        split="test",
        retriever="bm25",
        edge_ablations=["removed"],  # the same checkpoint without edges: what does the graph contribute?
        num_queries=arguments.num_queries,
    )
    result.show()
    result.save_report(arguments.report)
    print(f"Wrote {arguments.report / 'report.html'}.")


if __name__ == "__main__":
    main()
