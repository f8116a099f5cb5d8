"""``graphrerank push MODEL OWNER/NAME``: upload a model with a model card to the Hugging Face hub or a mirror."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    described = argparse.ArgumentParser(prog="graphrerank push", description=__doc__)
    described.add_argument("model", help="run folder, .ckpt file, artifact or name of a shipped checkpoint")
    described.add_argument("repository", metavar="OWNER/NAME", help="repository, which is created if it does not exist")
    described.add_argument("--license", required=True, help="licence of the weights, such as apache-2.0")
    described.add_argument("--public", action="store_true", help="make a new repository visible to everybody")
    described.add_argument(
        "--run",
        type=Path,
        action="append",
        default=[],
        help="run folder of `graphrerank evaluate` whose measures are added to the card; may be repeated",
    )
    return described


def main(arguments: Sequence[str]) -> int:
    """Upload a model (:meth:`~graphrerank.GraphReranker.push_to_hub`), and print the address of its repository.

    The token of ``hf auth login`` or of the environment variable ``HF_TOKEN`` is used, and ``HF_ENDPOINT`` selects a
    mirror of the hub.

    Args:
        arguments: Command-line arguments after the name of the command.

    Returns:
        Exit status.
    """
    parsed = parser().parse_args(arguments)
    from graphrerank.rerank.graph_reranker import GraphReranker

    reranker = GraphReranker.from_pretrained(parsed.model)
    address = reranker.push_to_hub(
        parsed.repository, license_name=parsed.license, private=not parsed.public, runs=parsed.run
    )
    print(f"uploaded {reranker.name} to {address}")
    return 0
