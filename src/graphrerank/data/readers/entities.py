"""``entities.jsonl`` of a data set folder: names and triples of its passages."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

from graphrerank.data.readers.records import bad_line, read_jsonl

ENTITIES = "entities.jsonl"  # read on request
Triple = tuple[str, str, str]

_NAMES = '"entities": [...] of strings that are not blank'
_TRIPLES = '"triples": [["head", "relation", "tail"], ...] of strings that are not blank'


class PassageEntities(NamedTuple):
    """One line: a document's id, its names as written, and its triples ``(head, relation, tail)``."""

    doc_id: str
    names: Sequence[str]
    triples: Sequence[Triple]


def read_entities(path: Path, doc_ids: Collection[str], *, need_names: bool = False) -> Iterator[PassageEntities]:
    """Read ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``, one a line.

    Either list may be missing, ``entities`` only unless ``need_names``; other keys are ignored. An error names file and
    line if a line is not of that form, or an id is not in the corpus or comes twice.
    """
    seen: set[str] = set()
    for line, record in read_jsonl(path):
        doc_id = record.get("_id")
        if not isinstance(doc_id, str) or doc_id not in doc_ids or doc_id in seen:
            raise bad_line(path, line, needed="an `_id` of the corpus that did not come before", found=doc_id)
        seen.add(doc_id)
        names, triples = record.get("entities", None if need_names else []), record.get("triples", [])
        if not _are_names(names):
            raise bad_line(path, line, needed=_NAMES, found=names)
        for triple in triples if isinstance(triples, list) else [triples]:
            if not _are_names(triple) or len(triple) != 3:
                raise bad_line(path, line, needed=_TRIPLES, found=triple)
        yield PassageEntities(doc_id, names, [tuple(triple) for triple in triples])


def _are_names(names: object) -> TypeGuard[list[str]]:
    return isinstance(names, list) and all(isinstance(name, str) and name.strip() for name in names)
