"""Passages that are added to a corpus folder and removed from it, at the cost of what is added; and its compaction.

Columns are appended to; a row of edges that changes is written again, behind all others. The manifest, which says how
many rows count, is written last: a growth that is killed before has changed nothing, and is overwritten.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphrerank.core import Encoder
from graphrerank.core.sparse_rows import row_slots
from graphrerank.corpus import PackedStrings
from graphrerank.corpus.edge_lists import check_edges, lay_out_types, merge_parallel
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_fields import check_record
from graphrerank.corpus.permissions import PRINCIPALS
from graphrerank.corpus_store.opening import (
    CORPUS_MANIFEST,
    VECTOR_INDEXES,
    Array,
    Columns,
    ColumnWriter,
    CorpusManifest,
    map_graph,
    open_corpus,
    read_columns,
    read_corpus_manifest,
    stated_edges,
)
from graphrerank.corpus_store.preparation import PARTS_FOLDER, StoredVectors, prepare_corpus
from graphrerank.corpus_store.word_columns import hash_strings, read_words
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import EXTRACTORS, FILE_ENTITIES, DerivedEdges, graph_of
from graphrerank.data.encoder import check_finite_vectors
from graphrerank.data.qrels import Qrels
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use, write_json

COMPACT_SHARE, COMPACT_LEAST = 0.25, 1000  # of the prepared passages, and number, of changes that make it due
BLOCK_EDGES = 1 << 20  # written together, when the first edge with a type is added
Integers = npt.NDArray[np.int64]


class NewEdge(NamedTuple):
    """An undirected edge of a passage that is added with another one, of the same growth or of the corpus."""

    source: str  # id of a passage
    target: str
    weight: float = 1.0  # positive
    edge_type: int = OTHER  # number in `graphrerank.corpus.edge_types.EDGE_TYPES`


class EdgeError(UserError):
    """A new edge, at ``place`` among the new edges, does not join a new passage with one of the corpus."""

    def __init__(self, edge: NewEdge, position: int, reason: str) -> None:
        super().__init__(f"`edges` must join a new passage with one of the corpus, got {tuple(edge[:2])}: {reason}")
        self.place = position


class Growth(NamedTuple):
    """How a corpus has changed."""

    num_added: int  # passages, those that replaced others among them
    num_removed: int  # passages, those that were replaced among them
    num_nodes: int  # passages of the corpus now
    needs_compaction: bool = False  # whether many of them came or went since the preparation


def grow_corpus(
    folder: str | Path,
    node_ids: Sequence[str] = (),
    texts: Sequence[str] = (),
    *,
    edges: Sequence[NewEdge] = (),
    entities: Sequence[Iterable[str]] | None = None,
    remove: Sequence[str] = (),
    replace: bool = False,
    ignore_absent: bool = False,
    encoder: Encoder | None = None,
    title_lengths: Sequence[int] | None = None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
    compact: bool = True,
) -> Growth:
    """Remove passages from a corpus folder and add others to it, all or nothing.

    A process that opens the folder afterwards finds the added passages by their words, by their vectors and along
    ``edges``, with the scores that a preparation with these passages gives. Edges that the preparation finds in texts
    (mentions, shared entities, nearest neighbours) join them only after :func:`compact_corpus`; until then passages
    keep their numbers. Time grows with what is added and the edges of its neighbours.

    Args:
        folder: A corpus folder.
        node_ids: ``n`` different ids of new passages.
        texts: Their texts.
        edges: Edges among them and to those that are there; self-loops are left out.
        entities: Names of the entities of each new passage, if the corpus was prepared with entities: needed if they
            came from an extractor of yours; when None, others are extracted by the compaction.
        remove: Ids of passages to remove, with their edges and judgements.
        replace: Whether a new passage may have the id of one that is there, which is then removed.
        ignore_absent: Whether ids in ``remove`` may be of no passage.
        encoder: Encodes the texts; needed if the corpus has vectors.
        title_lengths: ``n`` numbers of characters that are a text's title; None for no titles.
        metadata: Metadata of each new passage, with the ``principals`` that may see it. None for no metadata, so that
            all are public.
        compact: Whether to compact the folder at once where that is due: 1,000 passages, and a quarter of those that
            it was prepared with, came or went since. A service leaves it to :func:`start_compaction`.

    Raises:
        ValueError: If another command writes to the folder, it is damaged, has symbolic links or is of an older
            version, an id, an edge or a passage's metadata do not fit, or the encoder is not that of the corpus.
    """
    folder = Path(folder)
    for node_id, record in zip(node_ids, metadata or (), strict=False):
        try:
            check_record(record)
        except UserError as error:
            raise UserError(f"`metadata` of {node_id!r}: {error}") from None
    read_corpus_manifest(folder)  # before a folder is made
    with sole_use(folder):
        growth = _Growth(folder, {*node_ids, *remove, *(end for edge in edges for end in edge[:2])})
        lengths = [0] * len(node_ids) if title_lengths is None else list(title_lengths)
        lists = {"texts": texts, "title_lengths": lengths, "entities": entities, "metadata": metadata}
        for name, given in lists.items():
            if given is not None and len(given) != len(node_ids):
                raise UserError(f"`{name}` must have one entry per id ({len(node_ids)}), got {len(given)}")
        removed = growth.take_removed(node_ids, remove, replaces=replace, ignore_absent=ignore_absent)
        growth.append_texts(node_ids, texts, lengths, entities, metadata, encoder)
        growth.append_edges(node_ids, edges, removed)
        done = growth.commit(len(node_ids), removed)
    if compact and done.needs_compaction:
        compact_corpus(folder)
    return done


class _Growth:
    """A corpus folder while it grows, with the numbers of some ids; nothing counts before :meth:`commit`."""

    def __init__(self, folder: Path, node_ids: set[str]) -> None:
        self._folder = folder
        self._manifest, self._old = read_columns(folder)
        self._graph = map_graph(self._old, self._manifest)
        self._columns = ColumnWriter(self._old.folder, self._old.entries)
        self._num_tokens = self._manifest.num_tokens
        if self._graph.entities is not None and self._manifest.derived is None:
            raise UserError(f"{folder}: does not name the entities of each passage, so cannot grow; prepare it again")
        passages = self._graph.passages
        hashed = np.isin(self._old.array("node_ids.hashes", "<i8"), hash_strings(list(node_ids)))
        if passages.removed is not None:
            hashed &= ~passages.removed.numpy()
        candidates = ((passages.ids[number], number) for number in np.flatnonzero(hashed).tolist())
        self._numbers = {node_id: number for node_id, number in candidates if node_id in node_ids}

    def take_removed(
        self, node_ids: Sequence[str], remove: Sequence[str], *, replaces: bool, ignore_absent: bool
    ) -> Integers:
        """Return the numbers of passages that go, ascending: those to remove, and those that are replaced."""
        absent = [node_id for node_id in remove if node_id not in self._numbers]
        if absent and not ignore_absent:
            raise UserError(f"`remove` must hold ids of the corpus, got {absent[0]!r}, which is none")
        going = {*remove} & self._numbers.keys()
        for node_id, count in Counter(node_ids).items():
            if count > 1:
                raise UserError(f"`node_ids` must be unique, got {node_id!r} twice")
            if node_id in self._numbers and node_id not in going and not replaces:
                raise UserError(f"`node_ids` must be new, got {node_id!r}, which the corpus has; see `replace`")
        going |= {*node_ids} & self._numbers.keys()
        return np.array(sorted(self._numbers.pop(node_id) for node_id in going), dtype=np.int64)

    def append_texts(
        self,
        node_ids: Sequence[str],
        texts: Sequence[str],
        title_lengths: Sequence[int],
        entities: Sequence[Iterable[str]] | None,
        metadata: Sequence[Mapping[str, Any]] | None,
        encoder: Encoder | None,
    ) -> None:
        """Append ids, texts, their words and, where the corpus has them, titles, entities and vectors."""
        if not node_ids:
            return
        columns, append = self._columns, self._columns.append
        columns.append_strings("node_ids", node_ids)
        columns.append_strings("texts", texts)
        append("node_ids.hashes", hash_strings(node_ids))
        if "metadata.ptr" in self._old:
            columns.append_strings("metadata", Metadata(metadata or [{}] * len(texts)).as_json())
        elif any(PRINCIPALS in record for record in metadata or ()):
            raise UserError(f"{self._folder}: an older version wrote it, without principals; prepare it again")
        if "title_lengths" in self._old:
            append("title_lengths", np.array(title_lengths))
        if (rule := self._manifest.derived) is not None and rule.entity_source is not None:
            if entities is None and (source := rule.entity_source) not in (FILE_ENTITIES, *EXTRACTORS):
                raise UserError(f"`entities` must be given, as those of {self._folder} are by {source}, got none")
            names = [None] * len(texts) if entities is None else map(sorted, normalized_names(entities))
            columns.append_strings("stated.entities", map(json.dumps, names))
        if (wanted := self._manifest.encoder) is not None:
            if encoder is None or encoder.fingerprint != wanted.fingerprint:
                needed = f"{wanted.name} ({wanted.fingerprint[:12]})"
                got = "none" if encoder is None else f"{encoder.name} ({encoder.fingerprint[:12]})"
                raise UserError(f"`encoder` must be that of {self._folder}, {needed}, got {got}")
            append("vectors", check_finite_vectors(encoder.encode(texts), len(texts), encoder.name).numpy())
        words = read_words(texts, self._graph.passages.language)
        self._num_tokens += int(words["token.lengths"].sum(dtype=np.int64))
        append("token.lengths", words["token.lengths"])
        token = np.repeat(self._append_words(words, "token"), np.diff(words["token.ptr"]))
        order = np.argsort(words["token.texts"], kind="stable")
        ptr = np.searchsorted(words["token.texts"][order], np.arange(1, len(texts) + 1))
        append("added.ptr", ptr + columns.entries["added.tokens"].shape[0])
        append("added.tokens", token[order])
        append("added.counts", words["token.counts"][order])
        stem = self._append_words(words, "stem")[words["stem.stems"]]
        order = np.lexsort((stem, np.repeat(np.arange(len(texts)), np.diff(words["stem.ptr"]))))
        append("stem.ptr", words["stem.ptr"][1:] + columns.entries["stem.stems"].shape[0])
        append("stem.stems", stem[order])
        append("stem.in_lead", words["stem.in_lead"][order])

    def _append_words(self, words: Mapping[str, Array], kind: str) -> Integers:
        """Number the tokens or stems of new texts; those that the corpus lacks follow in order of appearance."""
        found = PackedStrings(words[f"{kind}.words.offsets"], words[f"{kind}.words.content"])
        index = self._graph.passages.words
        assert index is not None
        vocabulary = index.tokens.words if kind == "token" else index.stems.words
        numbers = np.array([vocabulary.rank(word) for word in found], dtype=np.int64)
        new = np.flatnonzero(numbers < 0)
        numbers[new] = np.arange(len(vocabulary), len(vocabulary) + len(new))
        self._columns.append_strings(f"{kind}.words", (found[place] for place in new.tolist()))
        if kind == "stem":
            self._columns.append("stem.texts_with", np.zeros(len(new), dtype=np.int64))  # of prepared texts
        return numbers

    def append_edges(self, node_ids: Sequence[str], new_edges: Sequence[NewEdge], removed: Integers) -> None:
        """Append the rows of new passages, and again those of old ones whose edges change."""
        graph, append, gone = self._graph, self._columns.append, torch.from_numpy(removed)
        first, num_nodes = graph.num_nodes, graph.num_nodes + len(node_ids)
        new = {node_id: first + place for place, node_id in enumerate(node_ids)}
        numbers = self._numbers | new
        for position, edge in enumerate(new_edges):
            absent = [end for end in edge[:2] if end not in numbers]
            if absent or not {*edge[:2]} & new.keys():
                raise EdgeError(edge, position, f"{absent[0]!r} is of none" if absent else "neither is new")
        new_edges = [edge for edge in new_edges if edge.source != edge.target]
        ends = [[numbers[end] for end in edge[:2]] for edge in new_edges]
        pairs = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2)
        weight = torch.tensor([edge.weight for edge in new_edges], dtype=torch.float32)
        types = torch.tensor([edge.edge_type for edge in new_edges], dtype=torch.int64)
        check_edges(num_nodes, pairs, weight, types)
        _, slot = row_slots(graph.indptr, gone, graph.row_stop)
        touched = torch.unique(torch.cat([pairs.flatten(), graph.indices[slot]]))
        touched = touched[(touched < first) & ~torch.isin(touched, gone)]
        row, slot = row_slots(graph.indptr, touched, graph.row_stop)
        kept = ~torch.isin(graph.indices[slot], gone)
        row, slot = row[kept], slot[kept]
        place, old_weight, old_types = graph.types_of(slot)
        both = torch.cat([pairs, pairs.flip(1)])
        edges = torch.cat([torch.stack([touched[row], graph.indices[slot]], dim=1)[place], both])
        weights, kinds = torch.cat([old_weight, weight, weight]), torch.cat([old_types, types, types])
        merged, largest = merge_parallel(edges, weights, num_nodes)
        if graph.weight_by_type is None and bool((types != OTHER).any()):  # all edges have types from now on
            before, after = OTHER, len(EDGE_TYPES) - 1 - OTHER
            tables = (pad(old[:, None], (before, after)).numpy() for old in torch.split(graph.weight, BLOCK_EDGES))
            self._columns.write("edges.weight_by_type", "<f4", tables, (len(EDGE_TYPES),))
        if "edges.weight_by_type" in self._columns.entries:
            append("edges.weight_by_type", lay_out_types(edges, weights, kinds, merged, num_nodes).numpy())
        end, node = self._columns.entries["edges.indices"].shape[0], merged[:, 0].contiguous()
        written = torch.cat([touched, torch.arange(first, num_nodes), gone])
        start, stop = (end + torch.searchsorted(node, written, right=right) for right in (False, True))
        append("edges.moved", torch.stack([written, start, stop], dim=1).numpy())
        append("edges.indptr", np.zeros(len(node_ids), dtype=np.int64))
        append("edges.indices", merged[:, 1].numpy())
        append("edges.weight", largest.numpy())
        if "stated.pairs" in self._old:
            for name, rows in (("pairs", both), ("weight", weight.repeat(2)), ("type", types.repeat(2))):
                append(f"stated.{name}", rows.numpy())
        append("removed", removed)

    def commit(self, num_added: int, removed: Integers) -> Growth:
        """Write the manifest if anything has changed."""
        old, entries = self._manifest, self._columns.entries
        if num_added or len(removed):
            lengths = self._old.array("token.lengths", "<i4")
            changed = {
                "fingerprint": short_hash(hash_texts([old.fingerprint, *(repr(of.pieces) for of in entries.values())])),
                "num_tokens": self._num_tokens - int(lengths[removed].sum(dtype=np.int64)),
                "edge_counts": {},  # counted by source when it was prepared
                "columns": entries,
            }
            write_json(self._folder / CORPUS_MANIFEST, old.model_copy(update=changed).model_dump())
        count, gone = entries["token.lengths"].shape[0], entries["removed"].shape[0]
        is_due = count - old.num_prepared + gone >= max(COMPACT_LEAST, COMPACT_SHARE * old.num_prepared)
        return Growth(num_added, len(removed), count - gone, needs_compaction=is_due)


def compact_corpus(folder: str | Path) -> Path:
    """Prepare a corpus folder again, if it has grown, from its texts, vectors and explicit edges, without an encoder.

    The folder then equals one that was prepared with these passages, but for nearest neighbours of float16 vectors,
    which are those of the rounded numbers. Processes that have the folder open go on with what they have; until the end
    it is what it was, and takes no passages. Errors are those of :func:`grow_corpus`; all hashes are compared first.
    """
    folder = Path(folder)
    read_corpus_manifest(folder)  # before a folder is made
    with sole_use(folder):
        manifest, columns = read_columns(folder, thorough=True)
        if not manifest.has_grown():
            return folder
        dataset = open_corpus(folder)
        removed = dataset.graph.passages.removed
        kept = torch.arange(dataset.graph.num_nodes) if removed is None else torch.nonzero(~removed).flatten()
        shutil.rmtree(folder / PARTS_FOLDER, ignore_errors=True)  # of a stopped preparation
        encoder, vectors = None, "float16"
        if (known := manifest.encoder) is not None:
            encoder = StoredVectors(known.name, known.fingerprint, dataset.graph.encoded, kept)
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
    # -P: else Python would look for modules in the current folder first
    return subprocess.Popen([sys.executable, "-P", "-c", command], stdin=quiet, stdout=quiet, stderr=quiet)


def _prepared_again(dataset: Dataset, columns: Columns, manifest: CorpusManifest, kept: Tensor) -> Dataset:
    """Build the data set of the passages that are left, renumbered, with its edges as a reader finds them."""
    graph, places = dataset.graph.with_rows_in_order(), kept.numpy()
    number = torch.full((graph.num_nodes,), -1)
    number[kept] = torch.arange(len(kept))
    passages = replace(graph.passages, words=None).select(places)
    stated = stated_edges(columns) or graph.typed_edges()
    pairs = number[stated[0]]
    left = (pairs >= 0).all(1)
    again, derived = graph_of(passages, [(pairs[left], stated[1][left], stated[2][left])], None), None
    if (rule := manifest.derived) is not None:
        source = rule.entity_source
        names = None if source is None else _entity_names(columns, source, passages.texts, places)
        derived = DerivedEdges(again.typed_edges(), rule, names)
        again = derived.join(passages)
    guarded = None if graph.guarded is None else graph.guarded.select(number)
    return replace(
        dataset,
        graph=replace(again, guarded=guarded),
        splits={split: Qrels(qrels.query, number[qrels.node], qrels.gain) for split, qrels in dataset.splits.items()},
        knn=manifest.knn,
        knn_below=len(kept) if manifest.knn_below == manifest.num_prepared else manifest.knn_below,  # all, as before
        encoded_by=None,
        derived=derived,
        found=None,
    )


def _entity_names(columns: Columns, source: str, texts: Sequence[str], places: Integers) -> list[set[str]]:
    """List the entities of some passages; those of added ones, whose names were not given, are extracted."""
    held = [json.loads(names) for names in columns.strings("stated.entities").chosen(places)]
    unknown = [place for place, names in enumerate(held) if names is None]
    if unknown and source in EXTRACTORS:
        extracted = EXTRACTORS[source]().extract([texts[place] for place in unknown])
        for place, names in zip(unknown, normalized_names([of_text.names for of_text in extracted]), strict=True):
            held[place] = names
    return [set(names or ()) for names in held]
