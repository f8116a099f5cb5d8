"""Entities and triples that a data set folder brings itself, for indexes that are built on knowledge."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from graphrerank.data.readers.folder import ENTITIES, read_documents
from graphrerank.data.readers.records import Record, bad_line, find_record_files, read_jsonl
from graphrerank.files import hash_files
from graphrerank.knowledge import Entity, Knowledge, Relation

TRIPLE = '"triples": [["head", "relation", "tail"], ...] of strings that are not blank'


class FileKnowledge:
    """Tells the knowledge of a data set folder's passages from its ``entities.jsonl``, in the place of an extractor.

    A line is ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``; both lists may be
    missing. Heads and tails are entities too. A passage without a line has no knowledge; passages of one text share
    theirs.

    Args:
        folder: A data set folder with ``entities.jsonl``.

    Raises:
        ValueError: When it is first asked: with file and line, if a line is not of that form, or an id is not in the
            corpus or comes twice. In :meth:`extract`: if a text is no passage of the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the corpus and the file."""
        return repr(("file knowledge", hash_files([*find_record_files(self.folder, "corpus"), self.folder / ENTITIES])))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Tell the knowledge of passages, given by the texts of their nodes."""
        known = self._known
        if stranger := next((text for text in texts if text not in known), None):
            raise ValueError(f"{self.folder}: needed texts of its passages, got {stranger[:80]!r}")
        return [known[text] for text in texts]

    @cached_property
    def _known(self) -> Mapping[str, Knowledge]:
        passage_of = {document.doc_id: document.passage for document in read_documents(self.folder)}
        said: dict[str, tuple[list[str], list[tuple[str, str, str]]]] = {text: ([], []) for text in passage_of.values()}
        seen: set[str] = set()
        path = self.folder / ENTITIES
        for line, record in read_jsonl(path):
            doc_id = record.get("_id")
            if not isinstance(doc_id, str) or doc_id not in passage_of or doc_id in seen:
                raise bad_line(path, line, needed="an `_id` of the corpus that did not come before", found=doc_id)
            seen.add(doc_id)
            names, triples = said[passage_of[doc_id]]
            names += _names(path, line, record)
            triples += _triples(path, line, record)
        return {text: _knowledge(*told) for text, told in said.items()}


def _names(path: Path, line: int, record: Record) -> list[str]:
    names = record.get("entities", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise bad_line(path, line, needed='"entities": [...] of strings that are not blank', found=names)
    return names


def _triples(path: Path, line: int, record: Record) -> list[tuple[str, str, str]]:
    rows: Any = record.get("triples", [])
    if not isinstance(rows, list):
        raise bad_line(path, line, needed=TRIPLE, found=rows)
    for row in rows:
        whole = isinstance(row, list) and len(row) == 3
        if not whole or not all(isinstance(part, str) and part.strip() for part in row):
            raise bad_line(path, line, needed=TRIPLE, found=row)
    return [tuple(row) for row in rows]


def _knowledge(names: Sequence[str], triples: Sequence[tuple[str, str, str]]) -> Knowledge:
    every = dict.fromkeys([*names, *(end for head, _, tail in triples for end in (head, tail))])
    relations = dict.fromkeys(Relation(head, said, tail, f"{head} {said} {tail}.") for head, said, tail in triples)
    return Knowledge(tuple(Entity(name, "", "") for name in every), tuple(relations))
