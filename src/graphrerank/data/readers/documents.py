"""Documents, queries and edges of a data set folder, one line each."""

import warnings
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.data.readers.records import (
    Record,
    bad_line,
    check_columns,
    find_record_files,
    parse_number,
    read_jsonl,
    read_parquet,
    read_tsv,
)
from graphrerank.graphs.edge_lists import REPEATED_EDGES, SELF_LOOPS, count_repeated
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER, edge_type_of

ANSWERS, ANSWERABLE = ("answer", "answer_aliases"), "answerable"  # keys of a query's metadata
EDGE_HEADER = ("source", "target", "type")
SHOWN = 5  # names in a warning
FILTERED = -1  # the node number of a document that is left out
_ENDS = (".", "!", "?", ":", ";")
_BREAKS = set("\t\r\n")  # would not survive a TSV file


class Document(NamedTuple):
    """One line of the corpus; ``metadata`` is empty where the file gives none."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any]

    @property
    def passage(self) -> str:
        """The text of its node: title and text as two sentences."""
        if not (self.title and self.text):
            return self.title or self.text
        return f"{self.title}{'' if self.title.endswith(_ENDS) else '.'} {self.text}"


def split_passage(passage: str, title_length: int) -> tuple[str, str]:
    """Return the title and the text of which a passage was made."""
    title, rest = passage[:title_length], passage[title_length:]
    return title, rest.removeprefix(".").removeprefix(" ") if title_length else rest


class Query(NamedTuple):
    """One line of the queries; ``metadata`` is empty where the file gives none."""

    query_id: str
    text: str
    metadata: Mapping[str, Any]
    answers: Sequence[str] | None  # right answers; empty if the metadata say that there is none, None if nothing


def read_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[Document]:
    """Read the corpus of a data set folder, one document at a time; errors name file and line."""
    for file, line, record, doc_id in _identified(Path(folder), "corpus"):
        title, text = _text(file, line, record, "title", optional=True), _text(file, line, record, "text")
        if title or text:
            yield Document(doc_id, title, text, _metadata(file, line, record))
        elif not drop_empty:
            raise bad_line(file, line, needed="a `title` or a `text` (or `drop_empty`)", found=record)


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder, one at a time; errors name file and line."""
    for file, line, record, query_id in _identified(Path(folder), "queries"):
        text = _text(file, line, record, "text")
        if not text:
            raise bad_line(file, line, needed="a `text`", found=record)
        metadata = _metadata(file, line, record)
        yield Query(query_id, text, metadata, _right_answers(file, line, metadata))


def _right_answers(file: Path, line: int, metadata: Mapping[str, Any]) -> list[str] | None:
    """List ``answer`` and ``answer_aliases``, each one answer or a list; true and false are "yes" and "no"."""
    answerable = metadata.get(ANSWERABLE)
    if not isinstance(answerable, bool | None):
        raise bad_line(file, line, needed=f"true or false as `{ANSWERABLE}`", found=metadata)
    texts: dict[str, None] = {}
    for key in ANSWERS:
        given = metadata.get(key)
        for answer in given if isinstance(given, list) else [given]:
            if not isinstance(answer, str | int | float | None):  # a bool is an int
                needed = f"a text, a number, true or false, or a list of them as `{key}`"
                raise bad_line(file, line, needed=needed, found=metadata)
            text = ("yes" if answer else "no") if isinstance(answer, bool) else str(answer)
            if answer is not None and text.strip():
                texts[text] = None
    return [] if answerable is False else list(texts) or None


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, Record, str]]:
    """Read a table's records with their unique ids."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, record in (read_parquet if file.suffix == ".parquet" else read_jsonl)(file):
            key = record.get("_id")
            if file.suffix == ".parquet" and type(key) is int:
                key = str(key)
            if not isinstance(key, str) or not key or key != key.strip() or _BREAKS & set(key):
                needed = "an `_id`: a string, not empty, without tabs, line breaks or blanks at its ends"
                raise bad_line(file, line, needed=needed, found=key)
            if key in seen:
                raise bad_line(file, line, needed="each `_id` once", found=f"{key} a second time")
            seen.add(key)
            yield file, line, record, key


def _text(file: Path, line: int, record: Record, key: str, *, optional: bool = False) -> str:
    text = record.get(key)
    if text is None and optional:
        return ""
    if not isinstance(text, str):
        raise bad_line(file, line, needed=f"a string as `{key}`", found=text)
    return text.strip()


def _metadata(file: Path, line: int, record: Record) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_line(file, line, needed="an object as `metadata`", found=metadata)
    return metadata


def read_edges(
    files: Sequence[Path],
    node_number: Mapping[str, int],
    edge_types: Collection[str] | None = None,
    edge_meanings: Mapping[str, str] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Read edges: pairs of nodes ``[M, 2]`` int64, weights ``[M]`` float32, 1 if a file has none, and types ``[M]``.

    A type is the number of what its name in the file means (:func:`~graphrerank.graphs.edge_types.edge_type_of` with
    ``edge_meanings``); a warning names those that mean nothing. A file may begin with a header, which may name
    ``weight`` and further columns, which are ignored; without one the columns are source, target, type and perhaps
    weight. A node number of -1 marks a node that is left out with its edges; ``edge_types`` None keeps all types.
    Self-loops are left out, and lines that repeat an edge are one edge with the largest weight; a warning counts both.
    """
    pairs, weights, kinds = array("q"), array("f"), array("q")
    number_of: dict[str, int] = {}
    place_of: dict[str, int] = {}
    num_loops = 0
    for path in files:
        for line, source, target, kind, written_weight in _rows(path):
            if kind not in number_of:
                number_of[kind], place_of[kind] = edge_type_of(kind, edge_meanings), len(place_of)
            start, end, weight = node_number.get(source), node_number.get(target), parse_number(written_weight)
            if start is None or end is None:
                absent = source if start is None else target
                raise bad_line(path, line, needed="ids of documents in the corpus", found=absent)
            if not weight > 0:
                raise bad_line(path, line, needed="a weight above 0", found=written_weight)
            num_loops += source == target
            if (edge_types is None or kind in edge_types) and start != FILTERED != end and source != target:
                pairs.extend((start, end))
                weights.append(weight)
                kinds.append(place_of[kind])
    meant = set(edge_meanings or ()) - {EDGE_TYPES[OTHER]} if files else ()
    for argument, names in (("edge_types", edge_types), ("edge_meanings", meant)):
        if extra := sorted(set(names or ()) - set(number_of)):
            raise UserError(
                f"`{argument}` must name types in {[str(path) for path in files]}, got {extra[0]!r}; "
                f"there are {sorted(number_of)}"
            )
    kept = [kind for kind in number_of if edge_types is None or kind in edge_types]
    meanings = (*(edge_meanings or ()), EDGE_TYPES[OTHER])
    if unknown := [kind for kind in kept if number_of[kind] == OTHER and kind not in meanings]:
        shown = ", ".join([*map(repr, unknown[:SHOWN]), *["..."] * (len(unknown) > SHOWN)])
        warnings.warn(
            f"{files[0].parent}: edges of the types {shown} are `other`, as the names mean nothing here; "
            f"`edge_meanings` says what they mean: {{{unknown[0]}: reference}}, or all of them: {{other: reference}}",
            stacklevel=2,
        )
    ends, strength, which = (torch.from_numpy(np.array(column)) for column in (pairs, weights, kinds))
    ends = ends.reshape(-1, 2)
    counts = {SELF_LOOPS: num_loops, REPEATED_EDGES: count_repeated(ends, which)}
    if found := "; ".join(f"{what}: {count}" for what, count in counts.items() if count):
        warnings.warn(f"{files[0].parent}: {found}", stacklevel=2)
    return ends, strength, torch.tensor([*number_of.values(), OTHER])[which]


def _rows(path: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """Read line number, source, target, type and weight as written; ``1`` if the file has no weights."""
    width, weight_at = 0, None
    for line, columns in read_tsv(path):
        if not width:
            names = [column.strip().lower() for column in columns]
            is_header = tuple(names[:3]) == EDGE_HEADER
            if not is_header and len(columns) not in (3, 4):
                needed = "columns source, target, type and perhaps weight"
                raise bad_line(path, line, needed=needed, found="\t".join(columns))
            names = names if is_header else [*EDGE_HEADER, "weight"][: len(columns)]
            width, weight_at = len(names), names.index("weight") if "weight" in names else None
            if is_header:
                continue
        check_columns(path, line, columns, count=width, names=", ".join(names))
        yield line, columns[0], columns[1], columns[2], "1" if weight_at is None else columns[weight_at]
