"""Edges of a data set folder, one per line, in files with or without a header."""

import json
import math
import warnings
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS, GuardedEdges, count_repeated
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER, edge_type_of
from graphrerank.corpus.metadata_fields import RELATION_FIELDS, SUPERSEDED
from graphrerank.corpus.permissions import PRINCIPALS, resembles_principals
from graphrerank.data.readers.records import bad_line, check_columns, parse_number, read_table, warn_left_out
from graphrerank.utils.checks import UserError

#: Columns of a file without a header. The last ones may be missing.
EDGE_HEADER = ("source", "target", "type", "weight")
#: Names of these columns in a header.
EDGE_NAMES = (
    ("source", "src", "from", "head", "subject", "start"),
    ("target", "dst", "to", "tail", "object", "end"),
    ("type", "relation", "relationship", "rel", "predicate", "edge_type", "kind", "label"),
    ("weight", "score"),
)
NAMES_IN_WARNING = 5  # Maximum number of names in a warning.
# Names of columns that are not in `EDGE_HEADER` are written in parentheses.
_PRINCIPALS_COLUMN = f"({PRINCIPALS})"


class EdgeRow(NamedTuple):
    """Edge in a file.

    Attributes:
        line: Line number.
        source: Id of the document at which the edge starts.
        target: Id of the document at which the edge ends.
        kind: Name of the type. ``other`` if the file contains none.
        weight: Weight as written. ``1`` if the file contains none.
        principals: Principals who may see the edge, separated by ``|``. Empty if everybody who may see both ends may
            see the edge.
    """

    line: int
    source: str
    target: str
    kind: str
    weight: str
    principals: str


class FileRelation(NamedTuple):
    """Edge with a meaning for ranking, such as ``supersedes``.

    Attributes:
        kind: Name of the type in the file.
        source: Id of the document at which the edge starts.
        target: Id of the document at which the edge ends.
    """

    kind: str
    source: str
    target: str


class FileEdges(NamedTuple):
    """Edges in the files of a folder.

    Attributes:
        pairs: Ends of the public edges, ``[M, 2]`` int64.
        weight: Weights of the public edges, ``[M]`` float32.
        types: Types of the public edges, ``[M]``, indices in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.
        guarded: Edges with principals. None if there are none.
        relations: Public edges of types such as ``supersedes`` and ``contradicts``.
    """

    pairs: Tensor
    weight: Tensor
    types: Tensor
    guarded: GuardedEdges | None
    relations: list[FileRelation]


def read_edges(
    files: Sequence[Path],
    node_number: Mapping[str, int],
    edge_types: Collection[str] | None = None,
    edge_meanings: Mapping[str, str] | None = None,
    *,
    drop_unknown: bool = False,
) -> FileEdges:
    """Read edge files.

    Columns are separated by tabs, spaces or commas. A file may have a header, which names the columns (synonyms such as
    head, relation and tail are recognised). Further columns are ignored, except for ``principals``. Without a header,
    the columns are source, target, and optionally type and weight. An empty weight is 1, and an empty type is
    ``other``.

    Self-loops are skipped, and duplicate edges are merged with the largest weight. Both are counted in a warning.
    Another warning lists types with unknown meaning.

    Args:
        files: Edge files.
        node_number: Passage number of each document id. Edges of documents with negative numbers are skipped.
        edge_types: Types of edges to read, as named in the files. If None, all types are read.
        edge_meanings: Meanings of the types (:func:`~graphrerank.corpus.edge_types.edge_type_of`). If None, only known
            names have a meaning.
        drop_unknown: Whether to skip edges with unknown ids with a warning. By default, they raise an error.

    Returns:
        Edges of all files, in order.

    Raises:
        UserError: If a file is missing or malformed, if an id is unknown, or if ``edge_types`` or ``edge_meanings``
            contain a type that occurs in no file.
    """
    columns = EdgeColumns()
    for path in files:
        unknown_lines: list[int] = []
        for row in read_edge_rows(path):
            columns.number_kind(row.kind)
            start = node_number.get(row.source)
            end = node_number.get(row.target)
            weight = parse_number(row.weight)
            if start is None or end is None:
                if not drop_unknown:
                    absent = row.source if start is None else row.target
                    raise bad_line(path, row.line, needed="an id of the corpus (or `drop_unknown`)", actual=absent)
                unknown_lines.append(row.line)
            elif not weight > 0:
                raise bad_line(path, row.line, needed="a weight above 0", actual=row.weight)
            elif row.source == row.target:
                columns.num_loops += 1
            elif (edge_types is None or row.kind in edge_types) and min(start, end) >= 0:
                columns.add(row, start, end, weight)
        warn_left_out(path, {"id not in the corpus": unknown_lines})
    type_of = {kind: edge_type_of(kind, edge_meanings) for kind in columns.kind_number}
    _check_type_names(files, type_of, edge_types, edge_meanings)
    _warn_of_unknown_types(files, type_of, edge_types, edge_meanings)
    _warn_of_dropped_edges(files, columns)
    return columns.to_edges(type_of)


class EdgeColumns:
    """Edges of files, with one array per column.

    Attributes:
        kind_number: Number of each type name, in order of appearance.
        group_number: Number of each group of principals, as written. 0 is the number of public edges.
        relations: Public edges of types such as ``supersedes`` and ``contradicts``.
        num_loops: Number of self-loops that were skipped.
    """

    def __init__(self) -> None:
        self.kind_number: dict[str, int] = {}
        self.group_number: dict[str, int] = {"": 0}
        self.relations: list[FileRelation] = []
        self.num_loops = 0
        self._pairs = array("q")  # numbers of both ends of each edge, one after the other
        self._weights = array("f")
        self._kinds = array("q")
        self._groups = array("q")

    def number_kind(self, kind: str) -> int:
        """Return the number of a type name, and assign a new one to a new name.

        Args:
            kind: Name of the type.

        Returns:
            Number of the type name.
        """
        return self.kind_number.setdefault(kind, len(self.kind_number))

    def add(self, row: EdgeRow, start: int, end: int, weight: float) -> None:
        """Add an edge.

        Args:
            row: Edge in the file.
            start: Passage number of the source.
            end: Passage number of the target.
            weight: Positive weight.
        """
        self._pairs.extend((start, end))
        self._weights.append(weight)
        self._kinds.append(self.number_kind(row.kind))
        self._groups.append(self.group_number.setdefault(row.principals, len(self.group_number)))
        if row.kind in (*RELATION_FIELDS, SUPERSEDED) and not row.principals:
            self.relations.append(FileRelation(row.kind, row.source, row.target))

    def count_repeated(self) -> int:
        """Return the number of lines that repeat an edge with the same type and principals."""
        kinds, groups = _tensor(self._kinds), _tensor(self._groups)
        return count_repeated(_tensor(self._pairs).reshape(-1, 2), kinds * len(self.group_number) + groups)

    def to_edges(self, type_of: Mapping[str, int]) -> FileEdges:
        """Return the edges as tensors. Edges with principals are separate.

        Args:
            type_of: Edge type of each type name, in the order of their numbers.

        Returns:
            Public edges, edges with principals, and relations.
        """
        pairs = _tensor(self._pairs).reshape(-1, 2)
        weight = _tensor(self._weights)
        group = _tensor(self._groups)
        types = torch.tensor([*type_of.values(), OTHER])[_tensor(self._kinds)]
        is_public = group == 0
        guarded = None
        if not bool(is_public.all()):
            is_guarded = ~is_public
            names = [_principals_as_json(written) for written in self.group_number]
            guarded = GuardedEdges(pairs[is_guarded], weight[is_guarded], types[is_guarded], group[is_guarded], names)
        return FileEdges(pairs[is_public], weight[is_public], types[is_public], guarded, self.relations)


def _tensor(column: "array[int] | array[float]") -> Tensor:
    return torch.from_numpy(np.array(column))


def _principals_as_json(written: str) -> str:
    return json.dumps([name.strip() for name in written.split("|") if name.strip()])


def _check_type_names(
    files: Sequence[Path],
    type_of: Mapping[str, int],
    edge_types: Collection[str] | None,
    edge_meanings: Mapping[str, str] | None,
) -> None:
    """Require that the types in the settings occur in the files."""
    meant = set(edge_meanings or ()) - {EDGE_TYPES[OTHER]} if files else set()
    for argument, names in (("edge_types", set(edge_types or ())), ("edge_meanings", meant)):
        if absent := sorted(names - set(type_of)):
            raise UserError(
                f"`{argument}` must name types in {[str(path) for path in files]}, got {absent[0]!r}; "
                f"the files contain {sorted(type_of)}"
            )


def _warn_of_unknown_types(
    files: Sequence[Path],
    type_of: Mapping[str, int],
    edge_types: Collection[str] | None,
    edge_meanings: Mapping[str, str] | None,
) -> None:
    """Warn about types that are read as ``other`` because their meaning is unknown."""
    meanings = (*(edge_meanings or ()), EDGE_TYPES[OTHER])
    kinds = [kind for kind in type_of if edge_types is None or kind in edge_types]
    unknown = [kind for kind in kinds if type_of[kind] == OTHER and kind not in meanings]
    if unknown:
        names = ", ".join(map(repr, unknown[:NAMES_IN_WARNING]))
        if len(unknown) > NAMES_IN_WARNING:
            names += ", ..."
        warnings.warn(
            f"{files[0].parent}: edges of the types {names} are read as `other`, because these names are unknown; "
            f"set `edge_meanings` to define them: {{{unknown[0]}: reference}}, or {{other: reference}} for all of them",
            stacklevel=3,
        )


def _warn_of_dropped_edges(files: Sequence[Path], columns: EdgeColumns) -> None:
    """Warn about self-loops and duplicate edges."""
    counts = {SELF_LOOPS: columns.num_loops, REPEATED_EDGES: columns.count_repeated()}
    if dropped := "; ".join(f"{reason}: {count}" for reason, count in counts.items() if count):
        warnings.warn(f"{files[0].parent}: {dropped}", stacklevel=3)


def read_edge_rows(path: Path) -> Iterator[EdgeRow]:
    """Read the rows of an edge file with or without a header.

    Args:
        path: Edge file.

    Yields:
        Edges of the file.

    Raises:
        UserError: If the file is missing or malformed. The message names the line.
    """
    table = read_table(path)
    first = next(table, None)
    if first is None:
        return
    names = header_columns(first[1])
    if names is not None:
        yield from rows_with_header(path, first, names, table)
    else:
        yield from rows_without_header(path, first, table)


def rows_with_header(
    path: Path, header: tuple[int, list[str]], names: Sequence[str], table: Iterator[tuple[int, list[str]]]
) -> Iterator[EdgeRow]:
    """Read the rows of a file with a header.

    Args:
        path: File, used in error messages.
        header: Line number and cells of the header.
        names: Result of :func:`header_columns`.
        table: Line numbers and cells of the following rows.

    Yields:
        Edges of the file.

    Raises:
        UserError: If a row has another number of columns, or if the column of principals is misspelt.
    """
    line, cells = header
    misspelt = [cell for cell in cells if resembles_principals(cell)]
    if misspelt and _PRINCIPALS_COLUMN not in names:  # Otherwise, the edges would be public.
        raise bad_line(path, line, needed=f"`{PRINCIPALS}` as the name of the column", actual=misspelt[0])
    yield from _rows(path, names, table)


def rows_without_header(
    path: Path, first: tuple[int, list[str]], table: Iterator[tuple[int, list[str]]]
) -> Iterator[EdgeRow]:
    """Read the rows of a file without a header.

    The columns are source, target, and optionally type and weight. If there are three columns and the third contains
    numbers, it is the weight.

    Args:
        path: File, used in error messages.
        first: Line number and cells of the first row.
        table: Line numbers and cells of the following rows.

    Yields:
        Edges of the file.

    Raises:
        UserError: If a row has another number of columns.
    """
    line, cells = first
    if not 2 <= len(cells) <= len(EDGE_HEADER):
        needed = "columns source, target, and optionally type and weight"
        raise bad_line(path, line, needed=needed, actual="\t".join(cells))
    is_weighted = len(cells) == 3 and not math.isnan(parse_number(cells[2]))
    names = ("source", "target", "weight") if is_weighted else EDGE_HEADER[: len(cells)]
    yield from _rows(path, names, chain([first], table))


def header_columns(cells: Sequence[str]) -> list[str] | None:
    """Return the canonical names of the columns in a header.

    Args:
        cells: Cells of the first row of a file.

    Returns:
        One name per column: an entry of :data:`EDGE_HEADER`, or the original name in parentheses. None if the row is
        not a header. A header names a source and a target, and has no duplicate columns.

    Example:
        >>> header_columns(["Head", "tail", "relation", "principals", "note"])
        ['source', 'target', 'type', '(principals)', '(note)']
        >>> header_columns(["d1", "d2", "cites"]) is None
        True
    """
    plain = [cell.strip().lower() for cell in cells]
    canonical = {name: column for column, names in zip(EDGE_HEADER, EDGE_NAMES, strict=True) for name in names}
    columns = [canonical.get(name, f"({name})") for name in plain]
    is_header = {"source", "target"} <= set(columns) and len(set(columns)) == len(columns)
    return columns if is_header else None


def _rows(path: Path, names: Sequence[str], table: Iterator[tuple[int, list[str]]]) -> Iterator[EdgeRow]:
    """Yield edges from rows with named columns."""
    for line, cells in table:
        check_columns(path, line, cells, count=len(names), names=", ".join(names))
        cell_of = dict(zip(names, cells, strict=True))
        yield EdgeRow(
            line,
            cell_of["source"],
            cell_of["target"],
            cell_of.get("type") or EDGE_TYPES[OTHER],
            cell_of.get("weight") or "1",
            cell_of.get(_PRINCIPALS_COLUMN, "").strip(),
        )
