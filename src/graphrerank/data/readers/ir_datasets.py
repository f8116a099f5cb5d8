"""Any data set of the optional package ``ir_datasets``, by its id."""

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch

from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.readers.judgements import Judgement
from graphrerank.graphs import CorpusGraph


def load_ir_dataset(
    id: str,
    *,
    splits: Mapping[str, str] | None = None,
    name: str | None = None,
    drop_empty: bool = True,
) -> Dataset:
    """Read a data set of ``ir_datasets``, which downloads missing ones; it has no edges.

    A relevance of 0 or less means judged not relevant, as in TREC's judgements.

    Args:
        id: Id of the corpus, such as ``beir/scifact/test``.
        splits: Id of the queries and judgements of each split; ``{"test": id}`` when None.
        name: Short name; the id with ``-`` for ``/`` when None.
        drop_empty: Whether documents without text are left out; they are an error otherwise.

    Raises:
        ValueError: If the package is missing, there is no such id or it has no documents, queries or judgements; or if
            an id is unknown or repeated, a text empty, or a relevance not finite.
    """
    package = _package()
    corpus = _load(package, id, "docs")
    node_number: dict[str, int] = {}
    texts: list[str] = []
    for document in corpus.docs_iter():
        text = document.default_text().strip()
        if not text and drop_empty:
            continue
        _check(id, "document", document.doc_id, text, node_number)
        node_number[document.doc_id] = len(texts)
        texts.append(text)
    query_number: dict[str, int] = {}
    query_texts: list[str] = []
    judged: dict[str, list[Judgement]] = {}
    for split, part in (splits or {"test": id}).items():
        source = _load(package, part, "queries", "qrels")
        judged[split] = _judgements(part, source, node_number, query_number, query_texts)
    return Dataset(
        name or id.replace("/", "-"),
        CorpusGraph.from_edges(list(node_number), texts, torch.zeros(0, 2, dtype=torch.int64)),
        list(query_number),
        query_texts,
        {split: Qrels.of(rows) for split, rows in judged.items()},
    )


def _judgements(
    id: str, source: Any, node_number: Mapping[str, int], query_number: dict[str, int], query_texts: list[str]
) -> list[Judgement]:
    """Read one split's judgements; add its judged queries to ``query_number`` and ``query_texts``."""
    texts = {query.query_id: query.default_text().strip() for query in source.queries_iter()}
    rows: dict[tuple[int, int], Judgement] = {}
    for judgement in source.qrels_iter():
        query_id, doc_id, gain = judgement.query_id, judgement.doc_id, float(judgement.relevance)
        if query_id not in texts:
            raise ValueError(f"{id}: needed judgements of its own queries, found one of {query_id!r}")
        if doc_id not in node_number:
            raise ValueError(f"{id}: needed judgements of documents in the corpus, found one of {doc_id!r}")
        if not math.isfinite(gain):
            raise ValueError(f"{id}: needed finite relevances, found {gain} for {query_id!r} and {doc_id!r}")
        if gain <= 0:
            continue
        if query_id not in query_number:
            _check(id, "query", query_id, texts[query_id], query_number)
            query_number[query_id] = len(query_texts)
            query_texts.append(texts[query_id])
        row = Judgement(query_number[query_id], node_number[doc_id], gain)
        if rows.setdefault((row.query, row.node), row) != row:
            raise ValueError(f"{id}: needed one relevance of {doc_id!r} for {query_id!r}, found two")
    return list(rows.values())


def _check(id: str, kind: str, key: str, text: str, seen: Mapping[str, int]) -> None:
    if key in seen:
        raise ValueError(f"{id}: needed each {kind} once, found {key!r} a second time")
    if not text:
        raise ValueError(f"{id}: needed a text for each {kind}, found none for {key!r}")


def _package() -> Any:
    try:
        return import_module("ir_datasets")  # optional, and heavy
    except ImportError as error:
        raise ValueError(
            "data=ir_datasets needs the package `ir_datasets`, which is not installed: pip install ir_datasets"
        ) from error


def _load(package: Any, id: str, *parts: str) -> Any:
    try:
        source = package.load(id)
    except KeyError as error:
        raise ValueError(f"`id` must be a data set of ir_datasets, got {id!r}; see https://ir-datasets.com") from error
    for part in parts:
        if not getattr(source, f"has_{part}")():
            raise ValueError(f"`id` must be a data set of ir_datasets with {part}, got {id!r}, which has none")
    return source
