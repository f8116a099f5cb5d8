"""A corpus folder as a data set whose graph is mapped: opened in constant time, and many processes share its pages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Columns
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import (
    AddedTokens,
    CorpusGraph,
    EntityIncidence,
    PackedStrings,
    Postings,
    TextStems,
    Vocabulary,
    WordIndex,
)
from graphrerank.graphs.content_hash import combined_hash
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.node_vectors import NodeVectors
from graphrerank.graphs.passages import Passages
from graphrerank.graphs.vector_index import StoredIndex
from graphrerank.text.languages import ENGLISH, language_of

MANIFEST = "corpus.json"
ENTITIES = "entities"  # what the columns of entities are called, unless the manifest says otherwise
FORMAT = 2
CONTENT = ("node_ids.offsets", "node_ids.content", "texts.offsets", "texts.content", "vectors")
Integers = npt.NDArray[np.int64]
VECTOR_INDEXES = {"ivf": "vectors.ivf", "hnsw": "vectors.hnsw"}


def is_corpus_folder(path: str | Path) -> bool:
    """Return whether a folder was written by :func:`prepare_corpus`."""
    return (Path(path) / MANIFEST).is_file()


def open_corpus(path: str | Path, *, name: str | None = None, thorough: bool = False) -> Dataset:
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
        graph = map_graph(columns, manifest)
        read = {split: _qrels(columns, number, graph) for number, split in enumerate(manifest["splits"])}
        splits = {split: qrels for split, qrels in read.items() if len(qrels.query)}  # or all that it judged is gone
        return Dataset(
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
        raise ValueError(f"{folder}: needed {MANIFEST}, which `graphrerank prepare DIR` writes last; found none")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}); prepare the corpus again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path}: needed a corpus folder of format {FORMAT}, found {str(manifest)[:80]!r}")
    return manifest


def map_graph(columns: Columns, manifest: Mapping[str, Any]) -> CorpusGraph:
    """Map a corpus: what was prepared, and in memory of this process what was changed since, in so far as it moved."""
    gone = columns.array("removed", "<i8")
    node_ids, texts = columns.strings("node_ids"), columns.strings("texts")
    removed = None
    if len(gone):
        removed = np.zeros(len(node_ids), dtype=np.bool_)
        removed[gone] = True
        stops = columns.array("texts.offsets", "<i8", private=True)[1:]
        stops[gone] = texts.offsets[gone]
        texts = PackedStrings(texts.offsets, texts.content, stops)
    indptr, row_stop = _rows_of_edges(columns)
    typed = "edges.weight_by_type"
    passages = Passages(
        node_ids,
        texts,
        title_lengths=columns.tensor("title_lengths", "<i4") if "title_lengths" in columns else None,
        language=language_of(manifest.get("language", ENGLISH)).name,
        words=WordIndex(
            _tokens(columns, int(manifest["num_tokens"]), removed), _stems(columns, int(manifest["num_stems"]), gone)
        ),
        removed=None if removed is None else torch.from_numpy(removed),
    )
    return CorpusGraph(
        passages,
        indptr=indptr,
        indices=columns.tensor("edges.indices", "<i8"),
        weight=columns.tensor("edges.weight", "<f4"),
        weight_by_type=columns.tensor(typed, "<f4", (len(EDGE_TYPES),)) if typed in columns else None,
        row_stop=row_stop,
        entities=_entities(columns, manifest.get("entities", ENTITIES)),
        vectors=_vectors(columns, list(manifest["columns"])) if "vectors" in columns else None,
        pages=columns.pages,
    )


def _content(columns: Columns) -> str | None:
    """Return the hash of what a store of vectors holds; None if it is not known, as of a corpus that has grown."""
    pieces = [columns.entry(name).pieces if name in columns else None for name in CONTENT]
    if any(several is not None and len(several) > 1 for several in pieces):
        return None
    return combined_hash(*(None if only is None else only[0][1] for only in pieces))


def _qrels(columns: Columns, number: int, graph: CorpusGraph) -> Qrels:
    """Map the judgements of a split; of removed passages there are none."""
    query, node = (columns.tensor(f"split{number}.{name}", "<i8") for name in ("query", "node"))
    gain = columns.tensor(f"split{number}.gain", "<f4")
    if graph.passages.removed is None:
        return Qrels(query, node, gain)
    kept = ~graph.passages.removed[node]
    return Qrels(query[kept], node[kept], gain[kept])


def _rows_of_edges(columns: Columns) -> tuple[Tensor, Tensor | None]:
    """Map where each row of edges begins and, if some have moved, where it ends."""
    moved = columns.array("edges.moved", "<i8", (3,))
    if not len(moved):
        return columns.tensor("edges.indptr", "<i8"), None
    start, stop = (columns.array("edges.indptr", "<i8", private=True) for _ in range(2))
    start[moved[:, 0]] = moved[:, 1]  # of several moves the last
    stop[1:][moved[:, 0]] = moved[:, 2]
    return torch.from_numpy(start), torch.from_numpy(stop[1:])


def _vector_index(columns: Columns, names: Sequence[str]) -> StoredIndex | None:
    path = next((columns.folder / name for name in VECTOR_INDEXES.values() if name in names), None)
    if path is None:
        return None
    return StoredIndex(path, next((columns.folder / name for name in names if name.startswith(f"{path.name}.")), None))


def _vectors(columns: Columns, names: Sequence[str]) -> NodeVectors:
    entry = columns.entry("vectors")
    embedding = columns.tensor("vectors", "<f2" if entry.dtype == "<f2" else "<f4", entry.shape[1:])
    return NodeVectors(embedding, _vector_index(columns, names), _content(columns))


def _entities(columns: Columns, name: str) -> EntityIncidence | None:
    if f"{name}.sizes" not in columns:
        return None
    indptr, indices, sizes, holder_ptr, holders = (
        columns.tensor(f"{name}.{column}", "<i8") for column in ("indptr", "indices", "sizes", "holder_ptr", "holders")
    )
    return EntityIncidence(columns.strings(f"{name}.names"), indptr, indices, sizes, (holder_ptr, holders))


def _tokens(columns: Columns, num_tokens: int, removed: npt.NDArray[np.bool_] | None) -> Postings:
    postings = columns.array("token.postings", "<i4", (2,))
    ptr, lengths = columns.array("token.ptr", "<i8"), columns.array("token.lengths", "<i4")
    added = columns.array("added.ptr", "<i8")
    more = None
    if (num_added := len(added) - 1) > 0:
        tokens, counts = columns.array("added.tokens", "<i4"), columns.array("added.counts", "<i4")
        more = AddedTokens(len(lengths) - num_added, added, tokens, counts)
    return Postings(
        words=Vocabulary(columns.strings("token.words"), len(ptr) - 1),
        ptr=ptr,
        texts=postings[:, 0],
        counts=postings[:, 1],
        lengths=lengths,
        num_tokens=num_tokens,
        added=more,
        removed=removed,
    )


def _stems(columns: Columns, num_prepared: int, removed: Integers) -> TextStems:
    ptr, stems = columns.array("stem.ptr", "<i8"), columns.array("stem.stems", "<i4")
    num_added = len(columns.array("added.ptr", "<i8")) - 1
    texts_with = columns.array("stem.texts_with", "<i8", private=bool(num_added or len(removed)))
    if num_added:
        np.add.at(texts_with, stems[int(ptr[-1 - num_added]) :], 1)
    for node in removed.tolist():
        texts_with[stems[int(ptr[node]) : int(ptr[node + 1])]] -= 1  # each stem once in a text
    return TextStems(
        words=Vocabulary(columns.strings("stem.words"), num_prepared),
        ptr=ptr,
        stems=stems,
        in_lead=columns.array("stem.in_lead", "|b1"),
        texts_with=texts_with,
        order=columns.array("stem.order", "<i4"),
        num_texts=len(ptr) - 1 - len(removed),
    )
