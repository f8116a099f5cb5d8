"""Several data sets over one corpus: each question is searched for among all their passages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_fields import RELATION_FIELDS
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.utils.checks import UserError

NAME_SEPARATOR = "-"  # between a data set's name and its id or split


def load_merged(
    datasets: Mapping[str, Dataset], *, name: str = "merged", knn: int = 0, knn_below: int | None = None
) -> Dataset:
    """Put data sets together: ``scifact``'s passage ``7`` is ``scifact-7``, its split ``test`` is ``scifact-test``.

    Edges stay within a data set; none are added between passages of two, but for ``knn`` of the result. Passages with
    one text in several data sets stay apart. Metadata, and edges with principals, are those of the data sets, so that
    callers see of the result what they see of each.

    Raises:
        UserError: If there is no data set, or one has shared entities, vectors or removed passages.
    """
    if not datasets:
        raise UserError("`datasets` must name at least one data set, got none")
    node_ids: list[str] = []
    texts: list[str] = []
    query_ids: list[str] = []
    query_texts: list[str] = []
    edges, splits, answers = [], {}, dict[str, Sequence[str]]()
    for key, part in datasets.items():
        graph = part.graph
        if graph.entities is not None or graph.embedding is not None or graph.passages.removed is not None:
            raise UserError(f"`datasets` must be without shared entities, vectors and removed passages, got {key!r}")
        pairs, weight, edge_type = graph.typed_edges()
        edges.append((pairs + len(node_ids), weight, edge_type))
        for split, qrels in part.splits.items():
            splits[f"{key}{NAME_SEPARATOR}{split}"] = Qrels(
                qrels.query + len(query_ids), qrels.node + len(node_ids), qrels.gain
            )
        answers |= {f"{key}{NAME_SEPARATOR}{query}": right for query, right in part.answers.items()}
        node_ids += [f"{key}{NAME_SEPARATOR}{node}" for node in graph.node_ids]
        query_ids += [f"{key}{NAME_SEPARATOR}{query}" for query in part.query_ids]
        texts += graph.texts
        query_texts += part.query_texts
    pairs, weight, edge_type = (torch.cat(columns) for columns in zip(*edges, strict=True))
    graph = CorpusGraph.from_edges(node_ids, texts, pairs, weight, edge_type=edge_type, undirected=False)
    graph = replace(graph.with_passages(metadata=_metadata(datasets)), guarded=_guarded(datasets))
    return Dataset(name, graph, query_ids, query_texts, splits, knn=knn, knn_below=knn_below, answers=answers)


def _metadata(datasets: Mapping[str, Dataset]) -> Metadata | None:
    """Put metadata together; relations name passages by their new ids. None if no data set has metadata."""
    records: list[Mapping[str, Any]] = []
    for key, part in datasets.items():
        metadata = part.graph.passages.metadata
        if metadata is None:
            records += [{}] * part.graph.num_nodes
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
    """Put edges with principals together; None if no data set has any."""
    first, groups, parts = 0, list[str](), list[tuple[Tensor, Tensor, Tensor, Tensor]]()
    for part in datasets.values():
        if (guarded := part.graph.guarded) is not None:
            parts.append((guarded.pairs + first, guarded.weight, guarded.types, guarded.group + len(groups)))
            groups += guarded.groups
        first += part.graph.num_nodes
    if not parts:
        return None
    pairs, weight, types, group = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return GuardedEdges(pairs, weight, types, group, groups)
