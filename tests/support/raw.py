"""Files as their authors publish them, made small, and the folder that a builder makes of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.installation.plugins import find_builder
from tests.support.files import write_files

Content = str | bytes | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class Built:
    """A folder that was built."""

    folder: Path
    card: dict[str, Any]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return self._lines("corpus.jsonl")

    @property
    def queries(self) -> list[dict[str, Any]]:
        return self._lines("queries.jsonl")

    @property
    def dropped(self) -> list[dict[str, Any]]:
        return self._lines("dropped.jsonl")

    @property
    def edges(self) -> list[list[str]]:
        return self._rows("edges.tsv")

    def judged(self, split: str) -> dict[str, list[str]]:
        """Relevant documents of each query."""
        found: dict[str, list[str]] = {}
        for query, doc, score in self._rows(f"qrels/{split}.tsv"):
            assert int(score) > 0
            found.setdefault(query, []).append(doc)
        return found

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def _rows(self, name: str) -> list[list[str]]:
        return [line.split("\t") for line in (self.folder / name).read_text().splitlines()[1:]]


def build(folder: Path, name: str, files: dict[str, Content], **options: Any) -> Built:
    """Write files and build a data set of them."""
    write_files(folder / "raw", {path: as_bytes(content) for path, content in files.items()})
    out = folder / "out"
    card = find_builder(name)([str(folder / "raw")], out, downloads=folder / "downloads", **options)
    return Built(out, card)


def as_bytes(content: Content) -> bytes:
    """JSON for objects and lists, UTF-8 for texts."""
    if isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def jsonl(*records: dict[str, Any]) -> str:
    """A JSON object a line."""
    return "".join(json.dumps(record) + "\n" for record in records)
