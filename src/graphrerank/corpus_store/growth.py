"""Add passages to a corpus folder, remove them, and compact it.

The cost of an update is proportional to the change, not to the corpus.
Columns are appended to. A row of edges that changes is written again after all other rows. The manifest, which contains
the number of valid rows, is written last, so an update that is killed before has no effect and is overwritten.
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

from graphrerank._moved import warn_renamed
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
from graphrerank.data.encoder import check_finite_vectors, encode_passages
from graphrerank.data.qrels import Qrels
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use, write_json

# A compaction is due if at least this share of the prepared passages and at least this number of passages changed.
COMPACT_SHARE = 0.25
COMPACT_LEAST = 1000
BLOCK_EDGES = 1 << 20  # Number of edges per block when the column of types is created.
Integers = npt.NDArray[np.int64]


class NewEdge(NamedTuple):
    """Undirected edge between an added passage and another one, which may be new or already in the corpus.

    Attributes:
        source: Id of a passage.
        target: Id of another passage.
        weight: Positive weight.
        edge_type: Index in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.
    """

    source: str
    target: str
    weight: float = 1.0
    edge_type: int = OTHER


class EdgeError(UserError):
    """Error raised if a new edge does not connect a new passage with a passage of the corpus.

    Args:
        edge: Invalid edge.
        position: Index of the edge in the list of new edges.
        reason: Reason why the edge is invalid.

    Attributes:
        position: Index of the edge in the list of new edges.
    """

    def __init__(self, edge: NewEdge, position: int, reason: str) -> None:
        super().__init__(f"`edges` must connect a new passage with one of the corpus, got {tuple(edge[:2])}: {reason}")
        self.position = position

    @property
    def place(self) -> int:
        """Deprecated alias of :attr:`position`."""
        warn_renamed("EdgeError.place", "EdgeError.position")
        return self.position


class Growth(NamedTuple):
    """Result of an update of a corpus folder.

    Attributes:
        num_added: Number of added passages, including replacements.
        num_removed: Number of removed passages, including replaced ones.
        num_nodes: Number of passages in the corpus after the update.
        needs_compaction: Whether so many passages changed since the preparation that a compaction is due.
    """

    num_added: int
    num_removed: int
    num_nodes: int
    needs_compaction: bool = False


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
    """Add passages to a corpus folder and remove others in one transaction.

    A process that opens the folder afterwards finds the added passages by words, by vectors and along ``edges``, with
    the same scores as if the folder had been prepared with them. Derived edges (mentions, shared entities, nearest
    neighbours) of the added passages are computed by :func:`compact_corpus`. Until then passages keep their numbers.
    The run time is proportional to the number of added passages and the edges of their neighbours.

    Args:
        folder: Corpus folder.
        node_ids: ``n`` unique ids of new passages.
        texts: ``n`` texts of the new passages.
        edges: Edges of new passages, to each other or to passages of the corpus. Self-loops are ignored.
        entities: Names of the entities of each new passage. Required if the corpus was prepared with a custom
            extractor. If None, entities are extracted by the compaction. Ignored if the corpus has no entities.
        remove: Ids of passages to remove, with their edges and judgements.
        replace: Whether to replace passages whose ids are in ``node_ids``. By default, existing ids raise an error.
        ignore_absent: Whether to ignore ids in ``remove`` that are not in the corpus. By default, they raise an error.
        encoder: Encoder of the texts. Required if the corpus has vectors.
        title_lengths: Number of characters of the title at the start of each text. If None, the texts have no titles.
        metadata: Metadata of each new passage, including the ``principals`` who may see it. If None, the passages have
            no metadata and are public.
        compact: Whether to compact the folder if a compaction is due, that is, if at least 1,000 passages and a quarter
            of the prepared ones were added or removed. A service uses :func:`start_compaction` instead.

    Returns:
        Number of added and removed passages, and the new size of the corpus.

    Raises:
        ValueError: If another command is writing to the folder; if the folder is damaged, contains symbolic links or is
            of an older version; if an id, an edge or the metadata of a passage is invalid; or if the encoder is not
            that of the corpus.
    """
    folder = Path(folder)
    for node_id, record in zip(node_ids, metadata or (), strict=False):
        try:
            check_record(record)
        except UserError as error:
            raise UserError(f"`metadata` of {node_id!r}: {error}") from None
    read_corpus_manifest(folder)  # `sole_use` would create a missing folder.
    with sole_use(folder):
        named_ids = {*node_ids, *remove, *(end for edge in edges for end in edge[:2])}
        transaction = _Transaction(folder, named_ids)
        lengths = [0] * len(node_ids) if title_lengths is None else list(title_lengths)
        lists = {"texts": texts, "title_lengths": lengths, "entities": entities, "metadata": metadata}
        for name, entries in lists.items():
            if entries is not None and len(entries) != len(node_ids):
                raise UserError(f"`{name}` must have one entry per id ({len(node_ids)}), got {len(entries)}")
        removed = transaction.take_removed(node_ids, remove, replaces=replace, ignore_absent=ignore_absent)
        transaction.append_texts(node_ids, texts, lengths, entities, metadata, encoder)
        transaction.append_edges(node_ids, edges, removed)
        growth = transaction.commit(len(node_ids), removed)
    if compact and growth.needs_compaction:
        compact_corpus(folder)
    return growth


class _NumberedEdges(NamedTuple):
    """New undirected edges between numbered passages.

    Attributes:
        pairs: Numbers of both passages of each edge, ``[M, 2]`` int64.
        weight: Positive weights ``[M]``, float32.
        types: Index of the type of each edge, ``[M]`` int64.
    """

    pairs: Tensor
    weight: Tensor
    types: Tensor

    def in_both_directions(self) -> "_NumberedEdges":
        """Return each edge followed, after all edges, by its reverse."""
        both = torch.cat([self.pairs, self.pairs.flip(1)])
        return _NumberedEdges(both, self.weight.repeat(2), self.types.repeat(2))


class _Transaction:
    """Transaction on a corpus folder. Changes become visible only after :meth:`commit`.

    Args:
        folder: Corpus folder, which is locked.
        node_ids: Ids of all passages that the transaction names. Their numbers are looked up.
    """

    def __init__(self, folder: Path, node_ids: set[str]) -> None:
        self._folder = folder
        self._manifest, self._old = read_columns(folder)
        self._graph = map_graph(self._old, self._manifest)
        self._columns = ColumnWriter(self._old.folder, self._old.entries)
        self._num_tokens = self._manifest.num_tokens
        if self._graph.entities is not None and self._manifest.derived is None:
            raise UserError(
                f"{folder} does not contain the entities of each passage, so no passages can be added to it; "
                "prepare the corpus again"
            )
        passages = self._graph.passages
        has_hash = np.isin(self._old.array("node_ids.hashes", "<i8"), hash_strings(list(node_ids)))
        if passages.removed is not None:
            has_hash &= ~passages.removed.numpy()
        candidates = ((passages.ids[number], number) for number in np.flatnonzero(has_hash).tolist())
        self._numbers = {node_id: number for node_id, number in candidates if node_id in node_ids}

    def take_removed(
        self, node_ids: Sequence[str], remove: Sequence[str], *, replaces: bool, ignore_absent: bool
    ) -> Integers:
        """Return the sorted numbers of the passages to remove, including those that are replaced."""
        absent = [node_id for node_id in remove if node_id not in self._numbers]
        if absent and not ignore_absent:
            raise UserError(f"`remove` must contain ids of the corpus, got {absent[0]!r}")
        ids_to_remove = {*remove} & self._numbers.keys()
        for node_id, count in Counter(node_ids).items():
            if count > 1:
                raise UserError(f"`node_ids` must be unique, got {node_id!r} twice")
            if node_id in self._numbers and node_id not in ids_to_remove and not replaces:
                raise UserError(
                    f"`node_ids` must be new, got {node_id!r}, which is in the corpus; set `replace` to replace it"
                )
        ids_to_remove |= {*node_ids} & self._numbers.keys()  # the passages that are replaced
        return np.array(sorted(self._numbers.pop(node_id) for node_id in ids_to_remove), dtype=np.int64)

    def append_texts(
        self,
        node_ids: Sequence[str],
        texts: Sequence[str],
        title_lengths: Sequence[int],
        entities: Sequence[Iterable[str]] | None,
        metadata: Sequence[Mapping[str, Any]] | None,
        encoder: Encoder | None,
    ) -> None:
        """Append ids, texts and words and, where the corpus has them, titles, entities, metadata and vectors."""
        if not node_ids:
            return
        columns, append = self._columns, self._columns.append
        columns.append_strings("node_ids", node_ids)
        columns.append_strings("texts", texts)
        append("node_ids.hashes", hash_strings(node_ids))
        if "metadata.ptr" in self._old:
            columns.append_strings("metadata", Metadata(metadata or [{}] * len(texts)).as_json())
        elif any(PRINCIPALS in record for record in metadata or ()):
            raise UserError(
                f"{self._folder} was written by an older version without principals; prepare the corpus again"
            )
        if "title_lengths" in self._old:
            append("title_lengths", np.array(title_lengths))
        if (rule := self._manifest.derived) is not None and rule.entity_source is not None:
            if entities is None and (source := rule.entity_source) not in (FILE_ENTITIES, *EXTRACTORS):
                raise UserError(
                    f"`entities` is required, because those of {self._folder} were extracted by {source}, got None"
                )
            names = [None] * len(texts) if entities is None else map(sorted, normalized_names(entities))
            columns.append_strings("stated.entities", map(json.dumps, names))
        if (expected := self._manifest.encoder) is not None:
            if encoder is None or encoder.fingerprint != expected.fingerprint:
                name = f"{expected.name} ({expected.fingerprint[:12]})"
                got = "None" if encoder is None else f"{encoder.name} ({encoder.fingerprint[:12]})"
                raise UserError(f"`encoder` must be {name}, the encoder of {self._folder}, got {got}")
            vectors = encode_passages(encoder, node_ids, texts)
            append("vectors", check_finite_vectors(vectors, len(texts), encoder.name).numpy())
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
        """Return the numbers of the tokens or stems of new texts, and append those that are new to the vocabulary."""
        strings = PackedStrings(words[f"{kind}.words.offsets"], words[f"{kind}.words.content"])
        index = self._graph.passages.words
        assert index is not None
        vocabulary = index.tokens.words if kind == "token" else index.stems.words
        numbers = np.array([vocabulary.rank(word) for word in strings], dtype=np.int64)
        new = np.flatnonzero(numbers < 0)
        numbers[new] = np.arange(len(vocabulary), len(vocabulary) + len(new))
        self._columns.append_strings(f"{kind}.words", (strings[index] for index in new.tolist()))
        if kind == "stem":
            self._columns.append("stem.texts_with", np.zeros(len(new), dtype=np.int64))  # Counts prepared texts only.
        return numbers

    def append_edges(self, node_ids: Sequence[str], new_edges: Sequence[NewEdge], removed: Integers) -> None:
        """Append the rows of new passages, and rewrite the rows of old passages whose edges change."""
        graph, append = self._graph, self._columns.append
        removed_nodes = torch.from_numpy(removed)
        num_old, num_nodes = graph.num_nodes, graph.num_nodes + len(node_ids)
        added = self._number_edges(node_ids, new_edges)
        check_edges(num_nodes, *added)
        both = added.in_both_directions()
        changed = self._changed_neighbours(added.pairs, removed_nodes)
        remaining = self._remaining_edges(changed, removed_nodes)
        edges, weights, types = map(torch.cat, zip(remaining, both, strict=True))
        merged, largest = merge_parallel(edges, weights, num_nodes)
        if graph.weight_by_type is None and bool((added.types != OTHER).any()):  # From now on, all edges have types.
            self._write_types_of_old_edges()
        if "edges.weight_by_type" in self._columns.entries:
            append("edges.weight_by_type", lay_out_types(edges, weights, types, merged, num_nodes).numpy())
        num_stored = self._columns.entries["edges.indices"].shape[0]
        node = merged[:, 0].contiguous()  # ascending
        moved = torch.cat([changed, torch.arange(num_old, num_nodes), removed_nodes])
        start, stop = (num_stored + torch.searchsorted(node, moved, right=right) for right in (False, True))
        append("edges.moved", torch.stack([moved, start, stop], dim=1).numpy())
        append("edges.indptr", np.zeros(len(node_ids), dtype=np.int64))
        append("edges.indices", merged[:, 1].numpy())
        append("edges.weight", largest.numpy())
        if "stated.pairs" in self._old:
            for name, rows in (("pairs", both.pairs), ("weight", both.weight), ("type", both.types)):
                append(f"stated.{name}", rows.numpy())
        append("removed", removed)

    def _number_edges(self, node_ids: Sequence[str], new_edges: Sequence[NewEdge]) -> _NumberedEdges:
        """Check the ends of new edges, and return the edges without self-loops."""
        new = {node_id: self._graph.num_nodes + index for index, node_id in enumerate(node_ids)}
        numbers = self._numbers | new
        for position, edge in enumerate(new_edges):
            absent = [end for end in edge[:2] if end not in numbers]
            if absent or not {*edge[:2]} & new.keys():
                raise EdgeError(edge, position, f"{absent[0]!r} is unknown" if absent else "neither passage is new")
        new_edges = [edge for edge in new_edges if edge.source != edge.target]
        pairs = [[numbers[edge.source], numbers[edge.target]] for edge in new_edges]
        return _NumberedEdges(
            torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
            torch.tensor([edge.weight for edge in new_edges], dtype=torch.float32),
            torch.tensor([edge.edge_type for edge in new_edges], dtype=torch.int64),
        )

    def _changed_neighbours(self, pairs: Tensor, removed_nodes: Tensor) -> Tensor:
        """Return the old passages, ascending, that get a new edge or lose an edge, without the removed ones."""
        graph = self._graph
        _, slot = row_slots(graph.indptr, removed_nodes, graph.row_stop)
        nodes = torch.unique(torch.cat([pairs.flatten(), graph.indices[slot]]))
        return nodes[(nodes < graph.num_nodes) & ~torch.isin(nodes, removed_nodes)]

    def _remaining_edges(self, nodes: Tensor, removed_nodes: Tensor) -> _NumberedEdges:
        """Return the stored edges of passages to neighbours that are not removed, one entry per type of an edge."""
        graph = self._graph
        row, slot = row_slots(graph.indptr, nodes, graph.row_stop)
        remains = ~torch.isin(graph.indices[slot], removed_nodes)
        row, slot = row[remains], slot[remains]
        position, weight, types = graph.types_of(slot)
        pairs = torch.stack([nodes[row], graph.indices[slot]], dim=1)[position]
        return _NumberedEdges(pairs, weight, types)

    def _write_types_of_old_edges(self) -> None:
        """Write the column of weights by type, in which all old edges have the type ``other``."""
        columns_before, columns_after = OTHER, len(EDGE_TYPES) - 1 - OTHER
        tables = (
            pad(weight[:, None], (columns_before, columns_after)).numpy()
            for weight in torch.split(self._graph.weight, BLOCK_EDGES)
        )
        self._columns.write("edges.weight_by_type", "<f4", tables, (len(EDGE_TYPES),))

    def commit(self, num_added: int, removed: Integers) -> Growth:
        """Write the manifest if anything has changed, and return the result."""
        old, entries = self._manifest, self._columns.entries
        if num_added or len(removed):
            lengths = self._old.array("token.lengths", "<i4")
            changed = {
                "fingerprint": short_hash(
                    hash_texts([old.fingerprint, *(repr(entry.pieces) for entry in entries.values())])
                ),
                "num_tokens": self._num_tokens - int(lengths[removed].sum(dtype=np.int64)),
                "edge_counts": {},  # The counts by source are known only at preparation.
                "columns": entries,
            }
            write_json(self._folder / CORPUS_MANIFEST, old.model_copy(update=changed).model_dump())
        num_stored, num_removed = entries["token.lengths"].shape[0], entries["removed"].shape[0]
        num_changed = num_stored - old.num_prepared + num_removed
        is_due = num_changed >= max(COMPACT_LEAST, COMPACT_SHARE * old.num_prepared)
        return Growth(num_added, len(removed), num_stored - num_removed, needs_compaction=is_due)


def compact_corpus(folder: str | Path) -> Path:
    """Prepare a corpus folder again from its texts, vectors and explicit edges, without an encoder.

    The result equals a folder that was prepared with the current passages, except that nearest neighbours of float16
    vectors are computed from the rounded vectors. Processes that have opened the folder are not affected. Until the
    compaction completes, the folder has its previous content and cannot be updated. All files are compared with their
    hashes first.

    Args:
        folder: Corpus folder. Nothing is done if it has not changed since its preparation.

    Returns:
        The folder.

    Raises:
        ValueError: If another command is writing to the folder, or if the folder is damaged.
    """
    folder = Path(folder)
    read_corpus_manifest(folder)  # `sole_use` would create a missing folder.
    with sole_use(folder):
        manifest, columns = read_columns(folder, thorough=True)
        if not manifest.has_grown():
            return folder
        dataset = open_corpus(folder)
        removed = dataset.graph.passages.removed
        nodes = torch.arange(dataset.graph.num_nodes) if removed is None else torch.nonzero(~removed).flatten()
        shutil.rmtree(folder / PARTS_FOLDER, ignore_errors=True)  # Left over from an interrupted preparation.
        encoder, vectors = None, "float16"
        if (name := manifest.encoder) is not None:
            encoder = StoredVectors(name.name, name.fingerprint, dataset.graph.encoded, nodes)
            vectors = str(dataset.graph.encoded.dtype).removeprefix("torch.")
        return prepare_corpus(
            _prepared_again(dataset, columns, manifest, nodes),
            folder,
            encoder=encoder,
            vectors=vectors,
            index=next((kind for kind, name in VECTOR_INDEXES.items() if name in columns), None),
            is_locked=True,
        )


def start_compaction(folder: str | Path) -> "subprocess.Popen[bytes]":
    """Compact a corpus folder in another process, which continues if this process ends.

    Args:
        folder: Corpus folder.

    Returns:
        The process. Its output is discarded.
    """
    command = f"from {__name__} import compact_corpus; compact_corpus({str(folder)!r})"
    quiet = subprocess.DEVNULL
    # -P prevents Python from importing modules of the current folder.
    return subprocess.Popen([sys.executable, "-P", "-c", command], stdin=quiet, stdout=quiet, stderr=quiet)


def _prepared_again(dataset: Dataset, columns: Columns, manifest: CorpusManifest, nodes: Tensor) -> Dataset:
    """Return the data set of the remaining passages, renumbered, with its edges derived again."""
    graph = dataset.graph.with_rows_in_order()
    node_array = nodes.numpy()
    number = torch.full((graph.num_nodes,), -1)
    number[nodes] = torch.arange(len(nodes))
    passages = replace(graph.passages, words=None).select(node_array)
    old_pairs, weight, types = stated_edges(columns) or graph.typed_edges()
    pairs = number[old_pairs]
    remains = (pairs >= 0).all(1)
    rebuilt = graph_of(passages, [(pairs[remains], weight[remains], types[remains])], None)
    derived = None
    if (rule := manifest.derived) is not None:
        source = rule.entity_source
        names = None if source is None else _entity_names(columns, source, passages.texts, node_array)
        derived = DerivedEdges(rebuilt.typed_edges(), rule, names)
        rebuilt = derived.join(passages)
    guarded = None if graph.guarded is None else graph.guarded.select(number)
    return replace(
        dataset,
        graph=replace(rebuilt, guarded=guarded),
        splits={split: Qrels(qrels.query, number[qrels.node], qrels.gain) for split, qrels in dataset.splits.items()},
        knn=manifest.knn,
        # A limit equal to the number of passages means that all passages get these edges.
        knn_below=len(nodes) if manifest.knn_below == manifest.num_prepared else manifest.knn_below,
        encoded_by=None,
        derived=derived,
        edge_recipe=None,
    )


def _entity_names(columns: Columns, source: str, texts: Sequence[str], nodes: Integers) -> list[set[str]]:
    """Return the entities of passages. Entities of added passages are extracted if they were not specified."""
    names_of_passages = [json.loads(names) for names in columns.strings("stated.entities").chosen(nodes)]
    unknown = [index for index, names in enumerate(names_of_passages) if names is None]
    if unknown and source in EXTRACTORS:
        extracted = EXTRACTORS[source]().extract([texts[index] for index in unknown])
        for index, names in zip(unknown, normalized_names([knowledge.names for knowledge in extracted]), strict=True):
            names_of_passages[index] = names
    return [set(names or ()) for names in names_of_passages]
