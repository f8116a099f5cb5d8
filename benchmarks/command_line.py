"""Arguments that several benchmarks share. The scripts in this folder import it."""

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def add_numbers(parser: argparse.ArgumentParser, **numbers: tuple[float, str]) -> None:
    """Add options with a number, whose help shows the default.

    Args:
        parser: Parser of the command line.
        **numbers: Default and description of each option by name. The option has the type of its default.
    """
    for name, (default, description) in numbers.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"{description} (default: {default:,})",
        )


def add_datasets(parser: argparse.ArgumentParser) -> None:
    """Add ``--datasets``, the folder of the data sets.

    Args:
        parser: Parser of the command line.
    """
    parser.add_argument("--datasets", type=Path, required=True, help="folder of the data sets")


def add_run_folder(parser: argparse.ArgumentParser, name: str) -> None:
    """Add ``--folder``, the folder of the runs of a table, by default ``runs/<name>``.

    Args:
        parser: Parser of the command line.
        name: Name of the folder in ``runs``.
    """
    described = f"folder of the runs; runs that are already there are not repeated (default: runs/{name})"
    parser.add_argument("--folder", type=Path, default=Path("runs", name), help=described)


def add_page(parser: argparse.ArgumentParser, name: str) -> None:
    """Add ``--out``, the page that a benchmark writes, by default ``docs/<name>.md``.

    Args:
        parser: Parser of the command line.
        name: Name of the page in ``docs``.
    """
    described = f"page to write (default: docs/{name}.md)"
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / f"{name}.md", help=described)


def add_large_graph(parser: argparse.ArgumentParser, *, num_seeds: int, seeds: str) -> None:
    """Add the sizes of a large random graph and of the queries on it.

    Args:
        parser: Parser of the command line.
        num_seeds: Default number of seeds per query.
        seeds: Description of the seeds, in the plural.
    """
    add_numbers(
        parser,
        nodes=(400_000, "number of nodes"),
        edges=(5_800_000, "number of undirected edges"),
        queries=(32, "number of queries"),
        seeds=(num_seeds, f"number of {seeds} per query"),
    )
