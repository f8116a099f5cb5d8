"""Passages that are added to a corpus folder and removed from it, at the cost of what is added.

Columns are appended to: rows that are there stay as they are, so that processes that mapped them go on. What changes
of old passages is appended too: a row of edges that grows is written again, behind all others. The manifest, which says
how many rows count, is written last. Who is killed before has changed nothing; what he appended is overwritten.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.corpus_folder.columns import Array, Column, Columns, append_rows, write_column
from graphrerank.data.corpus_folder.edge_rows import as_other, rows_of_edges
from graphrerank.data.corpus_folder.nearest import nearest_of_added
from graphrerank.data.corpus_folder.node_numbers import NodeNumbers
from graphrerank.data.corpus_folder.opening import MANIFEST, map_graph, read_manifest
from graphrerank.data.corpus_folder.parts import read_words
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.files import sole_use, write_json
from graphrerank.graphs import CorpusGraph, PackedStrings
from graphrerank.graphs.edge_lists import check_edges
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER, SIMILARITY

BLOCK_EDGES = 1 << 20  # given a type at once, when the first edge with one is added
Integers = npt.NDArray[np.int64]


class NewEdge(NamedTuple):
    """An undirected edge of a passage that is added.

    Attributes:
        source: Id of a passage.
        target: Id of another one; one of the two is added with the edge.
        weight: Positive.
        edge_type: Number in :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`.
    """

    source: str
    target: str
    weight: float = 1.0
    edge_type: int = OTHER


class EdgeError(ValueError):
    """A new edge does not join a new passage with one of the corpus.

    Args:
        edge: The edge.
        place: Its place among the new edges.
        reason: What is wrong.
    """

    def __init__(self, edge: NewEdge, place: int, reason: str) -> None:
        ends = f"{edge.source!r} and {edge.target!r}"
        super().__init__(f"`edges` must join a new passage with one of the corpus, got {ends}: {reason}")
        self.place = place


class Growth(NamedTuple):
    """How a corpus has changed.

    Attributes:
        num_added: Passages that were added, those that replaced others among them.
        num_removed: Passages that were removed, those that were replaced among them.
        num_nodes: Passages of the corpus now.
    """

    num_added: int
    num_removed: int
    num_nodes: int


def grow_corpus(
    folder: str | Path,
    node_ids: Sequence[str] = (),
    texts: Sequence[str] = (),
    *,
    edges: Sequence[NewEdge] = (),
    remove: Sequence[str] = (),
    replace: bool = False,
    ignore_absent: bool = False,
    encoder: Encoder | None = None,
    title_lengths: Sequence[int] | None = None,
) -> Growth:
    """Remove passages from a corpus folder and add others to it, all or nothing.

    Who opens the folder afterwards has the corpus that a preparation with these passages gives: the same rankings,
    features and candidate graphs. Passages that were there keep their numbers, removed ones leave theirs unused, and
    an index of FAISS has the vectors that it was built with, beside which added ones are compared one by one. Time
    grows with what is added, and with the edges of its neighbours; opening takes time that grows with what was added
    since the preparation, which :func:`compact_corpus` makes part of it.

    Args:
        folder: A corpus folder.
        node_ids: ``n`` ids of new passages, each once.
        texts: Their texts.
        edges: Edges among them and to those that are there. If the corpus was prepared with edges to nearest
            neighbours, the new passages get theirs too (:func:`~.nearest.nearest_of_added`); mentions they do not.
        remove: Ids of passages to remove, with their edges and judgements.
        replace: Whether a new passage may have the id of one that is there, which is then removed.
        ignore_absent: Whether ids in ``remove`` may be of no passage.
        encoder: Encodes the texts; needed if the corpus has vectors.
        title_lengths: ``n`` numbers of characters that are a text's title; None for no titles.

    Returns:
        The numbers of passages.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If the folder is damaged or has entities, an id or an edge does not fit, or the encoder is not that
            of the corpus.
        OSError: If the disk is full. The folder is then what it was before.
    """
    folder = Path(folder)
    read_manifest(folder)  # before a folder is made
    with sole_use(folder):
        growth = _Growth(folder)
        gone = growth.numbers_of(remove, ignore_absent=ignore_absent)
        gone |= growth.check_new(node_ids, texts, gone, replace=replace)
        pairs, weight, types = growth.resolve(node_ids, edges, gone)
        if not gone and not node_ids:
            return growth.summary(0, 0)
        vectors = growth.encode(texts, encoder)
        removed = np.sort(np.fromiter(gone, np.int64, len(gone)))
        pairs, weight, types = growth.with_nearest(vectors, pairs, weight, types, removed)
        growth.append_texts(node_ids, texts, title_lengths)
        if vectors is not None:
            growth.append("vectors", vectors.numpy())
        growth.append_edges(len(node_ids), pairs, weight, types, removed)
        growth.append("removed", removed)
        changes = [*map(str, removed.tolist()), *node_ids, *texts, *map(repr, edges)]
        growth.commit(len(node_ids), removed, short_hash(hash_texts([growth.fingerprint, *changes])))
        return growth.summary(len(node_ids), len(removed))


class _Growth:
    """A corpus folder while it grows; nothing counts before :meth:`commit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest = read_manifest(folder)
        try:
            self._target = folder / self._manifest["columns_folder"]
            self._old = Columns(self._target, self._manifest["columns"])
            self._graph: CorpusGraph = map_graph(self._old, self._manifest)
            self.fingerprint = str(self._manifest["fingerprint"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / MANIFEST}: is damaged ({error!r}); prepare the corpus again") from error
        if self._graph.entities is not None:
            raise ValueError(
                f"{folder}: has entities, of which it keeps those that passages share; prepare it again with all "
                "passages, or with entities as edges (data.edges=auto)"
            )
        hashes, by_hash = (self._old.array(f"node_ids.{name}", "<i8") for name in ("hashes", "by_hash"))
        removed = None if self._graph.removed is None else self._graph.removed.numpy()
        self._numbers = NodeNumbers(self._graph.node_ids, hashes, by_hash, removed)
        self._columns: dict[str, Column] = {name: self._old.entry(name) for name in self._manifest["columns"]}

    def numbers_of(self, node_ids: Sequence[str], *, ignore_absent: bool) -> set[int]:
        """Return the numbers of passages to remove."""
        numbers = set()
        for node_id in node_ids:
            number = self._numbers.get(node_id)
            if number is None and not ignore_absent:
                raise ValueError(f"`remove` must hold ids of the corpus, got {node_id!r}, which is none")
            if number is not None:
                numbers.add(number)
        return numbers

    def check_new(self, node_ids: Sequence[str], texts: Sequence[str], gone: set[int], *, replace: bool) -> set[int]:
        """Check new passages; return the numbers of those that they replace."""
        if len(node_ids) != len(texts):
            raise ValueError(f"`texts` must have one entry per id ({len(node_ids)}), got {len(texts)}")
        seen: set[str] = set()
        replaced = set()
        for node_id in node_ids:
            if node_id in seen:
                raise ValueError(f"`node_ids` must be unique, got {node_id!r} twice")
            seen.add(node_id)
            number = self._numbers.get(node_id)
            if number is not None and number not in gone:
                if not replace:
                    raise ValueError(f"`node_ids` must be new, got {node_id!r}, which the corpus has; see `replace`")
                replaced.add(number)
        return replaced

    def resolve(
        self, node_ids: Sequence[str], edges: Sequence[NewEdge], gone: set[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pairs of numbers of new edges ``[M, 2]``, weights ``[M]`` and types ``[M]``."""
        first = self._graph.num_nodes
        new = {node_id: first + place for place, node_id in enumerate(node_ids)}
        pairs = []
        for place, edge in enumerate(edges):
            ends = [new.get(end, self._numbers.get(end)) for end in (edge.source, edge.target)]
            absent = [end for end, number in zip(edge[:2], ends, strict=True) if number is None or number in gone]
            if absent or not {edge.source, edge.target} & new.keys():
                raise EdgeError(edge, place, f"{absent[0]!r} is of none" if absent else "neither is new")
            pairs.append(ends)
        found = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        weight = torch.tensor([edge.weight for edge in edges], dtype=torch.float32)
        types = torch.tensor([edge.edge_type for edge in edges], dtype=torch.int64)
        check_edges(first + len(new), found, weight, types)
        return found, weight, types

    def encode(self, texts: Sequence[str], encoder: Encoder | None) -> Tensor | None:
        """Return the vectors of new texts; None where the corpus has none."""
        wanted = self._manifest["encoder"]
        if wanted is None or not len(texts):
            return None
        if encoder is None or encoder.fingerprint != wanted["fingerprint"]:
            got = "none" if encoder is None else f"{encoder.name} ({encoder.fingerprint[:12]})"
            raise ValueError(
                f"`encoder` must be the one that {self._folder} was prepared with, {wanted['name']} "
                f"({wanted['fingerprint'][:12]}), got {got}"
            )
        return check_vectors(encoder.encode(texts), len(texts), encoder.name)

    def with_nearest(
        self, vectors: Tensor | None, pairs: Tensor, weight: Tensor, types: Tensor, removed: Integers
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add the edges of new passages to their nearest neighbours, if those of the corpus have such edges."""
        rule = self._manifest.get("nearest")
        if rule is None or vectors is None:
            return pairs, weight, types
        k, below = int(rule["k"]), rule["below"]
        near, similarity = nearest_of_added(self._graph, vectors, pairs, torch.from_numpy(removed), k=k, below=below)
        kinds = torch.full((len(near),), SIMILARITY)
        return torch.cat([pairs, near]), torch.cat([weight, similarity]), torch.cat([types, kinds])

    def append(self, name: str, rows: Array) -> None:
        """Append rows to a column."""
        self._columns[name] = append_rows(self._target, name, self._columns[name], rows)

    def append_texts(self, node_ids: Sequence[str], texts: Sequence[str], title_lengths: Sequence[int] | None) -> None:
        """Append ids, texts, lengths of their titles if the corpus has them, and words."""
        if not node_ids:
            return
        words = read_words(texts)
        self._append_strings("node_ids", PackedStrings.of(node_ids))
        self._append_strings("texts", PackedStrings.of(texts))
        if "title_lengths" in self._columns:
            self.append("title_lengths", np.array(title_lengths or [0] * len(texts), dtype=np.int32))
        self._append_tokens(words)
        self._append_stems(words)

    def _append_strings(self, name: str, strings: PackedStrings) -> None:
        self._append_running(f"{name}.offsets", strings.offsets)
        self.append(f"{name}.content", strings.content)

    def _append_running(self, name: str, offsets: Integers) -> None:
        """Append offsets from 0, which go on from the last one."""
        last = self._old.array(name, "<i8")[-1]
        self.append(name, offsets[1:] + last)

    def _append_tokens(self, words: Mapping[str, Array]) -> None:
        assert self._graph.words is not None
        tokens = _strings(words, "token.words")
        numbers, new = _numbered(tokens, self._graph.words.tokens.words, range(len(tokens)))
        self._append_strings("token.words", PackedStrings.of(new))
        by_text = np.argsort(words["token.texts"], kind="stable")
        token = np.repeat(numbers, np.diff(words["token.ptr"]))[by_text]
        lengths = words["token.lengths"]
        ptr = np.searchsorted(words["token.texts"][by_text], np.arange(len(lengths) + 1))
        self._append_running("added.ptr", ptr)
        self.append("added.tokens", token)
        self.append("added.counts", words["token.counts"][by_text])
        self.append("token.lengths", lengths)

    def _append_stems(self, words: Mapping[str, Array]) -> None:
        assert self._graph.words is not None
        stems = _strings(words, "stem.words")
        numbers, new = _numbered(stems, self._graph.words.stems.words, words["stem.seen"].tolist())
        count = len(self._graph.words.stems.words)
        self._append_strings("stem.words", PackedStrings.of(new))
        self.append("stem.texts_with", np.zeros(len(new), dtype=np.int64))  # of prepared texts
        self.append("stem.order", np.arange(count, count + len(new)))
        self._append_running("stem.ptr", words["stem.ptr"])
        held = numbers[words["stem.stems"]]
        order = np.lexsort((held, np.repeat(np.arange(len(words["stem.ptr"]) - 1), np.diff(words["stem.ptr"]))))
        self.append("stem.stems", held[order])
        self.append("stem.in_lead", words["stem.in_lead"][order])

    def append_edges(self, num_new: int, pairs: Tensor, weight: Tensor, types: Tensor, removed: Integers) -> None:
        """Append the rows of new passages, and again those of old ones that new or removed passages are joined with."""
        end = self._columns["edges.indices"].shape[0]
        rows = rows_of_edges(self._graph, num_new, pairs, weight, types, torch.from_numpy(removed), end=end)
        if rows.weight_by_type is not None:
            if self._graph.weight_by_type is None:
                self._write_types()
            self.append("edges.weight_by_type", rows.weight_by_type.numpy())
        self.append("edges.indices", rows.indices.numpy())
        self.append("edges.weight", rows.weight.numpy())
        self.append("edges.indptr", rows.stop.numpy())
        self.append("edges.moved", rows.moved.numpy())

    def _write_types(self) -> None:
        """Write the column of types, which all edges have from now on: one pass over their weights."""
        weight, num_types = self._graph.weight, len(EDGE_TYPES)
        blocks = (as_other(block).numpy() for block in torch.split(weight, BLOCK_EDGES))
        column = write_column(self._target, "edges.weight_by_type", "<f4", (num_types,), blocks)
        self._columns["edges.weight_by_type"] = column

    def commit(self, num_added: int, removed: Integers, fingerprint: str) -> None:
        """Write the manifest."""
        lengths = self._old.array("token.lengths", "<i4")
        num_tokens = int(self._manifest["num_tokens"]) - int(lengths[removed].sum(dtype=np.int64))
        old, new = len(lengths), self._columns["token.lengths"].shape[0]
        if new > old:
            added = Columns(self._target, {"token.lengths": self._columns["token.lengths"].to_json()})
            num_tokens += int(added.array("token.lengths", "<i4")[old:].sum(dtype=np.int64))
        self._manifest |= {
            "fingerprint": fingerprint,
            "num_nodes": self._graph.num_nodes + num_added,
            "num_tokens": num_tokens,
            "edge_counts": {},  # counted by source when it was prepared
            "columns": {name: column.to_json() for name, column in self._columns.items()},
        }
        write_json(self._folder / MANIFEST, self._manifest)

    def summary(self, num_added: int, num_removed: int) -> Growth:
        """Count passages."""
        removed = self._columns["removed"].shape[0]
        return Growth(num_added, num_removed, self._columns["token.lengths"].shape[0] - removed)


def _strings(words: Mapping[str, Array], name: str) -> PackedStrings:
    return PackedStrings(words[f"{name}.offsets"], words[f"{name}.content"])


def _numbered(words: Sequence[str], vocabulary: Any, order: Sequence[int]) -> tuple[Integers, list[str]]:
    """Number words, of which new ones follow those of the vocabulary in some order; return the new ones too."""
    numbers = np.empty(len(words), dtype=np.int64)
    new: list[str] = []
    for place in order:
        number = vocabulary.rank(words[place])
        if number < 0:
            number = len(vocabulary) + len(new)
            new.append(words[place])
        numbers[place] = number
    return numbers, new
