"""The edges of a request as arrays: a request may have 100,000, which are checked before it is queued."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER, edge_type_of
from graphrerank.inference.input_edges import LARGEST_WEIGHT, SMALLEST_WEIGHT

LARGEST_INDEX = 2**31 - 1
FORMS = "[i, j], [i, j, weight] or [i, j, weight, type]"


@dataclass(frozen=True, eq=False)
class EdgeArrays:
    """Undirected edges.

    Attributes:
        pairs: ``[M, 2]`` int64.
        weights: ``[M]`` float64.
        types: ``[M]`` int64, numbers of :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`; None if no edge has a type.
    """

    pairs: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    types: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def type_names(self) -> list[str] | None:
        """The name of each edge's type; None if no edge has one."""
        return None if self.types is None else [EDGE_TYPES[number] for number in self.types.tolist()]


def read_edges(given: Any, *, most: int) -> EdgeArrays:
    """Convert edges from JSON.

    Args:
        given: List of ``[i, j]``, ``[i, j, weight]`` or ``[i, j, weight, type]``; the weight is 1 by default, the type
            ``other``.
        most: Maximum number of edges.

    Raises:
        ValueError: If there are too many, or one has another form; names its index.

    Example:
        >>> edges = read_edges([[0, 1], [2, 1, 0.5], [0, 2, 1, "citation"]], most=9)
        >>> edges.weights.tolist(), [EDGE_TYPES[number] for number in edges.types]
        ([1.0, 0.5, 1.0], ['other', 'other', 'reference'])
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"`edges` must be a list of {FORMS}, got {type(given).__name__}")
    if len(given) > most:
        raise ValueError(f"`edges` must be at most {most}, got {len(given)}")
    if not set(map(type, given)) <= {list, tuple} or not (lengths := set(map(len, given))) <= {2, 3, 4}:
        _refuse(given, f"be {FORMS}", lambda edge: isinstance(edge, list | tuple) and 2 <= len(edge) < 5)
    if (pairs := _plain_pairs(given)) is not None:
        return EdgeArrays(pairs, np.ones(len(pairs)))
    indices = [index for edge in given for index in edge[:2]]
    if not set(map(type, indices)) <= {int} or min(indices, default=0) < 0 or max(indices, default=0) > LARGEST_INDEX:
        _refuse(
            given,
            "join two documents by their indices, integers from 0",
            lambda edge: all(type(index) is int and 0 <= index <= LARGEST_INDEX for index in edge[:2]),
        )
    weights = [edge[2] if len(edge) > 2 else 1.0 for edge in given]
    if not set(map(type, weights)) <= {int, float} or not all(SMALLEST_WEIGHT <= w <= LARGEST_WEIGHT for w in weights):
        _refuse(
            given,
            f"have a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]",
            lambda edge: (
                len(edge) == 2 or (type(edge[2]) in (int, float) and SMALLEST_WEIGHT <= edge[2] <= LARGEST_WEIGHT)
            ),
        )
    types = _types(given) if 4 in lengths else None
    return EdgeArrays(np.array(indices, dtype=np.int64).reshape(-1, 2), np.array(weights, dtype=np.float64), types)


def _types(given: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64]:
    """Return the number of each edge's type; ``other`` of those without one."""
    names = [edge[3] if len(edge) == 4 else EDGE_TYPES[OTHER] for edge in given]
    if not set(map(type, names)) <= {str}:
        _refuse(given, "have a text as type", lambda edge: len(edge) < 4 or isinstance(edge[3], str))
    number = {name: edge_type_of(name) for name in set(names)}
    return np.array([number[name] for name in names], dtype=np.int64)


def _plain_pairs(given: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64] | None:
    """Convert edges without weights, some three times as fast; None if any edge is different or invalid."""
    indices = list(chain.from_iterable(given))
    if len(indices) != 2 * len(given) or not set(map(type, indices)) <= {int}:
        return None
    if not 0 <= min(indices, default=0) <= max(indices, default=0) <= LARGEST_INDEX:
        return None
    return np.array(indices, dtype=np.int64).reshape(-1, 2)


def check_ends(edges: EdgeArrays, num_documents: int) -> None:
    """Check that each edge joins two different documents, and that no pair is repeated; with types, in one type.

    Raises:
        ValueError: If one does not; names the first one's index.
    """
    low, high = edges.pairs.min(axis=1, initial=LARGEST_INDEX), edges.pairs.max(axis=1, initial=0)
    key, once = low * num_documents + high, "once"
    if edges.types is not None:
        key, once = key * len(EDGE_TYPES) + edges.types, "once for each type"
    is_repeated = np.ones(len(edges), dtype=bool)
    is_repeated[np.unique(key, return_index=True)[1]] = False
    for is_bad, needed in (
        (high >= num_documents, f"join documents 0 to {num_documents - 1}"),
        (low == high, "join two different documents"),
        (is_repeated, f"be given {once}, in one direction"),
    ):
        if is_bad.any():
            index = int(is_bad.argmax())
            raise ValueError(f"`edges` must each {needed}, got {edges.pairs[index].tolist()} at index {index}")


def _refuse(given: Any, needed: str, is_valid: Any) -> None:
    index = next(index for index, edge in enumerate(given) if not is_valid(edge))
    raise ValueError(f"`edges` must each {needed}, got another at index {index}")
