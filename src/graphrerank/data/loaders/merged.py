"""Several data sets merged over one corpus. Each question is ranked against the passages of all data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_fields import RELATION_FIELDS
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.utils.checks import UserError

NAME_SEPARATOR = "-"  # Separator between the name of a data set and an id or split.


def load_merged(
    datasets: Mapping[str, Dataset], *, name: str = "merged", knn: int = 0, knn_below: int | None = None
) -> Dataset:
    """Merge data sets over one corpus.

    Ids and splits are prefixed with the name of their data set: passage ``7`` of ``scifact`` becomes ``scifact-7``, and
    split ``test`` becomes ``scifact-test``. Except for ``knn`` edges, no edges connect passages of different data sets.
    Passages with the same text in several data sets are not merged. Metadata and edges with principals are preserved,
    so callers see the same passages as in each data set.

    Args:
        datasets: Data sets by name.
        name: Short name of the result.
        knn: Number of edges from each passage to its nearest neighbours, which can be in any data set.
        knn_below: Only passages with fewer neighbours than this get ``knn`` edges. If None, all passages get them.

    Returns:
        Merged data set.

    Raises:
        UserError: If there is no data set, or if one has shared entities, vectors or removed passages.
    """
    if not datasets:
        raise UserError("`datasets` must contain at least one data set, got none")
    node_ids: list[str] = []
    texts: list[str] = []
    query_ids: list[str] = []
    query_texts: list[str] = []
    edges = []
    splits = {}
    answers: dict[str, Sequence[str]] = {}
    for key, dataset in datasets.items():
        graph = dataset.graph
        if graph.entities is not None or graph.embedding is not None or graph.passages.removed is not None:
            raise UserError(f"`datasets` must not have shared entities, vectors or removed passages, got {key!r}")
        pairs, weight, edge_type = graph.typed_edges()
        edges.append((pairs + len(node_ids), weight, edge_type))
        for split, qrels in dataset.splits.items():
            splits[f"{key}{NAME_SEPARATOR}{split}"] = Qrels(
                qrels.query + len(query_ids), qrels.node + len(node_ids), qrels.gain
            )
        answers |= {f"{key}{NAME_SEPARATOR}{query}": correct for query, correct in dataset.answers.items()}
        node_ids += [f"{key}{NAME_SEPARATOR}{node}" for node in graph.node_ids]
        query_ids += [f"{key}{NAME_SEPARATOR}{query}" for query in dataset.query_ids]
        texts += graph.texts
        query_texts += dataset.query_texts
    pairs, weight, edge_type = (torch.cat(columns) for columns in zip(*edges, strict=True))
    graph = CorpusGraph.from_edges(node_ids, texts, pairs, weight, edge_type=edge_type, undirected=False)
    graph = replace(graph.with_passages(metadata=_metadata(datasets)), guarded=_guarded(datasets))
    return Dataset(name, graph, query_ids, query_texts, splits, knn=knn, knn_below=knn_below, answers=answers)


def _metadata(datasets: Mapping[str, Dataset]) -> Metadata | None:
    """Concatenate metadata, with the new ids in relations, or return None if no data set has metadata."""
    records: list[Mapping[str, Any]] = []
    for key, dataset in datasets.items():
        metadata = dataset.graph.passages.metadata
        if metadata is None:
            records += [{}] * dataset.graph.num_nodes
            continue
        for number in range(len(metadata)):
            record = metadata.record(number)
            renamed = {name: _renamed(key, record[name]) for name in RELATION_FIELDS if name in record}
            records.append({**record, **renamed})
    return Metadata(records) if any(records) else None


def _renamed(key: str, ids: Any) -> Any:
    if isinstance(ids, str):
        return f"{key}{NAME_SEPARATOR}{ids}"
    return [_renamed(key, node_id) for node_id in ids] if isinstance(ids, list | tuple) else ids


def _guarded(datasets: Mapping[str, Dataset]) -> GuardedEdges | None:
    """Concatenate edges with principals, or return None if no data set has any."""
    all_edges: list[GuardedEdges] = []
    groups: list[str] = []
    first_node = 0
    for dataset in datasets.values():
        guarded = dataset.graph.guarded
        if guarded is not None:
            all_edges.append(replace(guarded, pairs=guarded.pairs + first_node, group=guarded.group + len(groups)))
            groups += guarded.groups
        first_node += dataset.graph.num_nodes
    if not all_edges:
        return None
    return GuardedEdges(
        pairs=torch.cat([edges.pairs for edges in all_edges]),
        weight=torch.cat([edges.weight for edges in all_edges]),
        types=torch.cat([edges.types for edges in all_edges]),
        group=torch.cat([edges.group for edges in all_edges]),
        groups=groups,
    )
