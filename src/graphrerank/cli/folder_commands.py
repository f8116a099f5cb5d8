"""``graphrerank index`` and ``graphrerank build``: data set folders from documents, and from authors' files."""

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

MAX_WORDS = 200


def index_command(arguments: Sequence[str]) -> int:
    """Write a folder of documents as a data set folder, print what was made and the commands that go on."""
    parser = ArgumentParser("graphrerank index", description="A data set folder from a folder of documents.")
    parser.add_argument(
        "source", type=Path, help="Markdown, HTML, text, JSON, JSONL, PDF and code, in any folders within"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write; must not exist")
    parser.add_argument("--max-words", type=int, default=MAX_WORDS, help=f"words of a passage, at most ({MAX_WORDS})")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="who reads the files (local)")
    parser.add_argument("--workers", type=int, default=2, help="of a Ray cluster (2)")
    parser.add_argument("--address", help="of a Ray cluster, `auto` for the one of this machine; else one is started")
    given = parser.parse_args(arguments)
    from graphrerank.data.documents import index_folder
    from graphrerank.data.engines import LOCAL, Engine, RayEngine

    engine: Engine = LOCAL
    if given.engine == "ray":
        engine = RayEngine(given.out.absolute().parent, workers=given.workers, address=given.address)
    with closing(engine):
        print(index_folder(given.source, given.out, max_words=given.max_words, engine=engine))
    print(f"graphrerank serve artifact=base index={given.out}    # search it, and look at the page")
    return 0


def build_command(arguments: Sequence[str]) -> int:
    """Build a public data set from its authors' files."""
    parser = ArgumentParser(
        "graphrerank build", description="A data set folder from the files that its authors publish."
    )
    parser.add_argument("name", help="spider, bird, hotpotqa, ...: docs/builders.md")
    parser.add_argument("--from", dest="files", nargs="+", required=True, help="paths, archives, URLs#sha256=...")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of this builder")
    given = parser.parse_args(arguments)
    from graphrerank.cli.build import build_folder
    from graphrerank.cli.doctor import cache_folder

    options = {}
    for option in given.option:
        key, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"`--option` must be KEY=VALUE, got {option!r}")
        options[key] = int(value) if value.isdigit() else value
    build_folder(given.name, given.files, given.out, cache=cache_folder(dict(os.environ)), options=options)
    return 0
