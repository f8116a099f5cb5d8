"""A corpus folder that has grown, prepared again from what it holds, as if with its passages of now."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Columns
from graphrerank.data.corpus_folder.opening import (
    VECTOR_INDEXES,
    CorpusManifest,
    EncoderName,
    open_corpus,
    read_columns,
    read_manifest,
)
from graphrerank.data.corpus_folder.preparation import PARTS, prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.derived_edges import EXTRACTORS, DerivedEdges
from graphrerank.files import sole_use
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.entity_incidence import normalized_names
from graphrerank.graphs.passages import Passages

Integers = npt.NDArray[np.int64]


def compact_corpus(folder: str | Path) -> Path:
    """Prepare a corpus folder again, if it has grown, from its own texts, vectors and explicit edges.

    Edges that the preparation found in texts (mentions, shared entities, nearest neighbours) are found again, among old
    and added passages, by the same settings; words and an index of vectors are made again. The folder then equals one
    that was prepared with these passages, up to nearest neighbours of float16 vectors, which are those of the rounded
    numbers. Passages are numbered anew if some were removed. Processes that have the folder open go on with what they
    have. All files are compared with their hashes first. Until the end the folder is what it was; no passage is added
    meanwhile.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If the folder is damaged, or an older version wrote it.
    """
    folder = Path(folder)
    read_manifest(folder, to_change=True)  # before a folder is made
    with sole_use(folder):
        manifest, columns = read_columns(folder, thorough=True, to_change=True)
        if not manifest.has_grown():
            return folder
        dataset = open_corpus(folder)
        removed = dataset.graph.passages.removed
        kept = torch.arange(dataset.graph.num_nodes) if removed is None else torch.nonzero(~removed).flatten()
        shutil.rmtree(folder / PARTS, ignore_errors=True)  # of a stopped preparation
        encoder, vectors = None, "float16"
        if manifest.encoder is not None:
            encoder = _StoredVectors(manifest.encoder, dataset.graph.encoded, kept)
            vectors = str(dataset.graph.encoded.dtype).removeprefix("torch.")
        return prepare_corpus(
            _prepared_again(dataset, columns, manifest, kept),
            folder,
            encoder=encoder,
            vectors=vectors,
            index=next((kind for kind, name in VECTOR_INDEXES.items() if name in columns), None),
            is_locked=True,
        )


def start_compaction(folder: str | Path) -> "subprocess.Popen[bytes]":
    """Compact a corpus folder in another process, which goes on when this one ends; its output is dropped."""
    command = f"from {__name__} import compact_corpus; compact_corpus({str(folder)!r})"
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", command], stdin=quiet, stdout=quiet, stderr=quiet)


class _StoredVectors:
    """An encoder that is asked for the passages of a corpus in their order, and reads their vectors."""

    def __init__(self, encoder: EncoderName, embedding: Tensor, nodes: Tensor) -> None:
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        self._embedding, self._nodes = embedding, nodes
        self._start = 0

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Read the vectors of the passages that follow those of the call before."""
        start, self._start = self._start, self._start + len(texts)
        return self._embedding[self._nodes[start : self._start]]


def _prepared_again(dataset: Dataset, columns: Columns, manifest: CorpusManifest, kept: Tensor) -> Dataset:
    """Build the data set of the passages that are left, numbered anew, with its edges as a reader finds them."""
    graph, places = dataset.graph.with_rows_in_order(), kept.numpy()
    number = torch.full((graph.num_nodes,), -1)
    number[kept] = torch.arange(len(kept))
    lengths = graph.passages.title_lengths
    passages = Passages(
        columns.strings("node_ids").chosen(places),
        columns.strings("texts").chosen(places),
        None if lengths is None else lengths[kept],
        graph.passages.language,
    )
    if "stated.pairs" in columns:
        pairs = number[columns.tensor("stated.pairs", "<i8", (2,))]
        weight, types = columns.tensor("stated.weight", "<f4"), columns.tensor("stated.type", "<i8")
        left = (pairs >= 0).all(1)
        stated = CorpusGraph.from_edges(
            passages.ids, passages.texts, pairs[left], weight[left], edge_type=types[left], undirected=False
        )
        again = replace(stated, passages=passages)
    else:
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), graph.degree[kept].cumsum(0)])
        again = CorpusGraph(passages, indptr, number[graph.indices], graph.weight, graph.weight_by_type)
    derived, rule = None, manifest.derived
    if rule is not None:
        has_names = rule.entity_source is not None
        names = _entity_names(columns, rule.entity_source, passages.texts, places) if has_names else None
        derived = DerivedEdges(again.typed_edges(), rule, names)
        again = derived.join(passages)
    return replace(
        dataset,
        graph=again,
        splits={split: Qrels(qrels.query, number[qrels.node], qrels.gain) for split, qrels in dataset.splits.items()},
        knn=manifest.knn,
        knn_below=len(kept) if manifest.knn_below == manifest.num_prepared else manifest.knn_below,  # all, as before
        encoded_by=None,
        derived=derived,
    )


def _entity_names(columns: Columns, source: str | None, texts: Sequence[str], places: Integers) -> list[set[str]]:
    """List the entities of some passages; those of added ones, whose names were not given, are extracted."""
    held = [json.loads(names) for names in columns.strings("stated.entities").chosen(places)]
    unknown = [place for place, names in enumerate(held) if names is None]
    if unknown and source in EXTRACTORS:
        extracted = EXTRACTORS[source]().extract([texts[place] for place in unknown])
        for place, names in zip(unknown, normalized_names([of_text.names for of_text in extracted]), strict=True):
            held[place] = names
    return [set(names or ()) for names in held]
