"""Documents, queries and edges of a data set folder, one line each."""

import json
import math
import warnings
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, PlainValidator
from torch import Tensor

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS, GuardedEdges, count_repeated
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER, edge_type_of
from graphrerank.corpus.metadata_fields import RELATIONS, SUPERSEDED, check_record
from graphrerank.corpus.permissions import PRINCIPALS, misplaced_principals, resembles_principals
from graphrerank.data.readers.records import (
    as_id,
    bad_line,
    check_columns,
    checked,
    find_record_files,
    parse_number,
    read_jsonl,
    read_parquet,
    read_table,
    warn_left_out,
)
from graphrerank.utils.checks import UserError

ANSWERS, ANSWERABLE = ("answer", "answer_aliases"), "answerable"  # keys of a query's metadata
EDGE_HEADER = ("source", "target", "type", "weight")
EDGE_NAMES = (  # of the columns of a header
    ("source", "src", "from", "head", "subject", "start"),
    ("target", "dst", "to", "tail", "object", "end"),
    ("type", "relation", "relationship", "rel", "predicate", "edge_type", "kind", "label"),
    ("weight", "score"),
)
SYNONYMS = {  # of a key that a record lacks
    "_id": ("id", "doc_id", "docid", "docno", "query_id", "qid"),
    "text": ("contents", "content", "body", "passage", "query", "question"),
}
SHOWN = 5  # names in a warning
FILTERED, EMPTY = -1, -2  # node numbers of documents that are left out, EMPTY of those without title and text
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


class FileEdges(NamedTuple):
    """Edges of files: of public ones pairs ``[M, 2]`` int64, weights ``[M]`` float32 and types ``[M]``; and others."""

    pairs: Tensor
    weight: Tensor
    types: Tensor
    guarded: GuardedEdges | None  # those with principals
    relations: list[tuple[str, str, str]]  # of public ones that supersede or contradict: which, and two ids


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
    """Read the corpus of a data set folder, one document at a time; errors name file and line.

    Documents without title and text are left out; a warning counts them unless ``drop_empty``. A corpus of these alone
    is an error.
    """
    for document in read_all_documents(folder, drop_empty=drop_empty):
        if document.title or document.text:
            yield document


def read_all_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[Document]:
    """Read the corpus as :func:`read_documents`, with those documents that it leaves out."""
    empty: defaultdict[Path, list[int]] = defaultdict(list)
    num_kept = 0
    for file, line, record in _identified(Path(folder), "corpus"):
        if record.title or record.text:
            num_kept += 1
        else:
            empty[file].append(line)
        yield Document(record.key, record.title, record.text, record.metadata)
    if empty and not num_kept:
        raise bad_line(file, line, needed="a `title` or a `text` in some document", found=record.key)
    for file, lines in empty.items() if not drop_empty else ():
        warn_left_out(file, {"a document without title and text": lines})


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder, one at a time; errors name file and line."""
    for file, line, record in _identified(Path(folder), "queries"):
        if not record.text:
            raise bad_line(file, line, needed="a `text`", found=record.key)
        yield Query(record.key, record.text, record.metadata, _right_answers(file, line, record.metadata))


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


def _key(given: Any) -> str:
    key = as_id(given)
    if not isinstance(key, str) or not key or key != key.strip() or _BREAKS & set(key):
        raise ValueError("a string or an integer, not empty, without tabs, line breaks or blanks at its ends")
    return key


def _named(key: str) -> Any:
    return Field(validation_alias=AliasChoices(key, *SYNONYMS[key]))


def _or(empty: Any) -> BeforeValidator:
    return BeforeValidator(lambda given: empty if given is None else given)


_Text = Annotated[str, Field(strict=True), AfterValidator(str.strip), _or("")]


class _Record(BaseModel):
    key: Annotated[str, PlainValidator(_key)] = _named("_id")
    title: _Text = ""
    text: _Text = _named("text")
    metadata: Annotated[dict[str, Any], _or({})] = {}


def _misplaced(given: Mapping[str, Any]) -> str | None:
    """Return the path of a field outside of the metadata that seems to be meant as principals."""
    return misplaced_principals({key: field for key, field in given.items() if key != "metadata"})


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, _Record]]:
    """Read a table's records with their unique ids."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, given in (read_parquet if file.suffix == ".parquet" else read_jsonl)(file):
            for key, names in SYNONYMS.items():
                if key not in given and len(found := [name for name in names if name in given]) > 1:
                    raise bad_line(file, line, needed=f"`{key}`, or one of its synonyms", found=found)
            if table == "corpus" and (path := _misplaced(given)) is not None:  # else the document would be public
                raise bad_line(file, line, needed=f"`{PRINCIPALS}` in `metadata`", found=path)
            record = checked(file, line, given, _Record)
            if table == "corpus":
                try:
                    check_record(record.metadata)
                except UserError as error:
                    raise UserError(
                        f"{file}, {'row' if file.suffix == '.parquet' else 'line'} {line}: {error}"
                    ) from None
            if record.key in seen:
                raise bad_line(file, line, needed="each `_id` once", found=f"{record.key} a second time")
            seen.add(record.key)
            yield file, line, record


def read_edges(
    files: Sequence[Path],
    node_number: Mapping[str, int],
    edge_types: Collection[str] | None = None,
    edge_meanings: Mapping[str, str] | None = None,
    *,
    drop_unknown: bool = False,
) -> FileEdges:
    """Read edges, of weight 1 if a file has none.

    A type is the number of what its name in the file means (:func:`~graphrerank.corpus.edge_types.edge_type_of` with
    ``edge_meanings``); a warning names those that mean nothing. Columns are separated by tabs, blanks or commas. A file
    may begin with a header, which names them (also head, relation, tail and the like) and may name further ones, which
    are ignored but for ``principals``, with ``|`` between them, who alone may see an edge; without one the columns are
    source, target, perhaps type and perhaps weight. An empty weight is 1, an empty type ``other``; of no principals all
    who may see both ends. A negative node number marks a node that is left out with its edges; those of ids that are
    not in the corpus are an error, or left out and counted if ``drop_unknown``. ``edge_types`` None keeps all types.
    Self-loops are left out, and lines that repeat an edge are one edge with the largest weight; a warning counts both.
    """
    pairs, weights, kinds, groups = array("q"), array("f"), array("q"), array("q")
    place_of: dict[str, int] = {}
    group_of = {"": 0}  # of principals as they are written
    relations = list[tuple[str, str, str]]()
    num_loops = 0
    for path in files:
        unknown_ids: list[int] = []
        for line, source, target, kind, written_weight, principals in _rows(path):
            place = place_of.setdefault(kind, len(place_of))
            start, end, weight = node_number.get(source), node_number.get(target), parse_number(written_weight)
            if (start is None or end is None) and not drop_unknown:
                absent = source if start is None else target
                raise bad_line(path, line, needed="an id of the corpus (or `drop_unknown`)", found=absent)
            if start is None or end is None:
                unknown_ids.append(line)
            elif not weight > 0:
                raise bad_line(path, line, needed="a weight above 0", found=written_weight)
            elif source == target:
                num_loops += 1
            elif (edge_types is None or kind in edge_types) and min(start, end) >= 0:
                pairs.extend((start, end))
                weights.append(weight)
                kinds.append(place)
                groups.append(group_of.setdefault(principals, len(group_of)))
                if kind in (*RELATIONS, SUPERSEDED) and not principals:
                    relations.append((kind, source, target))
        warn_left_out(path, {"an id that is not in the corpus": unknown_ids})
    number_of = {kind: edge_type_of(kind, edge_meanings) for kind in place_of}
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
    columns = (torch.from_numpy(np.array(column)) for column in (pairs, weights, kinds, groups))
    ends, strength, which, group = columns
    ends = ends.reshape(-1, 2)
    repeated = count_repeated(ends, which * len(group_of) + group)
    counts = {SELF_LOOPS: num_loops, REPEATED_EDGES: repeated}
    if found := "; ".join(f"{what}: {count}" for what, count in counts.items() if count):
        warnings.warn(f"{files[0].parent}: {found}", stacklevel=2)
    types, public, guarded = torch.tensor([*number_of.values(), OTHER])[which], group == 0, None
    if not bool(public.all()):
        names = [json.dumps([name.strip() for name in written.split("|") if name.strip()]) for written in group_of]
        guarded = GuardedEdges(ends[~public], strength[~public], types[~public], group[~public], names)
    return FileEdges(ends[public], strength[public], types[public], guarded, relations)


def _rows(path: Path) -> Iterator[tuple[int, str, str, str, str, str]]:
    """Read line number, source, target, type, weight and principals as written; ``1`` where there is no weight."""
    names: list[str] = []
    for line, columns in read_table(path):
        if not names:
            names, is_header = _edge_columns(columns)
            if not names:
                needed = "columns source, target, type and perhaps weight"
                raise bad_line(path, line, needed=needed, found="\t".join(columns))
            misspelt = [column for column in columns if resembles_principals(column)] if is_header else []
            if misspelt and f"({PRINCIPALS})" not in names:  # else the edges would be public
                raise bad_line(path, line, needed=f"`{PRINCIPALS}` as the name of the column", found=misspelt[0])
            if is_header:
                continue
        check_columns(path, line, columns, count=len(names), names=", ".join(names))
        row = dict(zip(names, columns, strict=True))
        kind, weight = row.get("type") or EDGE_TYPES[OTHER], row.get("weight") or "1"
        yield line, row["source"], row["target"], kind, weight, row.get(f"({PRINCIPALS})", "").strip()


def _edge_columns(first: Sequence[str]) -> tuple[list[str], bool]:
    """Return our names of a file's columns by its first row, none if unclear, and whether that row is a header."""
    plain = [column.strip().lower() for column in first]
    name_of = {name: ours for ours, names in zip(EDGE_HEADER, EDGE_NAMES, strict=True) for name in names}
    named = [name_of.get(name, f"({name})") for name in plain]
    if {"source", "target"} <= set(named) and len(set(named)) == len(named):
        return named, True
    if len(first) == 3 and not math.isnan(parse_number(first[2])):
        return ["source", "target", "weight"], False
    return list(EDGE_HEADER[: len(first)]) if 2 <= len(first) <= len(EDGE_HEADER) else [], False
