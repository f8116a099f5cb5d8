"""Edges among a query's passages, in all forms that Python, HTTP and adapters give them."""

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.graphs.edge_lists import count_repeated
from graphrerank.graphs.edge_types import OTHER, edge_type_of
from graphrerank.inference.arrays import check_entries, to_floats, to_integers

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32
FORMS = "[i, j], [i, j, weight], [i, j, type], [i, j, weight, type] or [i, j, attributes]"
Row = tuple[Any, Any, Any, Any]  # both ends, weight and type; None where there is none


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Undirected edges between different passages; of one that comes again, the largest weight counts."""

    pairs: Tensor  # `[M, 2]` int64
    weights: Tensor  # `[M]`
    types: Tensor  # `[M]`, numbers in `EDGE_TYPES`
    num_loops: int = 0  # self-loops, which are left out
    num_repeated: int = 0  # edges of a type that came before

    def __len__(self) -> int:
        return len(self.pairs)


def read_edges(
    given: Any, num_passages: int, *, ids: Any = None, weights: Any = None, types: Sequence[str | None] | None = None
) -> EdgeList:
    """Read edges in the forms that ``RerankInput.edges`` describes; a ValueError names the first bad one.

    Example:
        >>> edges = read_edges([("a", "b", "citation"), ("b", "a", 2.0), ("a", "a")], 2, ids=["a", "b"])
        >>> edges.pairs.tolist(), edges.weights.tolist(), edges.types.tolist(), edges.num_loops
        ([[0, 1], [1, 0]], [1.0, 2.0], [0, 4], 1)
    """
    if isinstance(given, EdgeList):
        return given
    is_graph = hasattr(given, "nodes") and hasattr(given, "edges")
    is_directed = is_graph and given.is_directed()
    if is_graph:
        if ids is None:
            raise UserError("`edges` as a graph needs `ids`, the passages' nodes in it, got none")
        if types is not None or weights is not None:
            raise UserError("`edge_types` and `edge_weights` of a graph are its edges' `type` and `weight`, got others")
        given = given.subgraph(_listed(ids)).edges(data=True)
    given = given if hasattr(given, "dtype") else list(given)
    pairs: Any = _integer_pairs(given)
    if pairs is None:
        rows = edge_rows(given.tolist() if hasattr(given, "dtype") else given)
        for name, column, separate in (("edge_weights", 2, weights), ("edge_types", 3, types)):
            if separate is not None and any(row[column] is not None for row in rows):
                raise UserError(f"`{name}` must not be given where `edges` have them, got both")
        weights = weights_of(rows) if weights is None else weights
        types = [row[3] for row in rows] if types is None else types
        pairs = [[_plain(first), _plain(second)] for first, second, *_ in rows]
    numbered = _numbered(pairs, None if ids is None else _listed(ids), num_passages, by_id=is_graph)
    return _checked(numbered, weights, types, is_directed=is_directed)


def read_edge_index(given: Any, num_passages: int, *, weights: Any = None, types: Any = None) -> EdgeList:
    """Read edges ``[2, M]`` between numbers of passages, to which self-loops and both directions belong."""
    pairs = _numbered(to_integers("edge_index", given, (2, None)).T.numpy(), None, num_passages, by_id=False)
    return replace(_checked(pairs, weights, types), num_loops=0, num_repeated=0)


def _checked(pairs: Tensor, weights: Any, types: Sequence[str | None] | None, *, is_directed: bool = False) -> EdgeList:
    """Check the weights and types of ``pairs [M, 2]``, leave out self-loops, and count what comes again.

    Of a graph that ``is_directed`` an edge in the other direction is another one.
    """
    count = len(pairs)
    weight = torch.ones(count) if weights is None else to_floats("edge_weights", weights, (count,))
    is_inside = (weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)
    check_entries("edge_weights", is_inside, weight, f"lie in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]")
    types = None if types is None else list(types)
    kept, kind = pairs[:, 0] != pairs[:, 1], type_numbers(types, count)
    place_of = {name: place for place, name in enumerate(dict.fromkeys(types or ()))}  # two names may mean one type
    named = kind if types is None else torch.tensor([place_of[name] for name in types], dtype=torch.int64)
    num_repeated = count_repeated((pairs if is_directed else pairs.sort(1).values)[kept], named[kept])
    return EdgeList(pairs[kept], weight[kept], kind[kept], count - int(kept.sum()), num_repeated)


def edge_rows(given: Iterable[Any]) -> list[Row]:
    """Return the ends, weight and type of edges in any of ``FORMS``, also with a multigraph's key before attributes."""
    rows = []
    for place, edge in enumerate(given):
        if not isinstance(edge, list | tuple) or not 2 <= len(edge) <= 4:
            raise UserError(f"`edges` must each be {FORMS}, got another at place {place}")
        first, second, *more = edge
        weight = name = None
        if more and isinstance(more[-1], Mapping):
            weight, name = more[-1].get("weight"), more[-1].get("type")
        elif more and isinstance(more[-1], str):
            *before, name = more
            weight = before[0] if before else None
        elif more:
            weight, name = (*more, None)[:2]
        rows.append((first, second, weight, name))
    return rows


def weights_of(rows: Sequence[Row]) -> list[float]:
    """Return the weights of edges, 1 where there is none."""
    weights = [1.0 if weight is None else weight for _, _, weight, _ in rows]
    for place, weight in enumerate(weights):
        is_number = hasattr(weight, "__float__") and not isinstance(weight, bool)
        if not (is_number and SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT):
            needed = f"a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]"
            raise UserError(f"`edges` must each have {needed}, got another at place {place}")
    return weights


def type_numbers(names: Sequence[str | None] | None, count: int) -> Tensor:
    """Return the number of each edge's type, ``[M]``; ``other`` where there is none."""
    if names is None:
        return torch.full((count,), OTHER)
    if isinstance(names, str) or len(names := list(names)) != count:
        raise UserError(f"`edge_types` must have one name per edge ({count}), got {len(names)}")
    for place, name in enumerate(names):
        if not isinstance(name, str | None):
            raise UserError(f"`edge_types` must hold names, got {type(name).__name__} at place {place}")
    number = {name: OTHER if name is None else edge_type_of(name) for name in set(names)}
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _integer_pairs(given: Any) -> npt.NDArray[np.int64] | None:
    """Return arrays of pairs, and lists that hold nothing but pairs of integers, as ``[M, 2]``; None for others."""
    if not hasattr(given, "dtype"):
        try:
            is_plain = set(map(len, given)) <= {2} and set(map(type, chain.from_iterable(given))) <= {int}
            return np.array(given, dtype=np.int64).reshape(-1, 2) if is_plain else None
        except (TypeError, OverflowError):
            return None
    if isinstance(given, Tensor) and given.dim() == 2 and given.shape[0] == 2:
        raise UserError(
            f"`edges` must not be a tensor of shape {list(given.shape)}, PyG's form: give `edge_index=edges`, or "
            "`edges=edges.tolist()` for pairs"
        )
    has_more = getattr(given.dtype, "kind", "") in ("U", "O") or (given.ndim == 2 and given.shape[1] > 2)
    return None if has_more else to_integers("edges", given, (None, 2)).numpy()


def _plain(end: Any) -> Any:
    """Return an integer of any library, or one in an array of floats, as Python's."""
    if isinstance(end, float) and end.is_integer():
        return int(end)
    return operator.index(end) if hasattr(end, "__index__") and not isinstance(end, bool) else end


def _listed(ids: Any) -> list[Any]:
    return [_plain(name) for name in (ids.tolist() if hasattr(ids, "tolist") else ids)]


def _numbered(pairs: Any, ids: list[Any] | None, num_passages: int, *, by_id: bool) -> Tensor:
    """Return pairs of passages' numbers, ``[M, 2]``, of pairs of numbers or ids.

    Integers are numbers, but ids where all ids are integers and an edge has one of them.
    """
    is_array = isinstance(pairs, np.ndarray)
    if not by_id:
        has_names = not is_array and not all(type(end) is int for end in chain.from_iterable(pairs))
        has_numbers = ids is not None and all(type(name) is int for name in ids)
        by_id = has_names or (has_numbers and not set(ids or ()).isdisjoint(pairs.flat if is_array else chain(*pairs)))
    if by_id:
        if ids is None:
            raise UserError("`edges` between ids need `ids`, got none; or number the passages from 0")
        pairs = _places(pairs.tolist() if is_array else pairs, {name: place for place, name in enumerate(ids)})
    needed = f"each join passages 0 to {num_passages - 1}"
    try:
        array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    except OverflowError as error:
        raise UserError(f"`edges` must {needed}: {error}") from error
    check_entries("edges", ((array >= 0) & (array < num_passages)).all(1), array, needed)
    return torch.from_numpy(array)


def _places(pairs: Sequence[Sequence[Any]], number: Mapping[Any, int]) -> list[list[int]]:
    for place, pair in enumerate(pairs):
        for end in pair:
            if not isinstance(end, Hashable) or end not in number:
                raise UserError(f"`edges` must join passages of `ids`, got {end!r} at place {place}")
    return [[number[end] for end in pair] for pair in pairs]
