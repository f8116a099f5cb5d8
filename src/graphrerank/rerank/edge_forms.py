"""Parse edges among a query's passages from the formats that Python, HTTP and the integrations use."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.corpus.edge_lists import count_repeated
from graphrerank.corpus.edge_types import OTHER, edge_type_of
from graphrerank.rerank.arrays import check_entries, plain_integer, to_floats, to_integers
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

#: Range of edge weights. Sums and ratios of weights in this range neither overflow nor underflow float32.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9
EDGE_FORMS = "[i, j], [i, j, weight], [i, j, type], [i, j, weight, type] or [i, j, attributes]"
InputEdgeRow = tuple[Any, Any, Any, Any]  # first end, second end, weight or None, type or None


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Undirected edges between different passages. The largest weight of a repeated edge is used.

    Attributes:
        pairs: ``[M, 2]`` int64, indices of the two passages of each edge.
        weights: ``[M]`` float32.
        types: ``[M]`` int64, indices into :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.
        num_loops: Number of self-loops in the input, which are left out.
        num_repeated: Number of edges that repeat an earlier edge of the same type.
    """

    pairs: Tensor
    weights: Tensor
    types: Tensor
    num_loops: int = 0
    num_repeated: int = 0

    def __len__(self) -> int:
        return len(self.pairs)


def parse_edges(
    edges: Any, num_passages: int, *, ids: Any = None, weights: Any = None, types: Sequence[str | None] | None = None
) -> EdgeList:
    """Parse edges in any of the formats of ``RerankInput.edges``.

    Args:
        edges: Edges, as described in :class:`~graphrerank.rerank.rerank_input.RerankInput`, or an :class:`EdgeList`,
            which is returned unchanged.
        num_passages: Number of passages.
        ids: Unique ids of the passages. If None, the ends of edges must be passage indices.
        weights: ``[M]`` weights. If None, weights are taken from ``edges``, or are 1 for edges without a weight.
        types: Type names of the ``M`` edges. If None, types are taken from ``edges``, or are ``other``.

    Returns:
        Parsed edges.

    Raises:
        UserError: If an edge is invalid. The message contains the index of the first invalid edge.

    Example:
        >>> edges = parse_edges([("a", "b", "citation"), ("b", "a", 2.0), ("a", "a")], 2, ids=["a", "b"])
        >>> edges.pairs.tolist(), edges.weights.tolist(), edges.types.tolist(), edges.num_loops
        ([[0, 1], [1, 0]], [1.0, 2.0], [0, 4], 1)
    """
    if isinstance(edges, EdgeList):
        return edges
    ids = None if ids is None else list(map(plain_integer, _listed(ids)))
    is_graph = hasattr(edges, "nodes") and hasattr(edges, "edges")
    is_directed = is_graph and edges.is_directed()
    if is_graph:
        if types is not None or weights is not None:
            raise UserError(
                "`edge_types` and `edge_weights` must be None if `edges` is a graph, because they are read from the "
                "attributes `type` and `weight` of the graph's edges"
            )
        edges = edges.subgraph(range(num_passages) if ids is None else ids).edges(data=True)
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.shape[0] == 2:
        raise UserError(
            f"`edges` must not be a tensor of shape {list(edges.shape)}, the format of PyTorch Geometric. Pass "
            "`edge_index=edges`, or `edges=edges.tolist()` if the tensor contains two pairs"
        )
    listed = _listed_edges(edges)
    if set(map(type, listed)) <= {list, tuple} and set(map(len, listed)) <= {2}:  # fast path for plain pairs
        ends = list(chain.from_iterable(listed))
    else:
        rows = edge_rows(listed)
        for name, column, separate in (("edge_weights", 2, weights), ("edge_types", 3, types)):
            if separate is not None and any(row[column] is not None for row in rows):
                raise UserError(f"`{name}` cannot be combined with `edges` that contain them, got both")
        weights = weights_of(rows) if weights is None else weights
        types = [row[3] for row in rows] if types is None else types
        ends = [end for row in rows for end in row[:2]]
    ends = ends if set(map(type, ends)) <= {int} else list(map(plain_integer, ends))
    return _checked(
        _numbers(ends, ids, by_id=is_graph and ids is not None), num_passages, weights, types, is_directed=is_directed
    )


def read_edge_index(edge_index: Any, num_passages: int, *, weights: Any = None, types: Any = None) -> EdgeList:
    """Parse edges in the format of PyTorch Geometric.

    Self-loops and the reverse direction of an edge are normal in this format, so they are not counted as defects.

    Args:
        edge_index: ``[2, M]`` passage indices.
        num_passages: Number of passages.
        weights: ``[M]`` weights. If None, every weight is 1.
        types: Type names of the ``M`` edges. If None, every edge has the type ``other``.

    Returns:
        Parsed edges without self-loops.

    Raises:
        UserError: If an edge, a weight or a type is invalid.
    """
    pairs = to_integers("edge_index", edge_index, (2, None)).T
    return replace(_checked(pairs, num_passages, weights, types), num_loops=0, num_repeated=0)


def _checked(
    pairs: Tensor, num_passages: int, weights: Any, types: Sequence[str | None] | None, *, is_directed: bool = False
) -> EdgeList:
    """Check edges ``[M, 2]``, remove self-loops and count repeated edges.

    Unless the edges are directed, ``(j, i)`` repeats ``(i, j)``.
    """
    inside = ((pairs >= 0) & (pairs < num_passages)).all(1)
    check_entries("edges", inside, pairs, f"join passages with indices 0 to {num_passages - 1}")
    count = len(pairs)
    if weights is None:
        weight = torch.ones(count)
    else:
        weight = to_floats("edge_weights", weights, (count,))
        is_inside = (weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)
        check_entries("edge_weights", is_inside, weight, f"be in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]")
    is_no_loop = pairs[:, 0] != pairs[:, 1]
    if types is None:
        type_ids = name_ids = torch.full((count,), OTHER)
    else:
        type_ids = type_numbers(types, count)
        id_of_name = {name: name_id for name_id, name in enumerate(dict.fromkeys(types))}
        name_ids = torch.tensor([id_of_name[name] for name in types], dtype=torch.int64)  # two names can mean one type
    num_repeated = count_repeated((pairs if is_directed else pairs.sort(1).values)[is_no_loop], name_ids[is_no_loop])
    num_loops = count - int(is_no_loop.sum())
    return EdgeList(pairs[is_no_loop], weight[is_no_loop], type_ids[is_no_loop], num_loops, num_repeated)


def edge_rows(edges: Iterable[Any]) -> list[InputEdgeRow]:
    """Return the ends, the weight and the type of each edge.

    Args:
        edges: Edges in any of ``EDGE_FORMS``, or edges ``(i, j, key, attributes)`` of a networkx multigraph.

    Returns:
        Tuple ``(i, j, weight, type)`` per edge. Weight and type are None if the edge has none.

    Raises:
        UserError: If an edge has another format.
    """
    rows: list[InputEdgeRow] = []
    for index, edge in enumerate(edges):
        match edge:
            case [first, second]:
                weight = name = None
            case [first, second, Mapping() as attributes] | [first, second, _, Mapping() as attributes]:
                weight, name = attributes.get("weight"), attributes.get("type")
            case [first, second, str(name)]:
                weight = None
            case [first, second, weight]:
                name = None
            case [first, second, weight, name]:
                pass
            case _:
                raise UserError(f"each of `edges` must be {EDGE_FORMS}, got another format at index {index}")
        rows.append((first, second, weight, name))
    return rows


def weights_of(rows: Sequence[InputEdgeRow]) -> list[float]:
    """Return the weights of edges, 1 for edges without a weight.

    Args:
        rows: Edges, as returned by :func:`edge_rows`.

    Returns:
        One weight per edge.

    Raises:
        UserError: If a weight is not a number in [1e-9, 1e9].
    """
    weights = [1.0 if weight is None else _weight(weight) for _, _, weight, _ in rows]
    for index, weight in enumerate(weights):
        if not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
            needed = f"a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]"
            raise UserError(f"each of `edges` must have {needed}, got another value at index {index}")
    return weights


def _weight(weight: Any) -> float:
    """Return a number of any library as a float, or NaN if it is something else, such as an array."""
    if not hasattr(weight, "__float__") or isinstance(weight, bool) or getattr(weight, "shape", ()) != ():
        return math.nan
    try:
        return float(weight)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def type_numbers(names: Sequence[str | None], count: int) -> Tensor:
    """Return the indices of edge types in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.

    Args:
        names: Type names of the ``M`` edges. None means ``other``.
        count: Number of edges, ``M``.

    Returns:
        ``[M]`` int64 indices.

    Raises:
        UserError: If the number of names is not ``M``, or if an entry is not a name.
    """
    if not isinstance(names, Sized):
        raise UserError(f"`edge_types` must be a sequence with one name per edge, got {type(names).__name__}")
    if isinstance(names, str) or len(names) != count:
        raise UserError(f"`edge_types` must have one name per edge ({count}), got {len(names)}")
    for index, name in enumerate(names):
        if not isinstance(name, str | None):
            raise UserError(f"`edge_types` must contain names, got {type(name).__name__} at index {index}")
    number = {name: OTHER if name is None else edge_type_of(name) for name in set(names)}
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _listed(sequence: Any) -> list[Any]:
    return list(sequence.tolist() if hasattr(sequence, "tolist") else sequence)


def _listed_edges(edges: Any) -> list[Any]:
    """Return the edges of any iterable. A mapping is refused, because its values would be lost."""
    if isinstance(edges, Mapping | str | bytes) or not isinstance(edges, Iterable):
        raise UserError(
            f"`edges` must be a list of edges {EDGE_FORMS}, or a networkx graph, got {type(edges).__name__}"
        )
    return _listed(edges)


def _numbers(ends: list[Any], ids: list[Any] | None, *, by_id: bool) -> Tensor:
    """Return the passage indices ``[M, 2]`` of a flat list of ends, two per edge.

    Ends are looked up among the ids if ``by_id`` is set, if an end is not an integer, or if all ids are integers.
    """
    number_of = {name: number for number, name in enumerate(ids or ())}
    has_integer_ids = set(map(type, number_of)) == {int}
    if has_integer_ids or set(map(type, ends)) - {int}:
        by_id = True
    if by_id:
        if ids is None:
            raise UserError("`edges` between ids require `ids`, got none. Pass `ids`, or use passage indices (from 0)")
        for position, end in enumerate(ends):
            if not isinstance(end, Hashable) or end not in number_of:
                advice = ". With integer `ids`, use `edge_index` for passage indices" if has_integer_ids else ""
                raise UserError(f"`edges` must join passages of `ids`, got {end!r} at index {position // 2}{advice}")
        ends = [number_of[end] for end in ends]
    try:
        return torch.tensor(ends, dtype=torch.int64).reshape(-1, 2)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"`edges` must contain pairs of passage indices: {error}") from error
