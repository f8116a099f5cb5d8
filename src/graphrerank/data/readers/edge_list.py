"""Edges of a corpus graph in a TSV file: ``source target type [weight]``."""

import warnings
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphrerank.data.readers.records import bad_line, check_columns, parse_number, read_tsv
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER, edge_type_of

HEADER = ("source", "target", "type")
SHOWN = 5  # names in a warning
FILTERED = -1  # the node number of a document that is left out


def read_edges(
    files: Sequence[Path],
    node_number: Mapping[str, int],
    edge_types: Collection[str] | None = None,
    edge_meanings: Mapping[str, str] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Read edges: pairs of node numbers ``[M, 2]`` int64, weights ``[M]`` float32, 1 if a file has none, and types.

    A type ``[M]`` is the number of what its name in the file means (:func:`~graphrerank.graphs.edge_types.edge_type_of`
    with ``edge_meanings``); a warning names those that mean nothing. A file may begin with a header, which may name
    ``weight`` and further columns, which are ignored; without one the columns are source, target, type and perhaps
    weight. A node number of -1 marks a node that is left out with its edges; ``edge_types`` None keeps all types.
    """
    pairs, weights, types = array("q"), array("f"), array("q")
    number_of: dict[str, int] = {}
    for path in files:
        for line, source, target, kind, written_weight in _rows(path):
            if kind not in number_of:
                number_of[kind] = edge_type_of(kind, edge_meanings)
            start, end, weight = node_number.get(source), node_number.get(target), parse_number(written_weight)
            if start is None or end is None:
                absent = source if start is None else target
                raise bad_line(path, line, needed="ids of documents in the corpus", found=absent)
            if source == target:
                raise bad_line(path, line, needed="two different documents, not a self-loop", found=source)
            if not weight > 0:
                raise bad_line(path, line, needed="a weight above 0", found=written_weight)
            if (edge_types is None or kind in edge_types) and start != FILTERED != end:
                pairs.extend((start, end))
                weights.append(weight)
                types.append(number_of[kind])
    meant = set(edge_meanings or ()) - {EDGE_TYPES[OTHER]} if files else ()
    for argument, names in (("edge_types", edge_types), ("edge_meanings", meant)):
        if extra := sorted(set(names or ()) - set(number_of)):
            raise ValueError(
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
    columns = [torch.from_numpy(np.array(column)) for column in (pairs, weights, types)]
    return columns[0].reshape(-1, 2), columns[1], columns[2]


def _rows(path: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """Read line number, source, target, type and weight as written; ``1`` if the file has no weights."""
    width, weight_at = 0, None
    for line, columns in read_tsv(path):
        if not width:
            names = [column.strip().lower() for column in columns]
            is_header = tuple(names[:3]) == HEADER
            if not is_header and len(columns) not in (3, 4):
                needed = "columns source, target, type and perhaps weight"
                raise bad_line(path, line, needed=needed, found="\t".join(columns))
            names = names if is_header else [*HEADER, "weight"][: len(columns)]
            width, weight_at = len(names), names.index("weight") if "weight" in names else None
            if is_header:
                continue
        check_columns(path, line, columns, count=width, names=", ".join(names))
        yield line, columns[0], columns[1], columns[2], "1" if weight_at is None else columns[weight_at]
