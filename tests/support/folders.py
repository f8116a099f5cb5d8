"""Data set folders, written as users write them."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

HEADERS = {"edges": "source\ttarget\ttype", "qrels": "query-id\tcorpus-id\tscore"}
LAST_COLUMNS = {"edges": "link", "qrels": 1}  # of rows that leave it out
Table = str | bytes | Iterable[Mapping[str, Any]] | Iterable[tuple[Any, ...]] | None
Write = Callable[..., Path]


def write_dataset(folder: Path, **tables: Table) -> Path:
    """Write a data set folder, and return it.

    ``tables`` are ``corpus`` and ``queries`` as records, ``edges`` and the judgements of each split as rows, whose last
    column may be left out; any of them as text or bytes instead. None: no such file.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if table is not None:
            records = name in ("corpus", "queries")
            path = folder / f"{name}.{'jsonl' if records else 'tsv'}"
            kind = "edges" if name == "edges" else "qrels"
            path = path if records or kind == "edges" else folder / "qrels" / path.name
            path.write_bytes(_content(table, kind))
    return folder


def _content(table: Any, kind: str) -> bytes:
    if isinstance(table, bytes):
        return table
    if isinstance(table, str):
        return table.encode()
    entries = list(table)
    if not entries or isinstance(entries[0], Mapping):
        return "".join(json.dumps(record) + "\n" for record in entries).encode()
    rows = [(*row, LAST_COLUMNS[kind]) if len(row) == 2 else row for row in entries]
    return "".join(f"{line}\n" for line in [HEADERS[kind], *("\t".join(map(str, row)) for row in rows)]).encode()


@pytest.fixture
def write_folder(tmp_path: Path) -> Write:
    """Write a small data set folder; each table can be replaced, or left out with None."""

    def write(path: Path = tmp_path / "small", **tables: Table) -> Path:
        content: dict[str, Any] = {
            "corpus": [
                {"_id": "a", "title": "Ant", "text": "An insect."},
                {"_id": "b", "title": "", "text": "A bird."},
                {"_id": "c", "title": "Cat", "text": ""},
                {"_id": "d d", "text": "A dog.", "metadata": {"split": "dev"}},
            ],
            "queries": [
                {"_id": "q1", "text": "Which insect?"},
                {"_id": "q2", "text": "Which pets?", "metadata": {"kind": "list"}},
                {"_id": "q3", "text": "Nothing?"},
            ],
            "edges": [("a", "b", "likes"), ("c", "d d", "hates")],
            "train": [("q1", "a"), ("q1", "b", 0)],
            "test": [("q2", "c", 2), ("q2", "d d")],
        }
        return write_dataset(path, **content | tables)

    return write


DIRECTORS = [
    f"{first} {second}" for first in ("Anna", "Boris", "Clara", "Dora") for second in ("Adler", "Blum", "Czerny")
]


def write_films(folder: Path, *, edges: bool, judged: bool, questions: bool = True) -> Path:
    """Write a folder of twelve films, each naming its director, and twelve people, with a question about each film."""
    films = [
        {"_id": f"f{i}", "title": f"Film {i}", "text": f"It was directed by {name}."}
        for i, name in enumerate(DIRECTORS)
    ]
    people = [{"_id": f"p{i}", "title": name, "text": f"Born in town {i * 7}."} for i, name in enumerate(DIRECTORS)]
    queries = [{"_id": f"q{i}", "text": f"Where was the director of Film {i} born?"} for i in range(len(DIRECTORS))]
    rows = [(f"q{i}", f"{kind}{i}") for i in range(len(DIRECTORS)) for kind in "fp"]
    return write_dataset(
        folder,
        corpus=[*films, *people],
        queries=queries if questions else None,
        edges=[(f"f{i}", f"p{i}", "mentions") for i in range(len(DIRECTORS))] if edges else None,
        **({"all": rows} if judged else {}),
    )


def write_word_pairs(folder: Path, num_words: int, **judgements: Any) -> Path:
    """Write a data set of pairs of linked passages with one word, and of a question about each word."""
    words = [f"word{number}" for number in range(num_words)]
    corpus = [{"_id": f"a{n}", "title": "", "text": f"about {word}"} for n, word in enumerate(words)]
    corpus += [{"_id": f"b{n}", "title": "", "text": f"more about {word} and so on"} for n, word in enumerate(words)]
    queries = [{"_id": f"q{n}", "text": f"what of {word}?"} for n, word in enumerate(words)]
    edges = [(f"a{n}", f"b{n}", "link") for n in range(num_words)]
    return write_dataset(folder, corpus=corpus, queries=queries, edges=edges, **judgements)
