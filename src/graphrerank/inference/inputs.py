"""A query's candidates as tensors of a model: its scores and its edges, in all forms that callers give them."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.features.word_table import words_of
from graphrerank.graphs import EntityIncidence, conceptual_edges
from graphrerank.graphs.edge_lists import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, EDGE_TYPES, ENTITY, OTHER, edge_type_of
from graphrerank.graphs.entity_incidence import normalized_names
from graphrerank.graphs.retriever import BASE_SCORE, CROSS_ENCODER_FEATURES, OPTIONAL_FEATURES, TEXT_FEATURES
from graphrerank.inference.rerank_input import Numbers, RerankInput

BM25_SCORE, DENSE_SCORE = TEXT_FEATURES
KNOWN_FEATURES = (*OPTIONAL_FEATURES, *TEXT_MATCH_FEATURES)  # filled here, in addition to the base score
LARGEST = 1e30  # keeps sums and differences of such numbers within float32
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32
Edges = tuple[Tensor, Tensor, Tensor]  # [M, 2] int64 pairs, [M] weights, [M] numbers of types


def to_floats(name: str, given: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return a float32 copy on the CPU of torch, NumPy or nested sequences; sizes of ``shape`` that are None are any.

    A ValueError names the argument where there is anything but finite numbers up to 1e30, or another shape.
    """
    array = _array(name, given, shape, "iuf", "numbers").astype(np.float64)
    _check_entries(name, np.abs(array) <= LARGEST, array, f"be finite and at most {LARGEST:g} in size")
    return torch.from_numpy(array.astype(np.float32))


def to_integers(name: str, given: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Return an int64 copy on the CPU; as :func:`to_floats`, for integers."""
    return torch.from_numpy(_array(name, given, shape, "iu", "integers").astype(np.int64))


def _array(name: str, given: Any, shape: tuple[int | None, ...], kinds: str, needed: str) -> npt.NDArray[Any]:
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = given.float() if given.dtype == torch.bfloat16 else given  # which NumPy does not know
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, lists of tensors on a GPU
        raise UserError(f"`{name}` must be an array of numbers: {error}") from error
    if not array.size and 0 in (empty := [size or 0 for size in shape]):
        return np.zeros(empty, dtype=np.int64)
    if array.dtype.kind not in kinds:
        raise UserError(f"`{name}` must hold {needed}, got the type {array.dtype}")
    found = zip(shape, array.shape, strict=False)
    if array.ndim != len(shape) or any(size not in (None, actual) for size, actual in found):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise UserError(f"`{name}` must be of shape [{sizes}], got {list(array.shape)}")
    return array


def _check_entries(name: str, good: Any, array: Any, needed: str) -> None:
    """Refuse the first entry along the axes of ``good`` that is False there."""
    if not good.all():
        place = np.argwhere(~np.asarray(good))[0].tolist()
        where = place[0] if len(place) == 1 else place
        raise UserError(f"`{name}` must {needed}, got {array[tuple(place)].tolist()} at place {where}")


def unit_vectors(given: RerankInput, dim: int | None) -> tuple[Tensor, Tensor] | None:
    """Return unit vectors ``[1, d]`` of the query and ``[n, d]`` of the passages; None for none."""
    if given.query_vector is None or given.vectors is None:
        return None
    query = to_floats("query_vector", given.query_vector, (dim,)).unsqueeze(0).double()
    nodes = to_floats("vectors", given.vectors, (given.num_passages, query.shape[1])).double()
    return F.normalize(query, dim=1).float(), F.normalize(nodes, dim=1).float()  # large norms are beyond float32


def input_features(
    given: RerankInput,
    names: Sequence[str],
    vectors: tuple[Tensor, Tensor] | None,
    edges: Tensor,
    weights: Mapping[str, float],
) -> Tensor:
    r"""Fill the columns of some names: ``[n, F]`` float32.

    - ``base_score``: the given ``scores``; else :math:`w_b\,\mathrm{BM25} / \max \mathrm{BM25} + w_d \cos`, as
      :class:`~graphrerank.operators.hybrid.HybridRetriever` ranks a corpus, and BM25 alone where there are no vectors.
    - ``bm25_score``: BM25 among the passages, divided by its maximum; ``dense_score``: the cosine.
    - ``query_coverage`` and the like: as :class:`~graphrerank.features.text_match.TextMatch` measures them.
    - ``cross_encoder_score`` and the like: of the given ``cross_encoder_scores``.
    - The others belong to an expansion: 0, as are all for which texts, vectors or scores are missing.

    ``given.features`` takes the place of all but the first. ``names`` begin with ``base_score``; ``edges [M, 2]`` are
    pairs (target, source); ``weights`` are ``bm25_weight``, :math:`w_b`, and ``dense_weight``, :math:`w_d`.
    """
    features = given.features or {}
    if unknown := [name for name in features if name not in names[1:]]:
        hint = "; give it as `scores`" if unknown[0] == BASE_SCORE else ""
        raise UserError(f"`features` must be among those the model reads, {list(names[1:])}, got {unknown[0]!r}{hint}")
    count = given.num_passages
    columns = dict.fromkeys(KNOWN_FEATURES, torch.zeros(count))
    read = {name for name in names if name not in features} | ({BM25_SCORE} if given.scores is None else set())
    if given.cross_encoder_scores is not None:
        if missing := [name for name in CROSS_ENCODER_FEATURES if name not in names]:
            raise UserError(
                "`cross_encoder_scores` need a model that was trained with them "
                f"(features=scores_match_typed_cross_encoder), got one without {missing}"
            )
        of_pairs = cross_encoder_columns(*_cross_encoder_scores(given.cross_encoder_scores, count))
        columns |= zip(CROSS_ENCODER_FEATURES, of_pairs.T, strict=True)
    columns |= text_features(given, read, edges)
    if vectors is not None:
        query, nodes = vectors
        columns[DENSE_SCORE] = nodes @ query[0]
    if given.scores is not None:
        columns[BASE_SCORE] = to_floats("scores", given.scores, (count,))
    else:
        columns[BASE_SCORE] = columns[BM25_SCORE]
        if vectors is not None:
            bm25, dense = weights["bm25_weight"] * columns[BM25_SCORE], weights["dense_weight"] * columns[DENSE_SCORE]
            columns[BASE_SCORE] = bm25 + dense
    columns |= {name: to_floats(f"features[{name!r}]", numbers, (count,)) for name, numbers in features.items()}
    return torch.stack([columns[name] for name in names], dim=1)


def _cross_encoder_scores(given: Numbers | Sequence[float | None], count: int) -> tuple[Tensor, Tensor]:
    """Return scores ``[n]``, 0 where there is none, and where there is one, ``[n]`` bool."""
    numbers = given if hasattr(given, "dtype") else [math.nan if score is None else score for score in given]
    array = _array("cross_encoder_scores", numbers, (count,), "iuf", "numbers")
    unread = np.isnan(array)
    return to_floats("cross_encoder_scores", np.where(unread, 0.0, array), (count,)), torch.from_numpy(~unread)


def text_features(given: RerankInput, names: Collection[str], edges: Tensor) -> dict[str, Tensor]:
    """Compute the scores of ``names`` that follow from texts: BM25, divided by its maximum, ``TEXT_MATCH_FEATURES``."""
    columns: dict[str, Tensor] = {}
    is_matched = not set(TEXT_MATCH_FEATURES).isdisjoint(names)
    if given.passages is None or not (is_matched or BM25_SCORE in names):
        return columns
    words, table = words_of(given.passages, language=given.language_of_passages)
    query = table.read([given.query])
    if BM25_SCORE in names:
        scores = torch.from_numpy(bm25_scores(words, query.tokens))
        columns[BM25_SCORE] = scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)
    if is_matched:
        match = TextMatch(words, table=table)
        nodes, ptr = torch.arange(given.num_passages), torch.tensor([0, given.num_passages])
        with_words = not set(WORD_FEATURES).isdisjoint(names)
        found = match.score(query, nodes, edges.T.flip(0), ptr, with_words=with_words)
        columns |= zip(TEXT_MATCH_FEATURES[: found.shape[1]], found.T, strict=True)
    return columns


def input_edges(given: RerankInput) -> Edges:
    """List directed edges, parallel ones too: ``[M, 2]`` int64 pairs (target, source), weights and types ``[M]``."""
    parts = [_given_edges(given)]
    if given.doc_ids is not None and given.chunk_ids is not None:
        chunk_ids = to_integers("chunk_ids", given.chunk_ids, (given.num_passages,)).tolist()
        edges = adjacency_edges(list(given.doc_ids), chunk_ids)
        parts.append((edges, torch.ones(len(edges)), torch.full((len(edges),), ADJACENCY)))
    parts += [(edges.flip(1), weight, edge_type) for edges, weight, edge_type in parts]
    if given.entities is not None:
        incidence = EntityIncidence.from_names(normalized_names(given.entities))
        edge_index, weight, _ = conceptual_edges(incidence, torch.arange(given.num_passages).unsqueeze(0))
        parts.append((edge_index.flip(0).T, weight, torch.full_like(edge_index[0], ENTITY)))
    pairs, weights, types = map(torch.cat, zip(*parts, strict=True))
    return pairs, weights, types


def _given_edges(given: RerankInput) -> Edges:
    """Return the undirected edges of ``edges`` or ``edge_index``."""
    names, numbers = given.edge_types, given.edge_weights
    if given.edge_index is not None:
        index = to_integers("edge_index", given.edge_index, (2, None))
        is_loop = index[0] == index[1]
        if names is not None or numbers is not None:
            _check_entries("edge_index", ~is_loop, index.T, "have no self-loop where it has weights or types")
        edges = index.T[~is_loop].contiguous()
    elif given.edges is None:
        edges = torch.zeros(0, 2, dtype=torch.int64)
    elif hasattr(given.edges, "nodes") and hasattr(given.edges, "edges"):
        edges, names, numbers = _from_graph(given)
    else:
        edges = _from_pairs(given.edges, given.ids)
    last = given.num_passages - 1
    _check_entries("edges", ((edges >= 0) & (edges <= last)).all(1), edges, f"each join passages 0 to {last}")
    _check_entries("edges", edges[:, 0] != edges[:, 1], edges, "each join two different passages")
    weight = torch.ones(len(edges)) if numbers is None else to_floats("edge_weights", numbers, (len(edges),))
    is_inside = (weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)
    _check_entries("edge_weights", is_inside, weight, f"lie in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]")
    return edges, weight, _types_of(names, len(edges))


def _types_of(names: Sequence[str] | None, count: int) -> Tensor:
    """Return the number of each edge's type, ``[M]``."""
    if names is None:
        return torch.full((count,), OTHER)
    if isinstance(names, str) or len(names := list(names)) != count:
        raise UserError(f"`edge_types` must have one name per edge ({count}), got {len(names)}")
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise UserError(f"`edge_types` must hold names, got {type(name).__name__} at place {place}")
    number = {name: edge_type_of(name) for name in set(names)}
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _from_pairs(edges: Any, ids: Sequence[Any] | None) -> Tensor:
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.shape[0] == 2:
        raise UserError(
            f"`edges` must not be a tensor of shape {list(edges.shape)}, PyG's form: give `edge_index=edges`, or "
            "`edges=edges.tolist()` for pairs"
        )
    if not hasattr(edges, "dtype"):
        edges = list(edges)
        if _name_ids(edges):
            edges = _numbers_of(edges, ids)
    return to_integers("edges", edges, (None, 2))


def _from_graph(given: RerankInput) -> tuple[Tensor, list[str], list[float]]:
    """Take the edges of a networkx graph among the passages, with types and weights; it may be the whole corpus's."""
    if given.ids is None:
        raise UserError("`edges` as a graph needs `ids`, the passages' nodes in it, got none")
    if given.edge_types is not None or given.edge_weights is not None:
        raise UserError("`edge_types` and `edge_weights` of a graph are its edges' `type` and `weight`, got others")
    graph: Any = given.edges
    number = {name: place for place, name in enumerate(given.ids)}
    found = [edge for edge in graph.subgraph(list(number)).edges(data=True) if edge[0] != edge[1]]
    pairs = [(number[source], number[target]) for source, target, _ in found]
    types, weights = ([attributes.get(name) for *_, attributes in found] for name in ("type", "weight"))
    return (
        torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
        [EDGE_TYPES[OTHER] if name is None else name for name in types],
        [1.0 if weight is None else weight for weight in weights],
    )


def _name_ids(edges: Sequence[Any]) -> bool:
    """Return whether pairs hold ids rather than numbers of passages: integers are always numbers."""
    try:
        kinds = set(map(type, chain.from_iterable(edges)))
    except TypeError:  # no pairs, which is refused as numbers
        return False
    return not all(issubclass(kind, float | Tensor) or hasattr(kind, "__index__") for kind in kinds)


def _numbers_of(edges: Sequence[Any], ids: Sequence[Any] | None) -> list[list[int]]:
    if ids is None:
        raise UserError(f"`edges` between ids need `ids`, got none for {edges[0]!r}; or number the passages from 0")
    number = {name: place for place, name in enumerate(ids)}
    for place, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or len(edge) != 2:
            raise UserError(f"`edges` must be pairs, got {edge!r} at place {place}")
        for end in edge:
            if end not in number:
                raise UserError(f"`edges` must join passages of `ids`, got {end!r} at place {place}")
    return [[number[end] for end in edge] for edge in edges]
