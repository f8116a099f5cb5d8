"""Columns of a corpus folder that hold the graph, the metadata, and the queries of a data set.

Each function returns one group of columns by their names. :func:`graph_columns` puts the groups together.
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
    """Return all columns but those of texts, words and vectors.

    The manifest lists columns in this order, so that one data set always gives the same bytes.

    Args:
        dataset: The data set, with edges to nearest neighbours if it is to have them.
        stated: Edges from which a compaction finds all others. None if there are no others.
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
        strings: The strings.
    """
    return {f"{name}.offsets": strings.offsets, f"{name}.content": strings.content}


def edge_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the rows of edges, and their weights by type if there is a type other than ``other``."""
    columns = {"indptr": graph.indptr, "indices": graph.indices, "weight": graph.weight}
    if graph.weight_by_type is not None:
        columns["weight_by_type"] = graph.weight_by_type
    return {f"edges.{name}": _array(column) for name, column in columns.items()}


def title_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the lengths of titles, if they are known."""
    lengths = graph.passages.title_lengths
    return {} if lengths is None else {"title_lengths": _array(lengths.int())}


def entity_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return which passage contains which shared entity, and the reverse, if there are entities."""
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
    """Return the names of shared entities, and all entities of each passage where edges were derived from them."""
    columns: ColumnGroup = {}
    if graph.entities is not None:
        columns |= string_columns("entities.names", PackedStrings.of(graph.entities.names))
    if derived is not None and derived.entity_names is not None:
        entities_of_passage = (json.dumps(sorted(names)) for names in derived.entity_names)
        columns |= string_columns("stated.entities", PackedStrings.of(entities_of_passage))
    return columns


def stated_edge_columns(stated: Edges | None) -> ColumnGroup:
    """Return the edges that a compaction keeps while it finds all others again, if there are others."""
    if stated is None:
        return {}
    pairs, weight, types = stated
    return {"stated.pairs": _array(pairs), "stated.weight": _array(weight), "stated.type": _array(types)}


def guarded_edge_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the edges with principals, if there are any."""
    if graph.guarded is None:
        return {}
    return {f"guarded.{name}": _array(column) for name, column in graph.guarded.columns.items()}


def guarded_group_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the groups of principals who may see edges, if there are any."""
    return {} if graph.guarded is None else string_columns("guarded.groups", PackedStrings.of(graph.guarded.groups))


def judgement_columns(dataset: Dataset) -> ColumnGroup:
    """Return the judgements of each split."""
    return {
        f"split{number}.{name}": _array(column)
        for number, qrels in enumerate(dataset.splits.values())
        for name, column in (("query", qrels.query), ("node", qrels.node), ("gain", qrels.gain))
    }


def growth_columns() -> ColumnGroup:
    """Return empty columns for passages that will be added and removed."""
    return {
        "added.ptr": np.zeros(1, dtype=np.int64),  # row boundaries of the tokens of added passages
        "added.tokens": np.zeros(0, dtype=np.int32),
        "added.counts": np.zeros(0, dtype=np.int32),
        "edges.moved": np.zeros((0, 3), dtype=np.int64),  # (node, start, stop) of rows that lie elsewhere
        "removed": np.zeros(0, dtype=np.int64),  # passage numbers
    }


def query_columns(dataset: Dataset) -> ColumnGroup:
    """Return ids and texts of the queries."""
    return {
        **string_columns("query_ids", PackedStrings.of(dataset.query_ids)),
        **string_columns("query_texts", PackedStrings.of(dataset.query_texts)),
    }


def metadata_columns(graph: CorpusGraph) -> ColumnGroup:
    """Return the metadata of the passages as JSON, and their inverted index."""
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
