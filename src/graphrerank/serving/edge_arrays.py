"""The edges of a request as arrays: a request may have 100,000, which are checked before it is queued."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.inference.input_edges import LARGEST_WEIGHT, SMALLEST_WEIGHT

LARGEST_INDEX = 2**31 - 1


@dataclass(frozen=True, eq=False)
class EdgeArrays:
    """Undirected edges.

    Attributes:
        pairs: ``[M, 2]`` int64.
        weights: ``[M]`` float64.
    """

    pairs: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.weights)


def read_edges(given: Any, *, most: int) -> EdgeArrays:
    """Convert edges from JSON.

    Args:
        given: List of ``[i, j]`` or ``[i, j, weight]``; the weight is 1 by default.
        most: Maximum number of edges.

    Raises:
        ValueError: If there are too many, or one has another form; names its index.

    Example:
        >>> read_edges([[0, 1], [2, 1, 0.5]], most=9).weights.tolist()
        [1.0, 0.5]
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"`edges` must be a list of [i, j] or [i, j, weight], got {type(given).__name__}")
    if len(given) > most:
        raise ValueError(f"`edges` must be at most {most}, got {len(given)}")
    if not set(map(type, given)) <= {list, tuple} or not set(map(len, given)) <= {2, 3}:
        _refuse(
            given, "be [i, j] or [i, j, weight]", lambda edge: isinstance(edge, list | tuple) and 2 <= len(edge) < 4
        )
    if (pairs := _plain_pairs(given)) is not None:
        return EdgeArrays(pairs, np.ones(len(pairs)))
    indices = [index for edge in given for index in edge[:2]]
    if not set(map(type, indices)) <= {int} or min(indices, default=0) < 0 or max(indices, default=0) > LARGEST_INDEX:
        _refuse(
            given,
            "join two documents by their indices, integers from 0",
            lambda edge: all(type(index) is int and 0 <= index <= LARGEST_INDEX for index in edge[:2]),
        )
    weights = [edge[2] if len(edge) == 3 else 1.0 for edge in given]
    if not set(map(type, weights)) <= {int, float} or not all(SMALLEST_WEIGHT <= w <= LARGEST_WEIGHT for w in weights):
        _refuse(
            given,
            f"have a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]",
            lambda edge: (
                len(edge) == 2 or (type(edge[2]) in (int, float) and SMALLEST_WEIGHT <= edge[2] <= LARGEST_WEIGHT)
            ),
        )
    return EdgeArrays(np.array(indices, dtype=np.int64).reshape(-1, 2), np.array(weights, dtype=np.float64))


def _plain_pairs(given: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64] | None:
    """Convert edges without weights, some three times as fast; None if any edge is different or invalid."""
    indices = list(chain.from_iterable(given))
    if len(indices) != 2 * len(given) or not set(map(type, indices)) <= {int}:
        return None
    if not 0 <= min(indices, default=0) <= max(indices, default=0) <= LARGEST_INDEX:
        return None
    return np.array(indices, dtype=np.int64).reshape(-1, 2)


def check_ends(edges: EdgeArrays, num_documents: int) -> None:
    """Check that each edge joins two different documents, and that no pair is repeated.

    Raises:
        ValueError: If one does not; names the first one's index.
    """
    low, high = edges.pairs.min(axis=1, initial=LARGEST_INDEX), edges.pairs.max(axis=1, initial=0)
    key = low * num_documents + high
    is_repeated = np.ones(len(edges), dtype=bool)
    is_repeated[np.unique(key, return_index=True)[1]] = False
    for is_bad, needed in (
        (high >= num_documents, f"join documents 0 to {num_documents - 1}"),
        (low == high, "join two different documents"),
        (is_repeated, "be given once, in one direction"),
    ):
        if is_bad.any():
            index = int(is_bad.argmax())
            raise ValueError(f"`edges` must each {needed}, got {edges.pairs[index].tolist()} at index {index}")


def _refuse(given: Any, needed: str, is_valid: Any) -> None:
    index = next(index for index, edge in enumerate(given) if not is_valid(edge))
    raise ValueError(f"`edges` must each {needed}, got another at index {index}")
