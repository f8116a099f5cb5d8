"""``graphrerank build``: convert the published files of a public data set into a data set folder."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrerank.installation.extras import optional, require_extra
from graphrerank.installation.plugins import find_builder
from graphrerank.utils.caching import cache_folder
from graphrerank.utils.checks import UserError
from graphrerank.utils.safe_loading import shown_name


def parser() -> ArgumentParser:
    """Return the argument parser of the command."""
    parser = ArgumentParser(
        "graphrerank build",
        description="Convert the published files of a public data set into a data set folder.",
    )
    parser.add_argument(
        "name", help="name of the data set, such as spider, bird or hotpotqa (all names: docs/papers/builders.md)"
    )
    parser.add_argument(
        "--from",
        dest="files",
        nargs="+",
        required=True,
        help="published files: paths, archives or URLs, optionally followed by #sha256=...",
    )
    parser.add_argument("--out", type=Path, required=True, help="data set folder to write")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="option of the builder; may be repeated"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Build a data set folder, and print its counts and the number of dropped records.

    Args:
        arguments: Command-line arguments after the name of the command.

    Returns:
        Exit status.
    """
    parsed = parser().parse_args(arguments)
    require_extra("build", "graphrerank build")
    options = parse_options(parsed.option)
    card = find_builder(parsed.name)(
        parsed.files, parsed.out, downloads=cache_folder(os.environ) / "downloads", **options
    )
    counts = card["counts"]
    print(", ".join(f"{counts[kind]:,} {kind}" for kind in ("documents", "queries", "edges")))
    for split, judged in counts["qrels"].items():
        print(f"{shown_name(split)}: {judged['queries']:,} judged queries, {judged['rows']:,} judgements")
    for reason, count in card["dropped"].items():
        print(f"dropped {count:,} x {shown_name(reason)}")
    print(f"hash {card['hash']}")
    print(parsed.out)
    return 0


def parse_options(entries: Sequence[str]) -> dict[str, Any]:
    """Parse options of the form ``KEY=VALUE``.

    Args:
        entries: Options of the form ``KEY=VALUE``, whose values are YAML.

    Returns:
        Values by key.

    Raises:
        ValueError: If an option has another form or its value is not valid YAML.

    Example:
        >>> parse_options(["sample=2000", "all_pages=true", "keep_types=[ppi, target]", "dialect=oracle"])
        {'sample': 2000, 'all_pages': True, 'keep_types': ['ppi', 'target'], 'dialect': 'oracle'}
    """
    yaml = optional("yaml", "--option")
    options = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not equals:
            raise UserError(f"`--option` must be KEY=VALUE, got {entry!r}")
    return options
