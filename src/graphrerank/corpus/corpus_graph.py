"""Corpus graph: passages as nodes, edges in compressed sparse rows, entities and node vectors."""

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
from graphrerank.corpus.edge_lists import GuardedEdges, TypedEdges, check_edges, lay_out_types, merge_parallel
from graphrerank.corpus.edge_types import ENTITY, OTHER
from graphrerank.corpus.entity_incidence import EntityIncidence
from graphrerank.corpus.filters import Filter
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Mask
from graphrerank.corpus.passages import NodeVectors, Passages
from graphrerank.utils.checks import UserError

#: Number of strings that are encoded at once.
BLOCK_STRINGS = 1 << 16
#: Number of vectors that are checked or hashed at once.
BLOCK_VECTORS = 1 << 14
#: Fields of :class:`CorpusGraph` with the tensors of the edges.
EDGE_FIELDS = ("indptr", "indices", "weight", "weight_by_type", "row_stop")


@dataclass(frozen=True)
class CorpusGraph:
    """Corpus whose passages are the nodes of a graph.

    Build a graph with :meth:`from_edges`, which checks its input, or open a corpus folder, whose tensors and strings
    are memory-mapped. For such a graph, call ``pages.release()`` after each batch of queries. Passages that share an
    entity are neighbours too. These edges are never materialised for the whole corpus.

    Attributes:
        passages: Ids, texts, words and metadata of the ``N`` nodes.
        indptr: Row pointers ``[N + 1]``, int64. The neighbours of node ``i`` are ``indices[indptr[i]:indptr[i + 1]]``.
        indices: Neighbours of all nodes, ``[E]`` int64, ascending within a row, without self-loops and repetitions.
        weight: Positive weights of the edges, ``[E]`` float32. If an edge has several types, the largest of its
            weights.
        weight_by_type: Weight of each edge in each of ``EDGE_TYPES``, ``[E, T]`` float32, 0 if it does not have the
            type. None if all edges have the type ``other``.
        row_stop: End of each row, ``[N]`` int64, in a corpus folder that has grown, whose rows are stored in any order.
            Row ``i`` is then ``indices[indptr[i]:row_stop[i]]``. If None, each row ends where the next one starts.
        entities: Entities of each passage. None if they are unknown.
        vectors: Node vectors. None before encoding.
        pages: Memory-mapped pages of a corpus folder.
        guarded: Edges with access restrictions. They are ignored unless :meth:`seen_by` selects them.
        part_of: Graph from which this one was selected, and the indices of its nodes there. None if this graph is no
            subset.
    """

    passages: Passages
    indptr: Tensor
    indices: Tensor
    weight: Tensor
    weight_by_type: Tensor | None = None
    row_stop: Tensor | None = None
    entities: EntityIncidence | None = None
    vectors: NodeVectors | None = None
    pages: MappedPages = field(default_factory=MappedPages)
    guarded: GuardedEdges | None = None
    part_of: "tuple[CorpusGraph, Tensor] | None" = None

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
        """Build a graph from a list of edges. Of parallel edges of one type, the largest weight is used.

        Args:
            node_ids: Unique ids of ``N`` nodes.
            texts: Texts of the nodes.
            edges: Pairs (node, neighbour), ``[M, 2]`` int64, without self-loops.
            weight: Positive, finite weights ``[M]``. If None, each edge has weight 1.
            edge_type: Index of the type of each edge in ``EDGE_TYPES``, ``[M]`` int64, or one index for all edges.
            undirected: Whether to add the reverse of each edge.

        Returns:
            Corpus graph without vectors and entities.

        Raises:
            UserError: If the lengths differ, an id is repeated, or an edge is invalid.

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
        """Unique ids of the ``N`` passages."""
        return self.passages.ids

    @property
    def texts(self) -> Sequence[str]:
        """Texts of the ``N`` passages."""
        return self.passages.texts

    @property
    def embedding(self) -> Tensor | None:
        """Node vectors ``[N, d]``. None before encoding."""
        return None if self.vectors is None else self.vectors.embedding

    @property
    def num_nodes(self) -> int:
        """Number of passages, including removed ones."""
        return len(self.passages)

    @property
    def device(self) -> torch.device:
        """Device of edges, weights, vectors and entities."""
        return self.indptr.device

    def to(self, device: str | torch.device) -> "CorpusGraph":
        """Return the graph on another device. Ids, texts and words stay in main memory.

        Args:
            device: Device of the tensors.
        """
        names = (*EDGE_FIELDS, "passages", "entities", "vectors")
        components: dict[str, Any] = {name: getattr(self, name) for name in names}
        moved = {name: component.to(device) for name, component in components.items() if component is not None}
        return replace(self, **moved)

    @property
    def num_edges(self) -> int:
        """Number of directed edges. An undirected edge counts twice."""
        return self.indices.numel() if self.row_stop is None else int(self.degree.sum())

    @property
    def degree(self) -> Tensor:
        """Number of edges of each node, ``[N]`` int64, without shared entities."""
        return (self.indptr[1:] if self.row_stop is None else self.row_stop) - self.indptr[:-1]

    @cached_property
    def num_neighbours(self) -> Tensor:
        """Number of neighbours that :meth:`neighbours` returns for each node, ``[N]`` int64."""
        return self.degree if self.entities is None else self.degree + self.entities.num_partners

    def count_neighbours(self, nodes: Tensor, edge_type: int | None = None) -> Tensor:
        """Return the number of neighbours of the given nodes, without counting those of other nodes.

        Args:
            nodes: Node indices ``[P]``.
            edge_type: Index of the only edge type to count. If None, all types are counted.
        """
        if edge_type is not None:
            return torch.bincount(self.neighbours(nodes, edge_type)[0], minlength=len(nodes))
        degree = (self.indptr[nodes + 1] if self.row_stop is None else self.row_stop[nodes]) - self.indptr[nodes]
        return degree if self.entities is None else degree + self.entities.count_partners(nodes)

    def neighbours(self, nodes: Tensor, edge_type: int | None = None) -> tuple[Tensor, Tensor]:
        """List the neighbours of nodes, by edges and by shared entities.

        Args:
            nodes: Node indices ``[P]``.
            edge_type: Index of the only edge type to follow. If None, all types are followed.

        Returns:
            Position in ``nodes`` and index of each neighbour. A neighbour occurs once for an edge and once for each
            shared entity.
        """
        origin, slot = row_slots(self.indptr, nodes, self.row_stop)
        if edge_type is not None:
            position, _, types = self.types_of(slot)
            followed = position[types == edge_type]
            origin, slot = origin[followed], slot[followed]
        neighbour = self.indices[slot]
        if self.entities is None or edge_type not in (None, ENTITY):
            return origin, neighbour
        position, partner, _ = self.entities.shared(nodes)
        return torch.cat([origin, position]), torch.cat([neighbour, partner])

    def with_passages(self, **changes: Any) -> "CorpusGraph":
        """Return the graph with changed fields of its passages.

        Args:
            changes: Fields of :class:`~graphrerank.corpus.passages.Passages` by name.
        """
        return replace(self, passages=replace(self.passages, **changes))

    @property
    def encoded(self) -> Tensor:
        """Node vectors ``[N, d]`` of an encoded corpus.

        Raises:
            UserError: If the corpus is not encoded.
        """
        if self.vectors is None:
            raise UserError("`graph` must have an embedding, got None. Encode the corpus first")
        return self.vectors.embedding

    def with_embedding(self, embedding: Tensor) -> "CorpusGraph":
        """Return the graph with node vectors.

        Args:
            embedding: Finite vectors ``[N, d]``, zeros for nodes without a vector.

        Raises:
            UserError: If the shape does not fit, or a vector is not finite.
        """
        if embedding.dim() != 2 or embedding.shape[0] != self.num_nodes:
            raise UserError(f"`embedding` must be [{self.num_nodes}, d], got {list(embedding.shape)}")
        for start in range(0, self.num_nodes, BLOCK_VECTORS):  # in blocks, because vectors may be memory-mapped
            odd = ~torch.isfinite(embedding[start : start + BLOCK_VECTORS]).all(1)
            if bool(odd.any()):
                node = self.node_ids[start + int(odd.nonzero()[0])]
                raise UserError(
                    f"`embedding` must be finite, got NaN or infinity for node {node!r}. Use zeros for nodes without a "
                    "vector"
                )
        return replace(self, vectors=NodeVectors(embedding), part_of=None)

    @property
    def all_texts(self) -> Sequence[str]:
        """Texts to index, for a corpus from which no passages were removed.

        Raises:
            UserError: If passages were removed, because their indices are still in use.
        """
        if self.passages.removed is not None:
            raise UserError(
                f"`graph` must not have removed passages for an index of all texts, got "
                f"{int(self.passages.removed.sum())}. Compact the corpus folder"
            )
        return self.texts

    def with_entities(self, entities: EntityIncidence) -> "CorpusGraph":
        """Return the graph with the entities of its passages.

        Args:
            entities: Entities of each of the ``N`` passages.

        Raises:
            UserError: If the number of passages differs.
        """
        if entities.num_nodes != self.num_nodes:
            raise UserError(f"`entities` must have {self.num_nodes} passages, got {entities.num_nodes}")
        return replace(self, entities=entities)

    def typed_edges(self) -> TypedEdges:
        """List the stored edges, with one entry for each type of an edge.

        Returns:
            Pairs (node, neighbour) ``[M, 2]``, weights ``[M]`` and type indices ``[M]``.
        """
        row, slots = row_slots(self.indptr, torch.arange(self.num_nodes, device=self.device), self.row_stop)
        position, weight, types = self.types_of(slots)
        pairs = torch.stack([row[position], self.indices[slots[position]]], dim=1)
        return TypedEdges(pairs, weight, types)

    def types_of(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List the types of stored edges, with one entry for each type of an edge.

        Args:
            slots: Positions of the edges in ``indices``, ``[S]``.

        Returns:
            Position in ``slots`` in ascending order, weight and type index of each entry.
        """
        if self.weight_by_type is None:
            position = torch.arange(slots.numel(), device=slots.device)
            return position, self.weight[slots], torch.full_like(position, OTHER)
        weight = self.weight_by_type[slots]
        position, edge_type = weight.nonzero(as_tuple=True)
        return position, weight[position, edge_type], edge_type

    def with_edges(self, edges: Tensor, weight: Tensor, *, edge_type: Tensor | int = OTHER) -> "CorpusGraph":
        """Return the graph with additional undirected edges.

        Args:
            edges: Pairs (node, neighbour), ``[M, 2]`` int64, without self-loops.
            weight: Positive, finite weights ``[M]``.
            edge_type: Index of the type of each edge, ``[M]`` int64, or one index for all edges.

        Raises:
            UserError: If an edge is invalid.
        """
        before, weight_before, type_before = self.typed_edges()
        types = torch.as_tensor(edge_type, device=self.device).expand(len(edges))
        edges = torch.cat([before, edges, edges.flip(1)])
        return self.with_only(edges, torch.cat([weight_before, weight, weight]), torch.cat([type_before, types, types]))

    def with_only(
        self, edges: Tensor, weight: Tensor | None, edge_type: Tensor | int, *, undirected: bool = False
    ) -> "CorpusGraph":
        """Return the graph with its edges replaced, on the device of the new edges.

        Args:
            edges: Pairs (node, neighbour), ``[M, 2]`` int64, without self-loops.
            weight: Positive, finite weights ``[M]``. If None, each edge has weight 1.
            edge_type: Index of the type of each edge, ``[M]`` int64, or one index for all edges.
            undirected: Whether to add the reverse of each edge.

        Raises:
            UserError: If an edge is invalid, or the lengths differ.
        """
        edges = edges if edges.numel() else edges.long().reshape(0, 2)
        if edges.dim() != 2 or edges.shape[1] != 2:
            raise UserError(f"`edges` must have shape [M, 2], got {list(edges.shape)}")
        weight = torch.ones(len(edges), device=edges.device) if weight is None else weight.float()
        if len(weight) != len(edges):
            raise UserError(f"`weight` must have one entry per edge ({len(edges)}), got {len(weight)}")
        types = torch.as_tensor(edge_type, device=edges.device).expand(len(edges))
        check_edges(self.num_nodes, edges, weight, types)
        if undirected:
            edges = torch.cat([edges, edges.flip(1)])
            weight, types = weight.repeat(2), types.repeat(2)
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
        """Whether some passages or edges have access restrictions."""
        metadata = self.passages.metadata
        return self.guarded is not None or (metadata is not None and metadata.is_restricted)

    def known_principals(self, principals: AbstractSet[str]) -> frozenset[str]:
        """Return the given principals that occur in the restrictions of passages or edges.

        Args:
            principals: Principals of a caller.
        """
        metadata, guarded = self.passages.metadata, self.guarded
        names = frozenset[str]() if metadata is None else metadata.known_principals(principals)
        return names if guarded is None else names.union(*(group & principals for group in guarded.principals))

    def seen_by(self, principals: AbstractSet[str], *, own_statistics: bool = True) -> "CorpusGraph":
        """Return the subgraph visible to the given principals.

        Hidden passages and edges do not influence any score in it. An edge is visible if both of its ends and the edge
        itself are. Edges that were computed from the whole corpus are not recomputed here. :meth:`Dataset.seen_by`
        recomputes them.

        Args:
            principals: Principals of the caller.
            own_statistics: Whether word frequencies are those of the subgraph. If False, they are those of the whole
                corpus.
        """
        if not self.is_guarded:
            return self
        is_visible, subgraph = self._visible(principals), replace(self, guarded=None)
        if not bool(is_visible.all()):
            subgraph = subgraph.select(is_visible.nonzero().flatten().to(self.device), own_statistics=own_statistics)
            subgraph = replace(subgraph, passages=subgraph.passages.compacted())
        if self.guarded is not None:
            number = torch.where(is_visible, is_visible.cumsum(0) - 1, -1)
            edges = self.guarded.select(number, self.guarded.allowed(principals))
            if len(edges.pairs):
                subgraph = subgraph.with_edges(edges.pairs, edges.weight, edge_type=edges.types)
        return subgraph

    def _visible(self, principals: AbstractSet[str]) -> Tensor:
        passages = self.passages
        seen = np.ones(len(passages), bool) if passages.metadata is None else passages.metadata.visible(principals)
        return torch.from_numpy(seen if passages.removed is None else seen & ~passages.removed.cpu().numpy())

    def held_by(self, principals: AbstractSet[str]) -> Tensor:
        """Return the indices of the visible passages, followed by those of the visible guarded edges.

        Args:
            principals: Principals of the caller.
        """
        seen = self._visible(principals)
        if self.guarded is not None:
            seen = torch.cat([seen, self.guarded.allowed(principals)])
        return seen.nonzero().flatten()

    def select(self, nodes: Tensor, *, own_statistics: bool = True) -> "CorpusGraph":
        """Return the subgraph of the given passages. Other passages do not influence any score in it.

        Node indices, degrees and statistics of words and entities are those of the subgraph.

        Args:
            nodes: Node indices ``[n]``, int64 in ascending order. Removed passages are not allowed.
            own_statistics: Whether word frequencies are those of the subgraph. If False, they are those of the whole
                corpus.
        """
        number = torch.full((self.num_nodes,), -1, device=self.device)
        number[nodes] = torch.arange(len(nodes), device=self.device)
        row, slot = row_slots(self.indptr, nodes, self.row_stop)
        end = number[self.indices[slot]]
        is_inside = end >= 0
        row, slot = row[is_inside], slot[is_inside]
        by_type = None if self.weight_by_type is None else self.weight_by_type[slot]
        if by_type is not None and not bool(by_type[:, :OTHER].any()):  # only `other`, as in `from_edges`
            by_type = None
        whole, numbers = self.part_of or (self, None)
        return replace(
            self,
            part_of=(whole, nodes if numbers is None else numbers[nodes]),
            passages=self.passages.select(nodes.cpu().numpy(), own_statistics=own_statistics),
            indptr=torch.cat([row.new_zeros(1), torch.bincount(row, minlength=len(nodes)).cumsum(0)]),
            indices=end[is_inside],
            weight=self.weight[slot],
            weight_by_type=by_type,
            row_stop=None,
            entities=None if self.entities is None else self.entities.select(nodes),
            vectors=None if self.vectors is None else self.vectors.select(nodes),
            guarded=None if self.guarded is None else self.guarded.select(number),
        )

    def without_relations(self) -> "CorpusGraph":
        """Return the graph without the rule that a passage ranks below one that supersedes it.

        The result is used for queries about a time in the past.
        """
        metadata = self.passages.metadata
        return self if metadata is None else self.with_passages(metadata=replace(metadata, ranks_now=False))

    def where(self, conditions: Filter | None) -> "CorpusGraph":
        """Return the subgraph of the passages whose metadata match a filter.

        Args:
            conditions: Filter (see :mod:`~graphrerank.corpus.filters`). If None or empty, the graph is returned
                unchanged.

        Raises:
            UserError: If the filter is invalid.
        """
        if not conditions:
            return self
        return self.select(self.numbers_passing(conditions).to(self.device))

    def numbers_passing(self, conditions: Filter) -> Tensor:
        """Return the indices of the passages that match a filter, without removed passages.

        Args:
            conditions: Filter (see :mod:`~graphrerank.corpus.filters`).

        Raises:
            UserError: If the filter is invalid.
        """
        return torch.from_numpy(np.flatnonzero(self.passing(conditions)))

    def passing(self, conditions: Filter) -> Mask:
        """Return a mask ``[N]`` of the passages that match a filter, False for removed passages.

        Args:
            conditions: Filter (see :mod:`~graphrerank.corpus.filters`).

        Raises:
            UserError: If the filter is invalid.
        """
        passages = self.passages
        mask = (passages.metadata or Metadata([""] * len(passages))).where(conditions)
        return mask if passages.removed is None else mask & ~passages.removed.cpu().numpy()

    def with_rows_in_order(self) -> "CorpusGraph":
        """Return the graph with consecutive rows, so that each row ends where the next one starts."""
        if self.row_stop is None:
            return self
        _, slots = row_slots(self.indptr, torch.arange(self.num_nodes, device=self.device), self.row_stop)
        return replace(  # not `from_edges`, because a replaced id occurs twice in a corpus that has grown
            self,
            indptr=torch.cat([self.indptr.new_zeros(1), self.degree.cumsum(0)]),
            indices=self.indices[slots],
            weight=self.weight[slots],
            weight_by_type=None if self.weight_by_type is None else self.weight_by_type[slots],
            row_stop=None,
        )

    def with_types(self, types_to_keep: Sequence[int]) -> "CorpusGraph":
        """Return the graph with the edges of the given types. Entities are removed if ``ENTITY`` is not among them.

        Args:
            types_to_keep: Indices of edge types.
        """
        edges, weight, types = self.typed_edges()
        is_kept = torch.isin(types, torch.tensor(types_to_keep, device=types.device))
        graph = self.with_only(edges[is_kept], weight[is_kept], types[is_kept])
        return graph if ENTITY in types_to_keep else replace(graph, entities=None)

    def edge_types(self) -> list[int]:
        """Return the sorted indices of the edge types, including ``ENTITY`` if the passages have entities."""
        if self.weight_by_type is None:
            types = {OTHER} if self.num_edges else set()
        else:
            types = set(self.weight_by_type.any(0).nonzero().flatten().tolist())
        return sorted(types | ({ENTITY} if self.entities is not None else set()))

    def without_edges(self) -> "CorpusGraph":
        """Return the graph without edges and without entities."""
        indptr, none = torch.zeros_like(self.indptr), self.indices[:0]
        graph = replace(self, indptr=indptr, indices=none, weight=self.weight[:0], weight_by_type=None)
        return replace(graph, row_stop=None, entities=None)


def content_hash(graph: CorpusGraph) -> str:
    """Return a hash of the ids, texts and vectors of a corpus, in order. Edges are not included.

    A corpus folder stores this hash. A corpus in memory with vectors of the same data type has the same hash.

    Args:
        graph: Corpus graph.
    """
    if graph.vectors is not None and graph.vectors.content is not None:
        return graph.vectors.content
    return combined_hash(
        *(digest for strings in (graph.node_ids, graph.texts) for digest in _hash_strings(strings)),
        None if graph.embedding is None else _hash_vectors(graph.embedding),
    )


def combined_hash(*digests: str | None) -> str:
    """Return the hash of the hashes of a corpus.

    Args:
        digests: SHA-256 hashes of the offsets and bytes of ids, of those of texts, and of vectors. None if there are no
            vectors.
    """
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def _hash_strings(strings: Sequence[str]) -> tuple[str, str]:
    """Return the hashes of the offsets and bytes that :class:`~graphrerank.corpus.PackedStrings` would store."""
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
