"""Any data set of the optional package ``ir_datasets``, by its id."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from graphrerank.checks import UserError
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.extras import optional
from graphrerank.graphs import CorpusGraph


def load_ir_dataset(
    id: str, *, splits: Mapping[str, str] | None = None, name: str | None = None, drop_empty: bool = True
) -> Dataset:
    """Read a data set of ``ir_datasets``, which downloads missing ones; it has no edges.

    A relevance of 0 or less means judged not relevant, as in TREC's judgements. ``id`` is that of the corpus, such as
    ``beir/scifact/test``; ``splits`` are ids of the queries and judgements of each split, ``{"test": id}`` when None.
    The short name is the id with ``-`` for ``/`` when None. Documents without text are an error unless ``drop_empty``.
    """
    corpus = _load(id, "docs")
    texts: dict[str, str] = {}
    for document in corpus.docs_iter():
        text = document.default_text().strip()
        if text or not drop_empty:
            _check(id, "document", document.doc_id, text, texts)
            texts[document.doc_id] = text
    node_number = {doc_id: node for node, doc_id in enumerate(texts)}
    queries: dict[str, str] = {}  # that are judged
    judged = {
        split: Qrels.of(_judgements(part, _load(part, "queries", "qrels"), node_number, queries))
        for split, part in (splits or {"test": id}).items()
    }
    no_edges = torch.zeros(0, 2, dtype=torch.int64)
    graph = CorpusGraph.from_edges(list(texts), list(texts.values()), no_edges)
    return Dataset(name or id.replace("/", "-"), graph, list(queries), list(queries.values()), judged)


def _judgements(
    id: str, source: Any, node_number: Mapping[str, int], queries: dict[str, str]
) -> list[tuple[int, int, float]]:
    """Read the number of query and node and the gain of one split's judgements; add its judged queries."""
    texts = {query.query_id: query.default_text().strip() for query in source.queries_iter()}
    number = {query_id: place for place, query_id in enumerate(queries)}
    gains: dict[tuple[int, int], float] = {}
    for judgement in source.qrels_iter():
        query_id, doc_id, gain = judgement.query_id, judgement.doc_id, float(judgement.relevance)
        if query_id not in texts:
            raise UserError(f"{id}: needed judgements of its own queries, found one of {query_id!r}")
        if doc_id not in node_number:
            raise UserError(f"{id}: needed judgements of documents in the corpus, found one of {doc_id!r}")
        if not math.isfinite(gain):
            raise UserError(f"{id}: needed finite relevances, found {gain} for {query_id!r} and {doc_id!r}")
        if gain <= 0:
            continue
        if query_id not in number:
            _check(id, "query", query_id, texts[query_id], number)
            number[query_id] = len(number)
            queries[query_id] = texts[query_id]
        if gains.setdefault((number[query_id], node_number[doc_id]), gain) != gain:
            raise UserError(f"{id}: needed one relevance of {doc_id!r} for {query_id!r}, found two")
    return [(query, node, gain) for (query, node), gain in gains.items()]


def _check(id: str, kind: str, key: str, text: str, seen: Collection[str]) -> None:
    if key in seen:
        raise UserError(f"{id}: needed each {kind} once, found {key!r} a second time")
    if not text:
        raise UserError(f"{id}: needed a text for each {kind}, found none for {key!r}")


def _load(id: str, *parts: str) -> Any:
    package = optional("ir_datasets", "data=ir_datasets")
    try:
        source = package.load(id)
    except KeyError as error:
        raise UserError(f"`id` must be a data set of ir_datasets, got {id!r}; see https://ir-datasets.com") from error
    for part in parts:
        if not getattr(source, f"has_{part}")():
            raise UserError(f"`id` must be a data set of ir_datasets with {part}, got {id!r}, which has none")
    return source
