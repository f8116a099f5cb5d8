"""Entities of passages as a sparse matrix, and the conceptual edges that follow from them at query time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor

from graphrerank.core.ranking import check_nodes
from graphrerank.core.sparse_rows import row_entries
from graphrerank.corpus.packed_strings import chosen
from graphrerank.text import normalize_entity
from graphrerank.utils.checks import check_positive_share

#: Entities in at most this many passages are never too common, even in a small corpus.
MIN_COMMON = 10
#: Largest number of candidate pairs with a shared entity that are counted at once, about 0.2 GB.
BLOCK_PAIRS = 1 << 22


@dataclass(frozen=True)
class EntityIncidence:
    """Entities of each of ``N`` passages, in compressed sparse rows. Build one with :meth:`from_names`.

    Attributes:
        names: Sorted normalised names of the ``M`` entities that occur in at least two passages.
        indptr: Row pointers ``[N + 1]``, int64. Passage ``i`` contains the entities
            ``indices[indptr[i]:indptr[i + 1]]``.
        indices: Entity indices ``[nnz]``, int64, ascending within a row, without repetitions.
        sizes: Number of entities :math:`|E_j|` of each passage, ``[N]`` int64, including those of no other passage.
        transposed: ``holder_ptr [M + 1]`` and ``holders [nnz]``, int64. If None, they are computed when they are first
            needed.
    """

    names: Sequence[str]
    indptr: Tensor
    indices: Tensor
    sizes: Tensor
    transposed: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_names(cls, names: Sequence[Iterable[str]], *, max_share: float = 0.001) -> "EntityIncidence":
        """Build the incidence matrix from the entity names of ``N`` passages.

        Args:
            names: Normalised names of the entities of each passage.
            max_share: Largest fraction of the passages, in (0, 1], in which an entity may occur. More common entities
                are ignored if they occur in more than 10 passages. Lower values increased the gain of GCS on the
                training questions of 2WikiMultihopQA and HotpotQA.

        Returns:
            Incidence matrix of the entities that occur in at least two passages.

        Raises:
            UserError: If ``max_share`` is outside (0, 1].

        Example:
            >>> incidence = EntityIncidence.from_names([["metz"], ["metz", "rome"], []])
            >>> incidence.names, incidence.indptr.tolist(), incidence.indices.tolist(), incidence.sizes.tolist()
            (['metz'], [0, 1, 2, 2], [0, 0], [1, 2, 0])
        """
        check_positive_share(max_share=max_share)
        rows = [set(row) for row in names]
        frequency = Counter(name for row in rows for name in row)
        limit = max(MIN_COMMON, max_share * len(rows))
        shared = sorted(name for name, count in frequency.items() if 1 < count <= limit)
        column_of = {name: i for i, name in enumerate(shared)}
        columns = [sorted(column_of[name] for name in row if name in column_of) for row in rows]
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64)
        indptr[1:] = torch.tensor([len(row) for row in columns], dtype=torch.int64).cumsum(0)
        indices = torch.tensor([entity for row in columns for entity in row], dtype=torch.int64)
        sizes = [sum(frequency[name] <= limit for name in row) for row in rows]
        return cls(shared, indptr, indices, torch.tensor(sizes, dtype=torch.int64))

    @property
    def num_nodes(self) -> int:
        """Number of passages."""
        return self.indptr.numel() - 1

    def to(self, device: str | torch.device) -> "EntityIncidence":
        """Return the incidence matrix on another device. The names stay in main memory.

        Args:
            device: Device of the tensors.
        """
        moved = {name: getattr(self, name).to(device) for name in ("indptr", "indices", "sizes")}
        return replace(self, **moved, transposed=(self.holder_ptr.to(device), self.holders.to(device)))

    def resized(self, num_nodes: int, removed: Tensor | None) -> "EntityIncidence":
        """Return the incidence matrix with additional passages, which have no entities.

        Args:
            num_nodes: Number of passages of the result.
            removed: Mask ``[N]`` of removed passages, which lose their entities. If None, no passage was removed.
        """
        passage = torch.repeat_interleave(torch.arange(self.num_nodes), self.indptr.diff())
        mask = torch.ones_like(passage, dtype=torch.bool) if removed is None else ~removed[passage]
        counts = torch.bincount(passage[mask], minlength=num_nodes)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        sizes = torch.cat([self.sizes, self.sizes.new_zeros(num_nodes - self.num_nodes)])
        return EntityIncidence(self.names, indptr, self.indices[mask], sizes)

    def select(self, nodes: Tensor) -> "EntityIncidence":
        """Return the incidence matrix of the given passages, with the entities that at least two of them share.

        The ``sizes`` of the passages do not change.

        Args:
            nodes: Passage indices ``[n]``, in ascending order.
        """
        row, entity = row_entries(self.indptr, self.indices, nodes)
        holding = torch.bincount(entity, minlength=self.num_entities)
        number = (holding > 1).cumsum(0) - 1
        is_shared = holding[entity] > 1
        counts = torch.bincount(row[is_shared], minlength=len(nodes))
        names = chosen(self.names, (holding > 1).nonzero().flatten().cpu().numpy())
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return EntityIncidence(names, indptr, number[entity[is_shared]], self.sizes[nodes])

    @property
    def num_entities(self) -> int:
        """Number of entities that occur in at least two passages."""
        return len(self.names)

    @cached_property
    def num_partners(self) -> Tensor:
        """Number of partners that :meth:`shared` returns for each passage, ``[N]`` int64."""
        return self.count_partners(torch.arange(self.num_nodes, device=self.indptr.device))

    def count_partners(self, nodes: Tensor) -> Tensor:
        """Return ``num_partners`` of the given passages, without counting those of other passages.

        Args:
            nodes: Passage indices ``[P]``.
        """
        position, entity = row_entries(self.indptr, self.indices, nodes)
        others = self.holder_ptr[entity + 1] - self.holder_ptr[entity] - 1
        return torch.zeros_like(nodes).index_add_(0, position, others)

    def shared(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List the passages that share an entity with the given passages.

        Args:
            nodes: Passage indices ``[P]``.

        Returns:
            Position in ``nodes``, index of the partner, and index of the entity, with one entry per shared entity.
        """
        position, entity = row_entries(self.indptr, self.indices, nodes)
        slot, partner = row_entries(self.holder_ptr, self.holders, entity)
        origin = position[slot]
        is_other = partner != nodes[origin]
        return origin[is_other], partner[is_other], entity[slot][is_other]

    @property
    def num_holders(self) -> Tensor:
        """Number of passages that contain each entity, ``[M]`` int64."""
        return self.holder_ptr.diff()

    @cached_property
    def holder_ptr(self) -> Tensor:
        """Row pointers ``[M + 1]`` int64 of the transposed matrix."""
        if self.transposed is not None:
            return self.transposed[0]
        ptr = torch.zeros(self.num_entities + 1, dtype=torch.int64, device=self.indices.device)
        ptr[1:] = torch.bincount(self.indices, minlength=self.num_entities).cumsum(0)
        return ptr

    @cached_property
    def holders(self) -> Tensor:
        """Passages of each entity in ascending order, ``[nnz]``, the entries of the transposed matrix."""
        if self.transposed is not None:
            return self.transposed[1]
        passage = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.indptr.device), self.indptr.diff())
        return passage[torch.argsort(self.indices, stable=True)]


def conceptual_edges(incidence: EntityIncidence, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Find the candidates that share entities, for all queries of a batch at once.

    .. math:: A_{ij} = |E_i \cap E_j| / |E_j|

    with :math:`E_i` the entities of passage :math:`i`, without those that are too common. Work grows with the number of
    pairs that share an entity, and memory with the number of edges.

    Source: GraphER, section 2.1 (conceptual proximity).

    Args:
        incidence: Entities of each passage.
        nodes: Candidates ``[B, K]``, int64, unique per row, padded with -1.

    Returns:
        ``edge_index [2, E]`` in packed numbering, sorted by target and then by source node; ``edge_weight [E]`` in (0,
        1], where the edge ``j -> i`` has the weight :math:`A_{ij}`; and ``ptr [B + 1]``. They have the form of
        :func:`~graphrerank.corpus.candidate_edges`.

    Raises:
        UserError: If a candidate is invalid or repeated.

    Example:
        >>> incidence = EntityIncidence.from_names([["rome", "nero"], ["rome"], ["oslo"]])
        >>> edge_index, edge_weight, ptr = conceptual_edges(incidence, torch.tensor([[0, 1, 2]]))
        >>> edge_index.tolist(), edge_weight.tolist()
        ([[1, 0], [0, 1]], [1.0, 0.5])
    """
    check_nodes(incidence.num_nodes, nodes=nodes)
    ptr = torch.cat([nodes.new_zeros(1), (nodes >= 0).sum(1).cumsum(0)])
    row, column = torch.nonzero(nodes >= 0, as_tuple=True)
    node = nodes[row, column]
    by_number = torch.argsort(row * incidence.num_nodes + node)  # candidates of each query in node order
    rank = torch.empty_like(by_number).scatter_(0, by_number, torch.arange(len(node), device=node.device))
    candidate, entity = row_entries(incidence.indptr, incidence.indices, node)
    # a group is an entity with the candidates of one query that contain it
    key, order = torch.sort(row[candidate] * incidence.num_entities + entity)
    _, group, size = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    group_ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    group_members = rank[candidate[order]]
    group = torch.empty_like(group).scatter_(0, order, group)  # back to the order of `entity`
    num_pairs = torch.zeros_like(node).index_add_(0, candidate, size[group]).cumsum(0)
    # a block never divides the pairs of a target
    _, lengths = torch.unique_consecutive((num_pairs // BLOCK_PAIRS)[candidate], return_counts=True)
    pairs, counts = [node[:0]], [node[:0]]
    for block in torch.split(torch.arange(len(candidate), device=node.device), lengths.tolist()):
        slot, source = row_entries(group_ptr, group_members, group[block])
        pair, count = torch.unique(candidate[block][slot] * len(node) + source, return_counts=True)
        pairs.append(pair)
        counts.append(count)
    pair, count = torch.cat(pairs), torch.cat(counts)
    target = torch.div(pair, max(1, len(node)), rounding_mode="floor")
    source = by_number[pair - target * len(node)]
    is_other = source != target
    source, target = source[is_other], target[is_other]
    return torch.stack([source, target]), count[is_other] / incidence.sizes[node[source]], ptr


def normalized_names(entities: Sequence[Iterable[str]]) -> list[set[str]]:
    """Normalise the entity names of each passage (see :func:`~graphrerank.text.normalize_entity`).

    Args:
        entities: Names of the entities of each passage.

    Returns:
        Normalised names of each passage, without empty ones.
    """
    normalized = cache(normalize_entity)
    return [{*map(normalized, names)} - {""} for names in entities]
