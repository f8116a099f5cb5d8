"""The corpus as a graph: node ids, texts, edges in compressed sparse rows, and node vectors."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.core.sparse_rows import row_slots
from graphrerank.corpus.edge_lists import GuardedEdges, check_edges, lay_out_types, merge_parallel
from graphrerank.corpus.edge_types import ENTITY, OTHER
from graphrerank.corpus.entity_incidence import EntityIncidence
from graphrerank.corpus.filters import Filter
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Mask
from graphrerank.corpus.passages import NodeVectors, Passages
from graphrerank.utils.checks import UserError

BLOCK_STRINGS = 1 << 16  # encoded at once
BLOCK_VECTORS = 1 << 14  # checked or hashed at once
EDGE_FIELDS = ("indptr", "indices", "weight", "weight_by_type", "row_stop")


@dataclass(frozen=True)
class CorpusGraph:
    """A corpus whose passages are nodes.

    Build one with :meth:`from_edges`, which checks its input; or open a corpus folder, whose tensors and strings are
    mapped from disk: call ``pages.release()`` after each batch of queries. Passages that share an entity are neighbours
    too, by edges that are never listed for the whole corpus.
    """

    passages: Passages  # the `N` nodes: ids, texts, words
    indptr: Tensor  # `[N + 1]` int64; the neighbours of node `i` are `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[E]` int64, ascending within a row, no self-loops, no repeats
    weight: Tensor  # `[E]` float32, positive; of an edge of several types the largest
    # `[E, T]` float32, the weight in each of `EDGE_TYPES`, 0 where the edge has another; None where all are `other`
    weight_by_type: Tensor | None = None
    # `[N]` int64; row `i` is `indices[indptr[i]:row_stop[i]]` of a corpus folder that has grown, whose rows lie in any
    # order. None: each ends where the next begins
    row_stop: Tensor | None = None
    entities: EntityIncidence | None = None  # which passage holds which entity; None where nothing is known of them
    vectors: NodeVectors | None = None  # None before encoding
    pages: MappedPages = field(default_factory=MappedPages)  # of a corpus folder
    guarded: GuardedEdges | None = None  # further ones, which no search uses but by :meth:`seen_by`
    part_of: "tuple[CorpusGraph, Tensor] | None" = (
        None  # the graph that this one was selected from, and its numbers there
    )

    @classmethod
    def from_edges(
        cls,
        node_ids: Sequence[str],
        texts: Sequence[str],
        edges: Tensor,
        weight: Tensor | None = None,
        *,
        edge_type: Tensor | int = OTHER,
        undirected: bool = True,
    ) -> "CorpusGraph":
        """Build a graph of ``N`` nodes; of parallel edges of one type the largest weight is kept.

        ``node_ids`` are unique; ``edges`` ``[M, 2]`` int64 are pairs (node, neighbour) without self-loops; ``weight``
        ``[M]`` is positive and finite, 1 for each edge when None; ``edge_type`` is ``[M]`` int64 or one number for all.
        An edge also runs back if ``undirected``.

        Example:
            >>> graph = CorpusGraph.from_edges(["a", "b", "c"], ["", "", ""], torch.tensor([[0, 1], [1, 2], [2, 1]]))
            >>> graph.indptr.tolist(), graph.indices.tolist()
            ([0, 1, 3, 4], [1, 0, 2, 1])
        """
        num_nodes = len(node_ids)
        if len(texts) != num_nodes:
            raise UserError(f"`texts` must have one entry per node ({num_nodes}), got {len(texts)}")
        if len(set(node_ids)) != num_nodes:
            repeated, _ = Counter(node_ids).most_common(1)[0]
            raise UserError(f"`node_ids` must be unique, got {repeated!r} twice")
        none = torch.zeros(0, dtype=torch.int64)
        graph = cls(Passages(node_ids, texts), torch.zeros(num_nodes + 1, dtype=torch.int64), none, none.float())
        return graph.with_only(edges, weight, edge_type, undirected=undirected)

    @property
    def node_ids(self) -> Sequence[str]:
        """``N`` unique strings."""
        return self.passages.ids

    @property
    def texts(self) -> Sequence[str]:
        """``N`` strings."""
        return self.passages.texts

    @property
    def embedding(self) -> Tensor | None:
        """``[N, d]``, or None before encoding."""
        return None if self.vectors is None else self.vectors.embedding

    @property
    def num_nodes(self) -> int:
        """Number of passages, removed ones included."""
        return len(self.passages)

    @property
    def device(self) -> torch.device:
        """Where edges, weights, vectors and entities are."""
        return self.indptr.device

    def to(self, device: str | torch.device) -> "CorpusGraph":
        """Return the same graph with everything but ids, texts and words on a device."""
        held: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else part.to(device)
            for name in (*EDGE_FIELDS, "passages", "entities", "vectors")
        }
        return replace(self, **held)

    @property
    def num_edges(self) -> int:
        """Number of edges; an undirected edge counts twice."""
        return self.indices.numel() if self.row_stop is None else int(self.degree.sum())

    @property
    def degree(self) -> Tensor:
        """``[N]`` int64, neighbours of each node in the whole corpus."""
        return (self.indptr[1:] if self.row_stop is None else self.row_stop) - self.indptr[:-1]

    @cached_property
    def num_neighbours(self) -> Tensor:
        """``[N]`` int64, how many neighbours :meth:`neighbours` lists of each node."""
        return self.degree if self.entities is None else self.degree + self.entities.num_partners

    def count_neighbours(self, nodes: Tensor, edge_type: int | None = None) -> Tensor:
        """Return how many neighbours :meth:`neighbours` lists of some nodes, without counting those of the others."""
        if edge_type is not None:
            return torch.bincount(self.neighbours(nodes, edge_type)[0], minlength=len(nodes))
        degree = (self.indptr[nodes + 1] if self.row_stop is None else self.row_stop[nodes]) - self.indptr[nodes]
        return degree if self.entities is None else degree + self.entities.count_partners(nodes)

    def neighbours(self, nodes: Tensor, edge_type: int | None = None) -> tuple[Tensor, Tensor]:
        """List the neighbours of ``nodes [P]``, by edges of one type or all and by shared entities.

        Returns the position of the node in ``nodes`` and the number of each neighbour, once for an edge, and once for
        each shared entity.
        """
        origin, slot = row_slots(self.indptr, nodes, self.row_stop)
        if edge_type is not None:
            place, _, types = self.types_of(slot)
            followed = place[types == edge_type]
            origin, slot = origin[followed], slot[followed]
        neighbour = self.indices[slot]
        if self.entities is None or edge_type not in (None, ENTITY):
            return origin, neighbour
        place, partner, _ = self.entities.shared(nodes)
        return torch.cat([origin, place]), torch.cat([neighbour, partner])

    def with_passages(self, **changes: Any) -> "CorpusGraph":
        """Return the same graph with some fields of its passages changed."""
        return replace(self, passages=replace(self.passages, **changes))

    @property
    def encoded(self) -> Tensor:
        """``[N, d]``, the vectors of a corpus that must have them; a ValueError if there are none."""
        if self.vectors is None:
            raise UserError("`graph` must have an embedding: encode the corpus first")
        return self.vectors.embedding

    def with_embedding(self, embedding: Tensor) -> "CorpusGraph":
        """Return the same graph with node vectors ``[N, d]``, finite; zeros for a node that has none."""
        if embedding.dim() != 2 or embedding.shape[0] != self.num_nodes:
            raise UserError(f"`embedding` must be [{self.num_nodes}, d], got {list(embedding.shape)}")
        for start in range(0, self.num_nodes, BLOCK_VECTORS):  # in blocks: vectors may lie on disk
            odd = ~torch.isfinite(embedding[start : start + BLOCK_VECTORS]).all(1)
            if bool(odd.any()):
                node = self.node_ids[start + int(odd.nonzero()[0])]
                raise UserError(
                    f"`embedding` must be finite, got another vector at node {node!r}; a node without one has zeros"
                )
        return replace(self, vectors=NodeVectors(embedding), part_of=None)

    @property
    def all_texts(self) -> Sequence[str]:
        """The texts, for an index of all of them; a ValueError if some were removed, whose numbers are still there."""
        if self.passages.removed is not None:
            raise UserError(
                f"`graph` must not have removed passages where all texts are indexed, got "
                f"{int(self.passages.removed.sum())}: compact the corpus folder"
            )
        return self.texts

    def with_entities(self, entities: EntityIncidence) -> "CorpusGraph":
        """Return the same graph with the entities of its passages."""
        if entities.num_nodes != self.num_nodes:
            raise UserError(f"`entities` must be of {self.num_nodes} passages, got {entities.num_nodes}")
        return replace(self, entities=entities)

    def typed_edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """List the stored edges, one for each type: ``[M, 2]`` (node, neighbour), weights ``[M]`` and types ``[M]``."""
        row, slots = row_slots(self.indptr, torch.arange(self.num_nodes, device=self.device), self.row_stop)
        place, weight, edge_type = self.types_of(slots)
        return torch.stack([row[place], self.indices[slots[place]]], dim=1), weight, edge_type

    def types_of(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List position in ``slots [S]`` of stored edges, ascending, weight and type, of each edge and type."""
        if self.weight_by_type is None:
            place = torch.arange(slots.numel(), device=slots.device)
            return place, self.weight[slots], torch.full_like(place, OTHER)
        weight = self.weight_by_type[slots]
        place, edge_type = weight.nonzero(as_tuple=True)
        return place, weight[place, edge_type], edge_type

    def with_edges(self, edges: Tensor, weight: Tensor, *, edge_type: Tensor | int = OTHER) -> "CorpusGraph":
        """Return the same graph with further undirected edges, which are as those of :meth:`from_edges`."""
        before, weight_before, type_before = self.typed_edges()
        types = torch.as_tensor(edge_type, device=self.device).expand(len(edges))
        edges = torch.cat([before, edges, edges.flip(1)])
        return self.with_only(edges, torch.cat([weight_before, weight, weight]), torch.cat([type_before, types, types]))

    def with_only(
        self, edges: Tensor, weight: Tensor | None, edge_type: Tensor | int, *, undirected: bool = False
    ) -> "CorpusGraph":
        """Return the same graph with other edges, as of :meth:`from_edges`, on the edges' device."""
        edges = edges if edges.numel() else edges.long().reshape(0, 2)
        if edges.dim() != 2 or edges.shape[1] != 2:
            raise UserError(f"`edges` must be [M, 2], got {list(edges.shape)}")
        weight = torch.ones(len(edges), device=edges.device) if weight is None else weight.float()
        if len(weight) != len(edges):
            raise UserError(f"`weight` must have one entry per edge ({len(edges)}), got {len(weight)}")
        types = torch.as_tensor(edge_type, device=edges.device).expand(len(edges))
        check_edges(self.num_nodes, edges, weight, types)
        if undirected:
            edges, weight, types = torch.cat([edges, edges.flip(1)]), torch.cat([weight, weight]), types.repeat(2)
        merged, largest = merge_parallel(edges, weight, self.num_nodes)
        indptr = torch.zeros(self.num_nodes + 1, dtype=torch.int64, device=edges.device)
        indptr[1:] = torch.bincount(merged[:, 0], minlength=self.num_nodes).cumsum(0)
        by_type = None if bool((types == OTHER).all()) else lay_out_types(edges, weight, types, merged, self.num_nodes)
        return replace(
            self,
            indptr=indptr,
            indices=merged[:, 1].contiguous(),
            weight=largest,
            weight_by_type=by_type,
            row_stop=None,
        )

    @property
    def is_guarded(self) -> bool:
        """Whether not everybody may see all passages and edges."""
        metadata = self.passages.metadata
        return self.guarded is not None or (metadata is not None and metadata.is_restricted)

    def known_principals(self, principals: AbstractSet[str]) -> frozenset[str]:
        """Return those of some principals that passages or edges have."""
        metadata, guarded = self.passages.metadata, self.guarded
        known = frozenset[str]() if metadata is None else metadata.known_principals(principals)
        return known if guarded is None else known.union(*(names & principals for names in guarded.principals))

    def seen_by(self, principals: AbstractSet[str], *, own_statistics: bool = True) -> "CorpusGraph":
        """Return what the holders of some principals may see, as if there was nothing else.

        An edge is used if it and both its ends may be seen. Words have the frequencies of the whole corpus unless
        ``own_statistics``. Edges that were found in the whole corpus stay (:meth:`Dataset.seen_by` finds them again).
        """
        if not self.is_guarded:
            return self
        seen, part = self._visible(principals), replace(self, guarded=None)
        if not bool(seen.all()):
            part = part.select(seen.nonzero().flatten().to(self.device), own_statistics=own_statistics)
            part = replace(part, passages=part.passages.compacted())
        if self.guarded is not None:
            number = torch.where(seen, seen.cumsum(0) - 1, -1)
            edges = self.guarded.select(number, self.guarded.allowed(principals))
            if len(edges.pairs):
                part = part.with_edges(edges.pairs, edges.weight, edge_type=edges.types)
        return part

    def _visible(self, principals: AbstractSet[str]) -> Tensor:
        passages = self.passages
        seen = np.ones(len(passages), bool) if passages.metadata is None else passages.metadata.visible(principals)
        return torch.from_numpy(seen if passages.removed is None else seen & ~passages.removed.cpu().numpy())

    def held_by(self, principals: AbstractSet[str]) -> Tensor:
        """Return the numbers of the passages that principals may see, and behind them those of guarded edges."""
        seen = self._visible(principals)
        if self.guarded is not None:
            seen = torch.cat([seen, self.guarded.allowed(principals)])
        return seen.nonzero().flatten()

    def select(self, nodes: Tensor, *, own_statistics: bool = True) -> "CorpusGraph":
        """Return the graph of some passages, ``[n]`` int64 ascending, none of them removed, as if there were no others.

        Edges are those among them. Numbers of passages, degrees, and what is known of words and entities are new; words
        have the frequencies of the whole corpus unless ``own_statistics``.
        """
        number = torch.full((self.num_nodes,), -1, device=self.device)
        number[nodes] = torch.arange(len(nodes), device=self.device)
        row, slot = row_slots(self.indptr, nodes, self.row_stop)
        end = number[self.indices[slot]]
        kept = end >= 0
        row, slot = row[kept], slot[kept]
        by_type = None if self.weight_by_type is None else self.weight_by_type[slot]
        if by_type is not None and not bool(by_type[:, :OTHER].any()):  # as of `from_edges`
            by_type = None
        whole, numbers = self.part_of or (self, None)
        return replace(
            self,
            part_of=(whole, nodes if numbers is None else numbers[nodes]),
            passages=self.passages.select(nodes.cpu().numpy(), own_statistics=own_statistics),
            indptr=torch.cat([row.new_zeros(1), torch.bincount(row, minlength=len(nodes)).cumsum(0)]),
            indices=end[kept],
            weight=self.weight[slot],
            weight_by_type=by_type,
            row_stop=None,
            entities=None if self.entities is None else self.entities.select(nodes),
            vectors=None if self.vectors is None else self.vectors.select(nodes),
            guarded=None if self.guarded is None else self.guarded.select(number),
        )

    def without_relations(self) -> "CorpusGraph":
        """Return the same graph, in which no passage ranks below what supersedes it: that of a time in the past."""
        metadata = self.passages.metadata
        return self if metadata is None else self.with_passages(metadata=replace(metadata, ranks_now=False))

    def where(self, conditions: Filter | None) -> "CorpusGraph":
        """Return the graph of the passages whose metadata meet a filter (:mod:`~graphrerank.corpus.filters`)."""
        if not conditions:
            return self
        return self.select(self.numbers_passing(conditions).to(self.device))

    def numbers_passing(self, conditions: Filter) -> Tensor:
        """Return the numbers of the passages that are not removed and meet a filter."""
        return torch.from_numpy(np.flatnonzero(self.passing(conditions)))

    def passing(self, conditions: Filter) -> Mask:
        """Return ``[N]``, the passages that are not removed and meet a filter; a ValueError if it does not fit."""
        passages = self.passages
        mask = (passages.metadata or Metadata([""] * len(passages))).where(conditions)
        return mask if passages.removed is None else mask & ~passages.removed.cpu().numpy()

    def with_rows_in_order(self) -> "CorpusGraph":
        """Return the same graph with each row where the one before ends."""
        if self.row_stop is None:
            return self
        _, slots = row_slots(self.indptr, torch.arange(self.num_nodes, device=self.device), self.row_stop)
        return replace(  # not of `from_edges`: an id that was replaced stands twice in a corpus that grew
            self,
            indptr=torch.cat([self.indptr.new_zeros(1), self.degree.cumsum(0)]),
            indices=self.indices[slots],
            weight=self.weight[slots],
            weight_by_type=None if self.weight_by_type is None else self.weight_by_type[slots],
            row_stop=None,
        )

    def with_types(self, types_to_keep: Sequence[int]) -> "CorpusGraph":
        """Return the same passages with the edges of some types only; entities stay if ``ENTITY`` is among them."""
        edges, weight, types = self.typed_edges()
        is_kept = torch.isin(types, torch.tensor(types_to_keep, device=types.device))
        graph = self.with_only(edges[is_kept], weight[is_kept], types[is_kept])
        return graph if ENTITY in types_to_keep else replace(graph, entities=None)

    def edge_types(self) -> list[int]:
        """List the types that some edge has, ``ENTITY`` among them where passages are joined by entities."""
        if self.weight_by_type is None:
            found = {OTHER} if self.num_edges else set()
        else:
            found = set(self.weight_by_type.any(0).nonzero().flatten().tolist())
        return sorted(found | ({ENTITY} if self.entities is not None else set()))

    def without_edges(self) -> "CorpusGraph":
        """Return the same passages with no edge between them, and nothing known of entities."""
        indptr, none = torch.zeros_like(self.indptr), self.indices[:0]
        graph = replace(self, indptr=indptr, indices=none, weight=self.weight[:0], weight_by_type=None)
        return replace(graph, row_stop=None, entities=None)


def content_hash(graph: CorpusGraph) -> str:
    """Hash the ids, texts and vectors of a corpus, in their order; edges are not read.

    A corpus folder has noted it. The same corpus in memory has the same hash, if its vectors have the same type.
    """
    if graph.vectors is not None and graph.vectors.content is not None:
        return graph.vectors.content
    return combined_hash(
        *(digest for strings in (graph.node_ids, graph.texts) for digest in _hash_strings(strings)),
        None if graph.embedding is None else _hash_vectors(graph.embedding),
    )


def combined_hash(*digests: str | None) -> str:
    """Combine the SHA-256 of offsets and bytes of ids, of those of texts, and of vectors, None where there are none."""
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def _hash_strings(strings: Sequence[str]) -> tuple[str, str]:
    """Hash offsets and bytes as :class:`~graphrerank.corpus.PackedStrings` holds them."""
    lengths, content = [np.zeros(1, dtype=np.int64)], hashlib.sha256()
    for start in range(0, len(strings), BLOCK_STRINGS):
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings[start : start + BLOCK_STRINGS]]
        lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        content.update(b"".join(encoded))
    offsets = np.cumsum(np.concatenate(lengths)).astype("<i8")
    return hashlib.sha256(offsets.data).hexdigest(), content.hexdigest()


def _hash_vectors(vectors: Tensor) -> str:
    sha = hashlib.sha256()
    for start in range(0, len(vectors), BLOCK_VECTORS):
        block = vectors[start : start + BLOCK_VECTORS].cpu().contiguous().numpy()
        sha.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data.cast("B"))
    return sha.hexdigest()
