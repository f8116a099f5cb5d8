"""A corpus folder as a data set whose graph is mapped: opened in constant time, and many processes share its pages."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Column, Columns, PlainName
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.derived_edges import EdgeRule
from graphrerank.files import open_plain
from graphrerank.graphs import (
    AddedTokens,
    CorpusGraph,
    EntityIncidence,
    Postings,
    TextStems,
    Vocabulary,
    WordIndex,
)
from graphrerank.graphs.content_hash import combined_hash
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.passages import NodeVectors, Passages
from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.untrusted import read_json

MANIFEST = "corpus.json"
FORMAT, OLD_FORMAT = 3, 2  # the old one opens as it was prepared, and does not grow
CONTENT = ("node_ids.offsets", "node_ids.content", "texts.offsets", "texts.content", "vectors")
VECTOR_INDEXES = {"ivf": "vectors.ivf", "hnsw": "vectors.hnsw"}


class EncoderName(BaseModel):
    """The encoder of a corpus's vectors."""

    name: str
    fingerprint: str


class CorpusManifest(BaseModel):
    """What a corpus folder says of itself; it is written last, and makes the rows of its columns count."""

    model_config = ConfigDict(frozen=True)

    format: int
    name: str
    fingerprint: str  # of the data set, with the type of its vectors and all changes since
    encoder: EncoderName | None
    knn: int = 0  # edges from each passage to its nearest neighbours that the preparation found
    knn_below: int | None = None  # from those with fewer others than this; None: from all
    derived: EdgeRule | None = None  # how edges are found in the texts; None: not at all
    num_prepared: int = 0  # passages that the folder was prepared with
    language: str = ENGLISH
    num_tokens: int  # of BM25 in all passages but removed ones, repeats included
    num_stems: int  # of the prepared passages, in order; those of added passages follow
    splits: Sequence[str]
    edge_counts: Mapping[str, int]
    answers: Mapping[str, Sequence[str]]
    columns_folder: PlainName
    columns: Mapping[PlainName, Column]

    def has_grown(self) -> bool:
        """Return whether passages were added or removed."""
        return self.columns["added.ptr"].shape != (1,) or self.columns["removed"].shape != (0,)


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
        ValueError: If a file is missing, truncated, damaged, a symbolic link or another corpus's; the message names it.
    """
    manifest, columns = read_columns(Path(path), thorough=thorough)
    try:
        graph = map_graph(columns, manifest)
        read = {split: _qrels(columns, number, graph) for number, split in enumerate(manifest.splits)}
    except (IndexError, RuntimeError) as error:
        raise ValueError(f"{path}: has columns that do not fit each other ({error}); prepare it again") from error
    return Dataset(
        name or manifest.name,
        graph,
        columns.strings("query_ids")[:],
        columns.strings("query_texts")[:],
        {split: qrels for split, qrels in read.items() if len(qrels.query)},  # not one whose passages are all removed
        edge_counts=manifest.edge_counts,
        answers=manifest.answers,
        encoded_by=None if manifest.encoder is None else manifest.encoder.fingerprint,
        known_fingerprint=manifest.fingerprint,
    )


def read_columns(folder: Path, *, thorough: bool = False, to_change: bool = False) -> tuple[CorpusManifest, Columns]:
    """Read the manifest of a corpus folder, and check its columns; again if it is compacted meanwhile."""
    while True:
        manifest = read_manifest(folder, to_change=to_change)
        try:
            return manifest, Columns(folder / manifest.columns_folder, manifest.columns, thorough=thorough)
        except ValueError:
            if read_manifest(folder).columns_folder == manifest.columns_folder:
                raise


def read_manifest(folder: Path, *, to_change: bool = False) -> CorpusManifest:
    """Read the manifest of a corpus folder; a ValueError names what is wrong with it.

    One that an older version wrote is refused if the folder has grown, or is ``to_change``.
    """
    path = folder / MANIFEST
    try:
        os.close(open_plain(path))
        content = read_json(path)
    except FileNotFoundError:
        raise ValueError(
            f"{folder}: needed {MANIFEST}, which `graphrerank prepare DIR` writes last; found none"
        ) from None
    again = f"prepare it again: graphrerank prepare {folder} data=... encoder=..."
    found = content.get("format") if isinstance(content, dict) else content
    if found not in (FORMAT, OLD_FORMAT):
        raise ValueError(f"{path}: needed a corpus folder of format {FORMAT}, found {str(found)[:80]!r}; {again}")
    try:
        manifest = CorpusManifest.model_validate(content)
        has_grown = manifest.has_grown()
    except (ValidationError, KeyError) as error:
        reason = str(error).partition("\n  For further")[0].replace("\n", " ")
        raise ValueError(f"{path}: is damaged ({reason}); {again}") from error
    if found == OLD_FORMAT and (to_change or has_grown):
        raise ValueError(f"{path}: an older version wrote it, whose corpora open if they have not grown; {again}")
    return manifest


def map_graph(columns: Columns, manifest: CorpusManifest) -> CorpusGraph:
    """Map a corpus: what was prepared, and in memory of this process what was changed since, in so far as it moved."""
    gone, node_ids, removed = columns.array("removed", "<i8"), columns.strings("node_ids"), None
    if len(gone):
        removed = torch.zeros(len(node_ids), dtype=torch.bool)
        removed[torch.from_numpy(gone.copy())] = True
    passages = Passages(
        node_ids,
        columns.strings("texts"),
        title_lengths=columns.tensor("title_lengths", "<i4") if "title_lengths" in columns else None,
        language=language_of(manifest.language).name,
        words=WordIndex(_tokens(columns, manifest.num_tokens, removed), _stems(columns, manifest.num_stems, gone)),
        removed=removed,
    )
    indptr, row_stop = _rows_of_edges(columns)
    typed = "edges.weight_by_type"
    return CorpusGraph(
        passages,
        indptr=indptr,
        indices=columns.tensor("edges.indices", "<i8"),
        weight=columns.tensor("edges.weight", "<f4"),
        weight_by_type=columns.tensor(typed, "<f4", (len(EDGE_TYPES),)) if typed in columns else None,
        row_stop=row_stop,
        entities=_entities(columns, len(node_ids), removed),
        vectors=_vectors(columns) if "vectors" in columns else None,
        pages=columns.pages,
    )


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


def _vectors(columns: Columns) -> NodeVectors:
    """Map vectors and their index; the hash of a corpus that has grown is not known."""
    dtype = "<f2" if columns.entries["vectors"].dtype == "<f2" else "<f4"
    index = next((columns.folder / name for name in VECTOR_INDEXES.values() if name in columns), None)
    pieces = [columns.entries[name].pieces for name in CONTENT]
    content = combined_hash(*(of[0][1] for of in pieces)) if all(len(of) == 1 for of in pieces) else None
    return NodeVectors(columns.tensor("vectors", dtype, columns.entries["vectors"].shape[1:]), index, content)


def _entities(columns: Columns, num_nodes: int, removed: Tensor | None) -> EntityIncidence | None:
    """Map which passage holds which entity; added and removed ones hold none."""
    if "entities.sizes" not in columns:
        return None
    indptr, indices, sizes, holder_ptr, holders = (
        columns.tensor(f"entities.{column}", "<i8")
        for column in ("indptr", "indices", "sizes", "holder_ptr", "holders")
    )
    incidence = EntityIncidence(columns.strings("entities.names"), indptr, indices, sizes, (holder_ptr, holders))
    if removed is None and num_nodes == len(sizes):
        return incidence
    return incidence.resized(num_nodes, removed)


def _tokens(columns: Columns, num_tokens: int, removed: Tensor | None) -> Postings:
    postings = columns.array("token.postings", "<i4", (2,))
    ptr, added = columns.array("token.ptr", "<i8"), columns.array("added.ptr", "<i8")
    lengths = columns.array("token.lengths", "<i4")
    held = (columns.array(name, "<i4") for name in ("added.tokens", "added.counts"))
    return Postings(
        words=Vocabulary(columns.strings("token.words"), len(ptr) - 1),
        ptr=ptr,
        texts=postings[:, 0],
        counts=postings[:, 1],
        lengths=lengths,
        num_tokens=num_tokens,
        added=AddedTokens(len(lengths) - len(added) + 1, added, *held) if len(added) > 1 else None,
        removed=None if removed is None else removed.numpy(),
    )


def _stems(columns: Columns, num_prepared: int, removed: npt.NDArray[np.int64]) -> TextStems:
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
