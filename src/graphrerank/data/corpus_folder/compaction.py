"""A corpus folder that has grown, written anew: it opens as fast as at first, and holds nothing of what was removed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.corpus_folder.columns import Columns
from graphrerank.data.corpus_folder.derived_columns import derived_of
from graphrerank.data.corpus_folder.node_numbers import hash_strings
from graphrerank.data.corpus_folder.opening import VECTOR_INDEXES, open_corpus, read_manifest
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.derived_edges import DerivedEdges
from graphrerank.files import sole_use
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.passages import Passages

BLOCK = 1 << 14  # texts hashed at once


def compact_corpus(folder: str | Path) -> Path:
    """Write a corpus folder anew if it has grown; vectors are copied, words are read again.

    Passages are numbered anew if some were removed. Processes that have the folder open go on with what they have.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If the folder is damaged.
    """
    folder = Path(folder)
    read_manifest(folder)
    with sole_use(folder):
        manifest = read_manifest(folder)
        dataset = open_corpus(folder)
        columns = manifest["columns"]
        if columns["added.ptr"]["shape"] == [1] and columns["removed"]["shape"] == [0]:
            return folder
        kept = torch.arange(dataset.graph.num_nodes)
        if (removed := dataset.graph.passages.removed) is not None:
            kept = kept[~removed]
        only = _only(dataset, kept)
        if manifest.get("derived") is not None:
            derived = derived_of(Columns(folder / manifest["columns_folder"], columns), manifest, kept)
            only = _derived_again(only, derived)
        encoder, vectors = None, "float16"
        if (known := manifest["encoder"]) is not None:
            embedding = dataset.graph.encoded
            encoder = _StoredVectors(known["name"], known["fingerprint"], only.graph.texts, kept, embedding)
            vectors = str(embedding.dtype).removeprefix("torch.")
        index = next((kind for kind, name in VECTOR_INDEXES.items() if name in columns), None)
        near = manifest.get("nearest")
        return prepare_corpus(only, folder, encoder=encoder, vectors=vectors, index=index, is_locked=True, nearest=near)


class _StoredVectors:
    """An encoder that knows the texts of a corpus: equal texts have equal vectors."""

    def __init__(self, name: str, fingerprint: str, texts: Sequence[str], nodes: Tensor, embedding: Tensor) -> None:
        self.name, self.fingerprint = name, fingerprint
        self._nodes, self._embedding = nodes, embedding
        blocks = (hash_strings(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK))
        hashes = np.concatenate([np.zeros(0, dtype=np.int64), *blocks])
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Look up the vectors of texts of the corpus."""
        place = np.searchsorted(self._hashes, hash_strings(texts))
        return self._embedding[self._nodes[torch.from_numpy(self._order[place])]]


class _Chosen(Sequence[str]):
    """Some of many strings."""

    def __init__(self, strings: Sequence[str], places: Tensor) -> None:
        self._strings, self._places = strings, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._strings[place] for place in self._places[index].tolist()]
        return self._strings[int(self._places[index])]


def _derived_again(dataset: Dataset, derived: DerivedEdges) -> Dataset:
    """Return a data set whose mentions and shared entities were looked for anew, as by a preparation."""
    graph = dataset.graph
    known = graph.passages.title_lengths
    lengths = [0] * graph.num_nodes if known is None else known.tolist()
    again = derived.derived_again(graph.texts, lengths)
    if again.makes_edges:
        pairs, weight, types = again.joined()
        made = CorpusGraph.from_edges(graph.node_ids, graph.texts, pairs, weight, edge_type=types)
        graph = graph.with_edges_of(made)
    if again.entity_names is not None and not again.makes_choices:
        graph = graph.with_entities(EntityIncidence.from_names(again.entity_names, max_share=again.max_entity_share))
    return replace(dataset, graph=graph, derived=again)


def _only(dataset: Dataset, kept: Tensor) -> Dataset:
    """Return a data set with some passages, ascending, which are numbered anew; no edge or judgement has others."""
    graph = dataset.graph.with_rows_in_order()
    number = torch.full((graph.num_nodes,), -1)
    number[kept] = torch.arange(len(kept))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), graph.degree[kept].cumsum(0)])
    splits = {split: Qrels(qrels.query, number[qrels.node], qrels.gain) for split, qrels in dataset.splits.items()}
    lengths = graph.passages.title_lengths
    passages = Passages(
        _Chosen(graph.node_ids, kept),
        _Chosen(graph.texts, kept),
        None if lengths is None else lengths[kept],
        graph.passages.language,
    )
    chosen = CorpusGraph(passages, indptr, number[graph.indices], graph.weight, graph.weight_by_type)
    fingerprint = short_hash(hash_texts([dataset.fingerprint, "compacted"]))
    return replace(dataset, graph=chosen, splits=splits, encoded_by=None, known_fingerprint=fingerprint)
