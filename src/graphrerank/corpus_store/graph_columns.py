"""Columns of a corpus folder for the graph, the metadata, and the queries of a data set.

Each function returns one group of columns by name. :func:`graph_columns` combines the groups.
"""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphrerank.corpus import CorpusGraph, PackedStrings
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import DerivedEdges, Edges

ColumnGroup = dict[str, npt.NDArray[Any]]


def graph_columns(dataset: Dataset, stated: Edges | None) -> ColumnGroup:
    """Return all columns except those of texts, words and vectors.

    The manifest lists columns in this order, so the same data set always gives the same bytes.

    Args:
        dataset: Data set, including its edges to nearest neighbours.
        stated: Explicit edges, from which a compaction derives all others. None if there are no derived edges.

    Returns:
        Arrays by the name of the column.
    """
    graph = dataset.graph
    return {
        **edge_columns(graph),
        **title_columns(graph),
        **entity_columns(graph),
        **stated_edge_columns(stated),
        **guarded_edge_columns(graph),
        **judgement_columns(dataset),
        **growth_columns(),
        **query_columns(dataset),
        **entity_name_columns(graph, dataset.derived),
        **metadata_columns(graph),
        **guarded_group_columns(graph),
    }


def string_columns(name: str, strings: PackedStrings) -> ColumnGroup:
    """Return the two columns of a list of strings.

    Args:
        name: Name of the list.
        strings: Strings of the list.

    Returns:
        Offsets and content.
    """
    return {f"{name}.offsets": strings.offsets, f"{name}.content": strings.content}


def edge_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the rows of edges, and their weights by type if any type differs from ``other``.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    columns = {"indptr": graph.indptr, "indices": graph.indices, "weight": graph.weight}
    if graph.weight_by_type is not None:
        columns["weight_by_type"] = graph.weight_by_type
    return {f"edges.{name}": _array(column) for name, column in columns.items()}


def title_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the lengths of the titles, or no columns if they are unknown.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    lengths = graph.passages.title_lengths
    return {} if lengths is None else {"title_lengths": _array(lengths.int())}


def entity_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the shared entities of each passage and the passages of each entity, or no columns without entities.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    if (entities := graph.entities) is None:
        return {}
    return {
        "entities.indptr": _array(entities.indptr),
        "entities.indices": _array(entities.indices),
        "entities.sizes": _array(entities.sizes),
        "entities.holder_ptr": _array(entities.holder_ptr),
        "entities.holders": _array(entities.holders),
    }


def entity_name_columns(graph: CorpusGraph, derived: DerivedEdges | None) -> ColumnGroup:
    """Return the names of shared entities and, if edges were derived from entities, all entities of each passage.

    Args:
        graph: Corpus graph.
        derived: Sources of the derived edges. None if there are none.

    Returns:
        Arrays by the name of the column.
    """
    columns: ColumnGroup = {}
    if graph.entities is not None:
        columns |= string_columns("entities.names", PackedStrings.of(graph.entities.names))
    if derived is not None and derived.entity_names is not None:
        entities_of_passage = (json.dumps(sorted(names)) for names in derived.entity_names)
        columns |= string_columns("stated.entities", PackedStrings.of(entities_of_passage))
    return columns


def stated_edge_columns(stated: Edges | None) -> ColumnGroup:
    """Return the explicit edges, which a compaction keeps while it derives all others.

    Args:
        stated: Explicit edges. If None, there are no columns.

    Returns:
        Arrays by the name of the column.
    """
    if stated is None:
        return {}
    pairs, weight, types = stated
    return {"stated.pairs": _array(pairs), "stated.weight": _array(weight), "stated.type": _array(types)}


def guarded_edge_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the edges with principals, or no columns if there are none.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    if graph.guarded is None:
        return {}
    return {f"guarded.{name}": _array(column) for name, column in graph.guarded.columns.items()}


def guarded_group_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the groups of principals of edges, or no columns if there are none.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    return {} if graph.guarded is None else string_columns("guarded.groups", PackedStrings.of(graph.guarded.groups))


def judgement_columns(dataset: Dataset) -> ColumnGroup:
    """Return the judgements of each split, as arrays by the name of the column.

    Args:
        dataset: Data set with the judgements.
    """
    return {
        f"split{number}.{name}": _array(column)
        for number, qrels in enumerate(dataset.splits.values())
        for name, column in (("query", qrels.query), ("node", qrels.node), ("gain", qrels.gain))
    }


def growth_columns() -> ColumnGroup:
    """Return empty columns for passages that are added or removed later."""
    return {
        "added.ptr": np.zeros(1, dtype=np.int64),  # Row boundaries of the tokens of added passages.
        "added.tokens": np.zeros(0, dtype=np.int32),
        "added.counts": np.zeros(0, dtype=np.int32),
        "edges.moved": np.zeros((0, 3), dtype=np.int64),  # (node, start, stop) of rows that were rewritten.
        "removed": np.zeros(0, dtype=np.int64),  # Passage numbers.
    }


def query_columns(dataset: Dataset) -> ColumnGroup:
    """Return the ids and texts of the queries, as arrays by the name of the column.

    Args:
        dataset: Data set with the queries.
    """
    return {
        **string_columns("query_ids", PackedStrings.of(dataset.query_ids)),
        **string_columns("query_texts", PackedStrings.of(dataset.query_texts)),
    }


def metadata_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the metadata of the passages as JSON, and their inverted index.

    Args:
        graph: Corpus graph.

    Returns:
        Arrays by the name of the column.
    """
    metadata = graph.passages.metadata or Metadata([""] * graph.num_nodes)
    entries = Entries.of(metadata.records)
    return {
        **string_columns("metadata", PackedStrings.of(metadata.as_json())),
        **string_columns("metadata.terms", entries.terms),
        "metadata.ptr": entries.ptr,
        "metadata.holders": entries.holders,
    }


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.cpu().numpy()
    return array
