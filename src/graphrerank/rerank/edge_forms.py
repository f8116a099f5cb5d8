"""Edges among a query's passages, in all forms that Python, HTTP and adapters give them."""

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.corpus.edge_lists import count_repeated
from graphrerank.corpus.edge_types import OTHER, edge_type_of
from graphrerank.rerank.arrays import check_entries, to_floats, to_integers
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32
EDGE_FORMS = "[i, j], [i, j, weight], [i, j, type], [i, j, weight, type] or [i, j, attributes]"
InputEdgeRow = tuple[Any, Any, Any, Any]  # both ends, weight and type; None where there is none


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


def parse_edges(
    edges: Any, num_passages: int, *, ids: Any = None, weights: Any = None, types: Sequence[str | None] | None = None
) -> EdgeList:
    """Read edges in the forms that ``RerankInput.edges`` describes; a ValueError names the first bad one.

    Example:
        >>> edges = parse_edges([("a", "b", "citation"), ("b", "a", 2.0), ("a", "a")], 2, ids=["a", "b"])
        >>> edges.pairs.tolist(), edges.weights.tolist(), edges.types.tolist(), edges.num_loops
        ([[0, 1], [1, 0]], [1.0, 2.0], [0, 4], 1)
    """
    if isinstance(edges, EdgeList):
        return edges
    ids = None if ids is None else list(map(_plain, _listed(ids)))
    is_graph = hasattr(edges, "nodes") and hasattr(edges, "edges")
    is_directed = is_graph and edges.is_directed()
    if is_graph:
        if ids is None or types is not None or weights is not None:
            raise UserError(
                "`edges` as a graph needs `ids`, the passages' nodes in it, and neither `edge_types` nor "
                "`edge_weights`, which are its edges' `type` and `weight`"
            )
        edges = edges.subgraph(ids).edges(data=True)
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.shape[0] == 2:
        raise UserError(
            f"`edges` must not be a tensor of shape {list(edges.shape)}, PyG's form: give `edge_index=edges`, or "
            "`edges=edges.tolist()` for pairs"
        )
    listed = _listed(edges)
    if set(map(type, listed)) <= {list, tuple} and set(map(len, listed)) <= {2}:  # most requests: pairs alone
        ends = list(chain.from_iterable(listed))
    else:
        rows = edge_rows(listed)
        for name, column, separate in (("edge_weights", 2, weights), ("edge_types", 3, types)):
            if separate is not None and any(row[column] is not None for row in rows):
                raise UserError(f"`{name}` must not be given where `edges` have them, got both")
        weights = weights_of(rows) if weights is None else weights
        types = [row[3] for row in rows] if types is None else types
        ends = [end for row in rows for end in row[:2]]
    ends = ends if set(map(type, ends)) <= {int} else list(map(_plain, ends))
    return _checked(_numbers(ends, ids, by_id=is_graph), num_passages, weights, types, is_directed=is_directed)


def read_edge_index(edge_index: Any, num_passages: int, *, weights: Any = None, types: Any = None) -> EdgeList:
    """Read edges ``[2, M]`` between numbers of passages, to which self-loops and both directions belong."""
    pairs = to_integers("edge_index", edge_index, (2, None)).T
    return replace(_checked(pairs, num_passages, weights, types), num_loops=0, num_repeated=0)


def _checked(
    pairs: Tensor, num_passages: int, weights: Any, types: Sequence[str | None] | None, *, is_directed: bool = False
) -> EdgeList:
    """Check edges ``[M, 2]``, leave out self-loops, and count what comes again; an edge back does, unless directed."""
    inside = ((pairs >= 0) & (pairs < num_passages)).all(1)
    check_entries("edges", inside, pairs, f"each join passages 0 to {num_passages - 1}")
    count = len(pairs)
    if weights is None:
        weight = torch.ones(count)
    else:
        weight = to_floats("edge_weights", weights, (count,))
        is_inside = (weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)
        check_entries("edge_weights", is_inside, weight, f"lie in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]")
    kept = pairs[:, 0] != pairs[:, 1]
    if types is None:
        kind = named = torch.full((count,), OTHER)
    else:
        kind, place_of = type_numbers(types, count), {name: place for place, name in enumerate(dict.fromkeys(types))}
        named = torch.tensor([place_of[name] for name in types], dtype=torch.int64)  # two names may mean one type
    num_repeated = count_repeated((pairs if is_directed else pairs.sort(1).values)[kept], named[kept])
    return EdgeList(pairs[kept], weight[kept], kind[kept], count - int(kept.sum()), num_repeated)


def edge_rows(edges: Iterable[Any]) -> list[InputEdgeRow]:
    """Return ends, weight and type of edges in any of ``EDGE_FORMS``, or with a multigraph's key before attributes."""
    rows: list[InputEdgeRow] = []
    for place, edge in enumerate(edges):
        match edge:
            case [first, second]:
                weight = name = None
            case [first, second, Mapping() as more] | [first, second, _, Mapping() as more]:
                weight, name = more.get("weight"), more.get("type")
            case [first, second, str(name)]:
                weight = None
            case [first, second, weight]:
                name = None
            case [first, second, weight, name]:
                pass
            case _:
                raise UserError(f"`edges` must each be {EDGE_FORMS}, got another at place {place}")
        rows.append((first, second, weight, name))
    return rows


def weights_of(rows: Sequence[InputEdgeRow]) -> list[float]:
    """Return the weights of edges, 1 where there is none."""
    weights = [1.0 if weight is None else weight for _, _, weight, _ in rows]
    for place, weight in enumerate(weights):
        is_number = hasattr(weight, "__float__") and not isinstance(weight, bool)
        if not (is_number and SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT):
            needed = f"a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]"
            raise UserError(f"`edges` must each have {needed}, got another at place {place}")
    return weights


def type_numbers(names: Sequence[str | None], count: int) -> Tensor:
    """Return the number of each edge's type, ``[M]``; ``other`` where there is none."""
    if isinstance(names, str) or len(names) != count:
        raise UserError(f"`edge_types` must have one name per edge ({count}), got {len(names)}")
    for place, name in enumerate(names):
        if not isinstance(name, str | None):
            raise UserError(f"`edge_types` must hold names, got {type(name).__name__} at place {place}")
    number = {name: OTHER if name is None else edge_type_of(name) for name in set(names)}
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _plain(end: Any) -> Any:
    """Return an integer of any library, or one in an array of floats, as Python's."""
    if isinstance(end, float) and end.is_integer():
        return int(end)
    return operator.index(end) if hasattr(end, "__index__") and not isinstance(end, bool) else end


def _listed(sequence: Any) -> list[Any]:
    return list(sequence.tolist() if hasattr(sequence, "tolist") else sequence)


def _numbers(ends: list[Any], ids: list[Any] | None, *, by_id: bool) -> Tensor:
    """Return the numbers of passages that edges join, ``[M, 2]``, of numbers or ids, of which two are an edge.

    Integers are numbers, but ids where all ids are integers and an edge has one of them.
    """
    number_of = {name: number for number, name in enumerate(ids or ())}
    if set(map(type, ends)) - {int} or (set(map(type, number_of)) == {int} and not number_of.keys().isdisjoint(ends)):
        by_id = True
    if by_id:
        if ids is None:
            raise UserError("`edges` between ids need `ids`, got none; or number the passages from 0")
        for place, end in enumerate(ends):
            if not isinstance(end, Hashable) or end not in number_of:
                raise UserError(f"`edges` must join passages of `ids`, got {end!r} at place {place // 2}")
        ends = [number_of[end] for end in ends]
    try:
        return torch.tensor(ends, dtype=torch.int64).reshape(-1, 2)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"`edges` must each join passages by their numbers: {error}") from error
