"""Passages that are added to a corpus folder and removed from it, at the cost of what is added.

Columns are appended to: rows that are there stay as they are, so that processes that mapped them go on. What changes
of old passages is appended too: a row of edges that grows is written again, behind all others. The manifest, which says
how many rows count, is written last. Who is killed before has changed nothing; what he appended is overwritten.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.corpus_folder.assembly import write_incidence
from graphrerank.data.corpus_folder.columns import Columns, write_column
from graphrerank.data.corpus_folder.derived_columns import ORIGINS
from graphrerank.data.corpus_folder.derived_growth import DerivedGrowth
from graphrerank.data.corpus_folder.edge_rows import as_other, rows_of_edges
from graphrerank.data.corpus_folder.growing_columns import GrowingColumns
from graphrerank.data.corpus_folder.nearest import nearest_of_added
from graphrerank.data.corpus_folder.node_numbers import NodeNumbers
from graphrerank.data.corpus_folder.opening import ENTITIES, MANIFEST, map_graph, read_manifest
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.files import sole_use, write_json
from graphrerank.graphs import CorpusGraph, EntityIncidence
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
    entities: Sequence[Iterable[str]] | None = None,
    remove: Sequence[str] = (),
    replace: bool = False,
    ignore_absent: bool = False,
    encoder: Encoder | None = None,
    title_lengths: Sequence[int] | None = None,
) -> Growth:
    """Remove passages from a corpus folder and add others to it, all or nothing.

    Who opens the folder afterwards has the corpus that a preparation with these passages gives: the same rankings,
    features and candidate graphs. Passages that were there keep their numbers, removed ones leave theirs unused, and
    an index of FAISS takes up the vectors that are added, in the cells that it has. Time grows with what is added, and
    with the edges of its neighbours; opening, and writing the index, takes time that grows with what was added since
    the preparation, which :func:`compact_corpus` makes part of it.

    Args:
        folder: A corpus folder.
        node_ids: ``n`` ids of new passages, each once.
        texts: Their texts.
        edges: Edges among them and to those that are there. If the corpus was prepared with edges to nearest
            neighbours, the new passages get theirs too (:func:`~.nearest.nearest_of_added`); if with mentions, those
            of old titles in new texts and of new titles in old texts.
        entities: Names of the entities of each new passage, if the corpus was prepared with entities; extracted as by
            the preparation when None, and none if it read them from a file.
        remove: Ids of passages to remove, with their edges and judgements.
        replace: Whether a new passage may have the id of one that is there, which is then removed.
        ignore_absent: Whether ids in ``remove`` may be of no passage.
        encoder: Encodes the texts; needed if the corpus has vectors.
        title_lengths: ``n`` numbers of characters that are a text's title; None for no titles.

    Returns:
        The numbers of passages.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If the folder is damaged or has entities of an older version, an id or an edge does not
            fit, or the encoder is not that of the corpus.
        OSError: If the disk is full. The folder is then what it was before.
    """
    folder = Path(folder)
    read_manifest(folder)  # before a folder is made
    with sole_use(folder):
        growth = _Growth(folder)
        gone = growth.numbers_of(remove, ignore_absent=ignore_absent)
        lengths = [0] * len(node_ids) if title_lengths is None else title_lengths
        if len(lengths) != len(node_ids):
            raise ValueError(f"`title_lengths` must have one entry per id ({len(node_ids)}), got {len(lengths)}")
        gone |= growth.check_new(node_ids, texts, gone, replace=replace)
        pairs, weight, types = growth.resolve(node_ids, edges, gone)
        if not gone and not node_ids:
            return growth.summary(0, 0)
        vectors = growth.encode(texts, encoder)
        removed = np.sort(np.fromiter(gone, np.int64, len(gone)))
        derived = growth.derive(texts, lengths, entities, removed)
        pairs, weight, types = growth.with_nearest(vectors, derived.pairs_of_added, pairs, weight, types, removed)
        growth.append_texts(node_ids, texts, lengths)
        if vectors is not None:
            growth.columns.append_vectors(vectors)
        growth.append_edges(len(node_ids), pairs, weight, types, removed, derived)
        derived.append(growth.columns.append)
        if derived.incidence is not None:
            growth.write_entities(derived.incidence)
        growth.columns.append("removed", removed)
        names = [] if entities is None else [repr(sorted(row)) for row in entities]
        changes = [*map(str, removed.tolist()), *node_ids, *texts, *map(repr, edges), *map(str, lengths), *names]
        growth.commit(len(node_ids), removed, short_hash(hash_texts([growth.fingerprint, *changes])))
        return growth.summary(len(node_ids), len(removed))


class _Growth:
    """A corpus folder while it grows; nothing counts before :meth:`commit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest = read_manifest(folder)
        try:
            self._old = Columns(folder / self._manifest["columns_folder"], self._manifest["columns"])
            self._graph: CorpusGraph = map_graph(self._old, self._manifest)
            self.fingerprint = str(self._manifest["fingerprint"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / MANIFEST}: is damaged ({error!r}); prepare the corpus again") from error
        hashes, by_hash = (self._old.array(f"node_ids.{name}", "<i8") for name in ("hashes", "by_hash"))
        passages, vectors = self._graph.passages, self._graph.vectors
        removed = None if passages.removed is None else passages.removed.numpy()
        self._numbers = NodeNumbers(self._graph.node_ids, hashes, by_hash, removed)
        self.columns = GrowingColumns(
            self._old, list(self._manifest["columns"]), None if vectors is None else vectors.index
        )

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

    def derive(
        self,
        texts: Sequence[str],
        title_lengths: Sequence[int],
        entities: Sequence[Iterable[str]] | None,
        removed: Integers,
    ) -> DerivedGrowth:
        """Find mentions and shared entities."""
        return DerivedGrowth(
            self._folder,
            self._old,
            self._manifest,
            self._graph,
            passages=texts,
            title_lengths=title_lengths,
            entities=entities,
            removed=removed,
        )

    def with_nearest(
        self, vectors: Tensor | None, further: Tensor, pairs: Tensor, weight: Tensor, types: Tensor, removed: Integers
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add the edges of new passages to their nearest neighbours, if those of the corpus have such edges.

        ``further`` ``[M', 2]`` are edges beside ``pairs``.
        """
        rule = self._manifest.get("nearest")
        if rule is None or vectors is None:
            return pairs, weight, types
        k, below = int(rule["k"]), rule["below"]
        others, gone = torch.cat([pairs, further]), torch.from_numpy(removed)
        near, similarity = nearest_of_added(self._graph, vectors, others, gone, k=k, below=below)
        kinds = torch.full((len(near),), SIMILARITY)
        return torch.cat([pairs, near]), torch.cat([weight, similarity]), torch.cat([types, kinds])

    def append_texts(self, node_ids: Sequence[str], texts: Sequence[str], title_lengths: Sequence[int]) -> None:
        """Append ids, texts, lengths of their titles if the corpus has them, and words."""
        passages = self._graph.passages
        assert passages.words is not None
        if "title_lengths" in self.columns.entries:
            self.columns.append("title_lengths", np.array(title_lengths, dtype=np.int32))
        self.columns.append_texts(node_ids, texts, passages.words, passages.language)

    def append_edges(
        self,
        num_new: int,
        pairs: Tensor,
        weight: Tensor,
        types: Tensor,
        removed: Integers,
        derived: DerivedGrowth,
    ) -> None:
        """Append the rows of new passages, and again those of old ones whose edges change."""
        rows = rows_of_edges(
            self._graph,
            num_new,
            pairs,
            weight,
            types,
            torch.from_numpy(removed),
            end=self.columns.entries["edges.indices"].shape[0],
            origins=derived.origins,
            marks=derived.marks,
        )
        if rows.weight_by_type is not None:
            if self._graph.weight_by_type is None:
                self._write_types()
            self.columns.append("edges.weight_by_type", rows.weight_by_type.numpy())
        if (origins := rows.origins) is not None:
            for (name, _, _), tensor in zip(ORIGINS, (origins.stated, origins.marks, origins.shared), strict=True):
                self.columns.append(name, tensor.numpy())
        self.columns.append("edges.indices", rows.indices.numpy())
        self.columns.append("edges.weight", rows.weight.numpy())
        self.columns.append("edges.indptr", rows.stop.numpy())
        self.columns.append("edges.moved", rows.moved.numpy())

    def _write_types(self) -> None:
        """Write the column of types, which all edges have from now on: one pass over their weights."""
        weight, num_types = self._graph.weight, len(EDGE_TYPES)
        blocks = (as_other(block).numpy() for block in torch.split(weight, BLOCK_EDGES))
        column = write_column(self._old.folder, "edges.weight_by_type", "<f4", (num_types,), blocks)
        self.columns.entries["edges.weight_by_type"] = column

    def write_entities(self, incidence: EntityIncidence) -> None:
        """Write which passage holds which entity anew, under another name."""
        old = self._manifest.get("entities", ENTITIES)
        number = int(old.removeprefix(ENTITIES).removeprefix("-") or 0)
        for name in [name for name in self.columns.entries if name.startswith(f"{old}.")]:
            del self.columns.entries[name]
        self._manifest["entities"] = f"{ENTITIES}-{number + 1}"
        self.columns.entries |= write_incidence(self._old.folder, self._manifest["entities"], incidence)
        for path in self._old.folder.glob(f"{ENTITIES}{f'-{number - 1}' if number > 1 else ''}.*"):
            if number:  # who opens the folder now may still read those before these
                path.unlink()

    def commit(self, num_added: int, removed: Integers, fingerprint: str) -> None:
        """Write the manifest."""
        lengths = self._old.array("token.lengths", "<i4")
        num_tokens = int(self._manifest["num_tokens"]) - int(lengths[removed].sum(dtype=np.int64))
        old, new = len(lengths), self.columns.entries["token.lengths"].shape[0]
        if new > old:
            added = Columns(self._old.folder, {"token.lengths": self.columns.entries["token.lengths"].to_json()})
            num_tokens += int(added.array("token.lengths", "<i4")[old:].sum(dtype=np.int64))
        self._manifest |= {
            "fingerprint": fingerprint,
            "num_nodes": self._graph.num_nodes + num_added,
            "num_tokens": num_tokens,
            "edge_counts": {},  # counted by source when it was prepared
            "columns": {name: column.to_json() for name, column in self.columns.entries.items()},
        }
        write_json(self._folder / MANIFEST, self._manifest)

    def summary(self, num_added: int, num_removed: int) -> Growth:
        """Count passages."""
        removed = self.columns.entries["removed"].shape[0]
        return Growth(num_added, num_removed, self.columns.entries["token.lengths"].shape[0] - removed)
