"""A corpus folder as a data set whose graph is mapped: opened in constant time, and many processes share its pages."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from graphrerank.data.corpus_folder.columns import Columns
from graphrerank.data.dataset import Qrels, RetrievalDataset
from graphrerank.graphs import CorpusGraph, EntityIncidence, Postings, TextStems, WordIndex
from graphrerank.graphs.content_hash import combined_hash
from graphrerank.graphs.edge_types import EDGE_TYPES

MANIFEST = "corpus.json"
FORMAT = 1
CONTENT = ("node_ids.offsets", "node_ids.content", "texts.offsets", "texts.content", "vectors")
VECTOR_INDEXES = {"ivf": "vectors.ivf", "hnsw": "vectors.hnsw"}


def is_corpus_folder(path: str | Path) -> bool:
    """Return whether a folder was written by :func:`prepare_corpus`."""
    return (Path(path) / MANIFEST).is_file()


def open_corpus(path: str | Path, *, name: str | None = None, thorough: bool = False) -> RetrievalDataset:
    """Open a corpus folder.

    Args:
        path: The folder.
        name: Short name of the data set; the one that it was prepared with when None.
        thorough: Whether to read all files and compare their hashes; else sizes and ends of files are compared.

    Raises:
        ValueError: If a file is missing, truncated, damaged or another corpus's; the message names it.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    try:
        entries = manifest["columns"]
        columns = Columns(folder / manifest["columns_folder"], entries, thorough=thorough)
        encoder = manifest["encoder"]
        graph = _graph(columns, int(manifest["num_tokens"]))
        splits = {
            split: Qrels(
                columns.tensor(f"split{number}.query", "<i8"),
                columns.tensor(f"split{number}.node", "<i8"),
                columns.tensor(f"split{number}.gain", "<f4"),
            )
            for number, split in enumerate(manifest["splits"])
        }
        return RetrievalDataset(
            name or manifest["name"],
            graph,
            columns.strings("query_ids")[:],
            columns.strings("query_texts")[:],
            splits,
            edge_counts=manifest["edge_counts"],
            answers=manifest["answers"],
            encoded_by=None if encoder is None else encoder["fingerprint"],
            known_fingerprint=manifest["fingerprint"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / MANIFEST}: is damaged ({error!r}); prepare the corpus again") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a corpus folder.

    Raises:
        ValueError: If it is missing, damaged or of another format; the message names it.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder}: needed {MANIFEST}, which `python evaluate.py prepare=DIR` writes last; found none")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}); prepare the corpus again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path}: needed a corpus folder of format {FORMAT}, found {str(manifest)[:80]!r}")
    return manifest


def _graph(columns: Columns, num_tokens: int) -> CorpusGraph:
    typed = "edges.weight_by_type"
    return CorpusGraph(
        node_ids=columns.strings("node_ids"),
        texts=columns.strings("texts"),
        indptr=columns.tensor("edges.indptr", "<i8"),
        indices=columns.tensor("edges.indices", "<i8"),
        weight=columns.tensor("edges.weight", "<f4"),
        embedding=_vectors(columns) if "vectors" in columns else None,
        entities=_entities(columns) if "entities.sizes" in columns else None,
        weight_by_type=columns.tensor(typed, "<f4", (len(EDGE_TYPES),)) if typed in columns else None,
        words=_words(columns, num_tokens),
        vector_index=next((columns.folder / name for name in VECTOR_INDEXES.values() if name in columns), None),
        known_content=combined_hash(*(columns.entry(n).sha256 if n in columns else None for n in CONTENT)),
    )


def _vectors(columns: Columns) -> Tensor:
    entry = columns.entry("vectors")
    return columns.tensor("vectors", "<f2" if entry.dtype == "<f2" else "<f4", entry.shape[1:])


def _entities(columns: Columns) -> EntityIncidence:
    indptr, indices, sizes, holder_ptr, holders = (
        columns.tensor(f"entities.{name}", "<i8") for name in ("indptr", "indices", "sizes", "holder_ptr", "holders")
    )
    return EntityIncidence(columns.strings("entities.names"), indptr, indices, sizes, (holder_ptr, holders))


def _words(columns: Columns, num_tokens: int) -> WordIndex:
    postings = columns.array("token.postings", "<i4", (2,))
    tokens = Postings(
        words=columns.strings("token.words"),
        ptr=columns.array("token.ptr", "<i8"),
        texts=postings[:, 0],
        counts=postings[:, 1],
        lengths=columns.array("token.lengths", "<i4"),
        num_tokens=num_tokens,
    )
    stems = TextStems(
        words=columns.strings("stem.words"),
        ptr=columns.array("stem.ptr", "<i8"),
        stems=columns.array("stem.stems", "<i4"),
        in_lead=columns.array("stem.in_lead", "|b1"),
        weight=columns.tensor("stem.weight", "<f4"),
        lead_weight=columns.tensor("stem.lead_weight", "<f4"),
    )
    return WordIndex(tokens, stems)
