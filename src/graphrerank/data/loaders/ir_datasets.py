"""Data sets of the package ``ir_datasets``, converted to data set folders.

Install it with ``pip install graphrerank[ir-datasets]``.
"""

import json
import logging
import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import Dataset
from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_folder, write_chunks, write_json_lines, write_text

LOGGER = logging.getLogger(__name__)


def load_ir_dataset(
    id: str,
    *,
    folder: str | Path,
    splits: Mapping[str, str] | None = None,
    name: str | None = None,
    drop_empty: bool = True,
    **options: Any,
) -> Dataset:
    """Load a data set of ``ir_datasets``, which downloads missing files.

    The documents, queries and judgements are written once as a data set folder. Its edges are those of
    :meth:`~graphrerank.data.dataset.Dataset.from_folder`: none by default, and ``edges="auto"`` derives them. A
    judgement of 0 or less means not relevant, as in TREC's files.

    Args:
        id: Id of the data set with the documents, such as ``beir/scifact/test``.
        folder: Folder of the converted data sets. Each combination of ``id`` and ``splits`` has its own subfolder.
        splits: Ids of the data sets with the queries and judgements, by name of the split. If None, the split ``test``
            is read from ``id``.
        name: Short name of the data set. If None, ``id`` with ``-`` for ``/``.
        drop_empty: Whether to skip documents without text silently. If False, there is a warning.
        **options: Further arguments of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.

    Returns:
        The data set.

    Raises:
        UserError: If there is no such data set, if it has no documents, queries or judgements, or if its content is
            inconsistent.
        MissingExtraError: If ``ir_datasets`` is not installed.
    """
    parts = dict(splits or {"test": id})
    digest = sha256(json.dumps([id, parts], sort_keys=True).encode()).hexdigest()[:8]
    target = Path(folder) / f"{id.replace('/', '-')}-{digest}"
    if not target.is_dir():
        LOGGER.info("converting %s of ir_datasets to %s", id, target)
        write_folder(id, parts, target)
    return Dataset.from_folder(target, name=name or id.replace("/", "-"), drop_empty=drop_empty, **options)


def write_folder(id: str, splits: Mapping[str, str], target: Path) -> None:
    """Write a data set of ``ir_datasets`` as a data set folder. An interrupted conversion leaves no folder.

    Args:
        id: Id of the data set with the documents.
        splits: Ids of the data sets with the queries and judgements, by name of the split.
        target: Folder to create.

    Raises:
        UserError: If there is no such data set, or if a part of it is missing.
    """
    corpus = _open(id, "docs")
    judged = {split: _open(part, "queries", "qrels") for split, part in splits.items()}
    with atomic_folder(target) as written:
        write_chunks(written / "corpus.jsonl", map(_document_line, corpus.docs_iter()))
        queries: dict[str, str] = {}
        for split, source in judged.items():
            texts = {query.query_id: query.default_text().strip() for query in source.queries_iter()}
            rows = _judgements(splits[split], source, texts)
            queries |= {query_id: texts[query_id] for query_id, *_ in rows}
            lines = ["\t".join(row) for row in (("query-id", "corpus-id", "score"), *rows)]
            write_text(written / "qrels" / f"{split}.tsv", "\n".join(lines) + "\n")
        write_json_lines(
            written / "queries.jsonl", ({"_id": query_id, "text": text} for query_id, text in queries.items())
        )


def _document_line(document: Any) -> bytes:
    """Return a line of ``corpus.jsonl``. Title and text are apart if the documents have both."""
    title = getattr(document, "title", "")
    has_both = isinstance(title, str) and isinstance(getattr(document, "text", None), str)
    content = {"title": title, "text": document.text} if has_both else {"text": document.default_text()}
    return json.dumps({"_id": document.doc_id, **content}, ensure_ascii=False).encode() + b"\n"


def _judgements(id: str, source: Any, texts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return query id, document id and gain of each positive judgement, each pair once."""
    gains: dict[tuple[str, str], float] = {}
    for judgement in source.qrels_iter():
        query_id, doc_id, gain = judgement.query_id, judgement.doc_id, float(judgement.relevance)
        if query_id not in texts:
            raise UserError(f"{id}: judgements must refer to queries of the data set, got one of query {query_id!r}")
        if not math.isfinite(gain):
            raise UserError(f"{id}: relevances must be finite, got {gain} for query {query_id!r} and {doc_id!r}")
        if gain <= 0:
            continue
        known = gains.setdefault((query_id, doc_id), gain)
        if known != gain:
            raise UserError(
                f"{id}: each pair must have one relevance, got {known:g} and {gain:g} for query {query_id!r} and "
                f"document {doc_id!r}"
            )
    return [(query_id, doc_id, repr(gain)) for (query_id, doc_id), gain in gains.items()]


def _open(id: str, *parts: str) -> Any:
    package = optional("ir_datasets", "data=ir_datasets")
    try:
        source = package.load(id)
    except KeyError as error:
        raise UserError(
            f"`id` must be the id of a data set of ir_datasets, such as beir/scifact/test, got {id!r}"
        ) from error
    for part in parts:
        if not getattr(source, f"has_{part}")():
            raise UserError(f"`id` must be the id of a data set with {part}, got {id!r}, which has none")
    return source
