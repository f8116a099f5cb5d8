"""Which passage holds which entity, as a sparse matrix, and the conceptual edges that follow from it at query time."""

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

MIN_COMMON = 10  # passages: an entity of this many or fewer is never "too common", however small the corpus
BLOCK_PAIRS = 1 << 22  # of candidates that share an entity, counted at once: 0.2 GB


@dataclass(frozen=True)
class EntityIncidence:
    """The entities of each of ``N`` passages, in compressed sparse rows; :meth:`from_names` builds one."""

    names: Sequence[str]  # `M` normalised names of the entities that two passages or more hold, ascending
    indptr: Tensor  # `[N + 1]` int64; passage `i` holds the entities `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[nnz]` int64 numbers of entities, ascending within a row, no repeats
    sizes: Tensor  # `[N]` int64, entities of each passage, those that no other passage holds among them: `|E_j|`
    # `holder_ptr [M + 1]` and `holders [nnz]` int64; computed at the first need when None
    transposed: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_names(cls, names: Sequence[Iterable[str]], *, max_share: float = 0.001) -> "EntityIncidence":
        """Number the entities of ``N`` collections of names that make edges, and count all but the too common ones.

        An entity in more than ``max_share`` of the passages, in (0, 1], and in more than 10, is ignored: the lower this
        is, the more smoothing over these edges (GCS) gains on the training questions of 2WikiMultihopQA and HotpotQA.

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
        kept = [sorted(column_of[name] for name in row if name in column_of) for row in rows]
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64)
        indptr[1:] = torch.tensor([len(row) for row in kept], dtype=torch.int64).cumsum(0)
        indices = torch.tensor([entity for row in kept for entity in row], dtype=torch.int64)
        sizes = [sum(frequency[name] <= limit for name in row) for row in rows]
        return cls(shared, indptr, indices, torch.tensor(sizes, dtype=torch.int64))

    @property
    def num_nodes(self) -> int:
        """Number of passages."""
        return self.indptr.numel() - 1

    def to(self, device: str | torch.device) -> "EntityIncidence":
        """Return the same incidence with everything but the names on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("indptr", "indices", "sizes")}
        return replace(self, **moved, transposed=(self.holder_ptr.to(device), self.holders.to(device)))

    def resized(self, num_nodes: int, removed: Tensor | None) -> "EntityIncidence":
        """Return the incidence of ``num_nodes`` passages: those that follow hold nothing, nor do ``removed [N]``."""
        passage = torch.repeat_interleave(torch.arange(self.num_nodes), self.indptr.diff())
        kept = torch.ones_like(passage, dtype=torch.bool) if removed is None else ~removed[passage]
        held = torch.bincount(passage[kept], minlength=num_nodes)
        indptr = torch.cat([held.new_zeros(1), held.cumsum(0)])
        sizes = torch.cat([self.sizes, self.sizes.new_zeros(num_nodes - self.num_nodes)])
        return EntityIncidence(self.names, indptr, self.indices[kept], sizes)

    def select(self, nodes: Tensor) -> "EntityIncidence":
        """Return the incidence of some passages, ascending: entities that two of them share, of the sizes they have."""
        row, entity = row_entries(self.indptr, self.indices, nodes)
        holding = torch.bincount(entity, minlength=self.num_entities)
        number = (holding > 1).cumsum(0) - 1
        kept = holding[entity] > 1
        held = torch.bincount(row[kept], minlength=len(nodes))
        names = chosen(self.names, (holding > 1).nonzero().flatten().cpu().numpy())
        indptr = torch.cat([held.new_zeros(1), held.cumsum(0)])
        return EntityIncidence(names, indptr, number[entity[kept]], self.sizes[nodes])

    @property
    def num_entities(self) -> int:
        """Number of entities that two passages or more hold."""
        return len(self.names)

    @cached_property
    def num_partners(self) -> Tensor:
        """``[N]`` int64, how often :meth:`shared` lists a partner of each passage."""
        return self.count_partners(torch.arange(self.num_nodes, device=self.indptr.device))

    def count_partners(self, nodes: Tensor) -> Tensor:
        """Return ``num_partners`` of passages ``[P]``, without counting those of the others."""
        place, entity = row_entries(self.indptr, self.indices, nodes)
        others = self.holder_ptr[entity + 1] - self.holder_ptr[entity] - 1
        return torch.zeros_like(nodes).index_add_(0, place, others)

    def shared(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List the partners of passages ``[P]`` for each shared entity: place in ``nodes``, partner, and entity."""
        place, entity = row_entries(self.indptr, self.indices, nodes)
        slot, partner = row_entries(self.holder_ptr, self.holders, entity)
        origin = place[slot]
        other = partner != nodes[origin]
        return origin[other], partner[other], entity[slot][other]

    @property
    def num_holders(self) -> Tensor:
        """``[M]`` int64, passages that hold each entity."""
        return self.holder_ptr.diff()

    @cached_property
    def holder_ptr(self) -> Tensor:
        """``[M + 1]`` int64, where the holders of each entity lie in ``holders``."""
        if self.transposed is not None:
            return self.transposed[0]
        ptr = torch.zeros(self.num_entities + 1, dtype=torch.int64, device=self.indices.device)
        ptr[1:] = torch.bincount(self.indices, minlength=self.num_entities).cumsum(0)
        return ptr

    @cached_property
    def holders(self) -> Tensor:
        """``[nnz]``, the passages of each entity, ascending: the transposed matrix."""
        if self.transposed is not None:
            return self.transposed[1]
        passage = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.indptr.device), self.indptr.diff())
        return passage[torch.argsort(self.indices, stable=True)]


def conceptual_edges(incidence: EntityIncidence, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Find the candidates that share entities, for all queries of a batch at once.

    .. math:: A_{ij} = |E_i \cap E_j| / |E_j|

    Source: GraphER, section 2.1 (conceptual proximity); :math:`E` are the entities that the incidence kept. Work grows
    with the number of pairs that share an entity, memory with that of edges.

    ``nodes`` are ``[B, K]`` int64 passage numbers, padded with -1, each at most once in a row. Returns as
    :func:`~graphrerank.corpus.candidate_edges`: ``edge_index [2, E]`` in packed numbering, sorted by target and then by
    source's node number; ``edge_weight [E]`` in (0, 1], where the edge ``j -> i`` carries ``A_ij``; ``ptr [B + 1]``.

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
    by_number = torch.argsort(row * incidence.num_nodes + node)  # a query's candidates, by node number
    rank = torch.empty_like(by_number).scatter_(0, by_number, torch.arange(len(node), device=node.device))
    place, entity = row_entries(incidence.indptr, incidence.indices, node)
    key, order = torch.sort(row[place] * incidence.num_entities + entity)
    _, group, size = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    holder_ptr, holders = torch.cat([size.new_zeros(1), size.cumsum(0)]), rank[place[order]]
    group = torch.empty_like(group).scatter_(0, order, group)  # of each entity of each candidate, in their order
    work = torch.zeros_like(node).index_add_(0, place, size[group]).cumsum(0)
    _, lengths = torch.unique_consecutive((work // BLOCK_PAIRS)[place], return_counts=True)
    pairs, counts = [node[:0]], [node[:0]]
    for block in torch.split(torch.arange(len(place), device=node.device), lengths.tolist()):  # whole targets
        slot, source = row_entries(holder_ptr, holders, group[block])
        pair, count = torch.unique(place[block][slot] * len(node) + source, return_counts=True)
        pairs.append(pair)
        counts.append(count)
    pair, count = torch.cat(pairs), torch.cat(counts)
    target = torch.div(pair, max(1, len(node)), rounding_mode="floor")
    source = by_number[pair - target * len(node)]
    other = source != target
    source, target = source[other], target[other]
    return torch.stack([source, target]), count[other] / incidence.sizes[node[source]], ptr


def normalized_names(entities: Sequence[Iterable[str]]) -> list[set[str]]:
    """Normalise the names of each passage (:func:`~graphrerank.text.normalize_entity`); empty ones are left out."""
    normalized = cache(normalize_entity)
    return [{*map(normalized, names)} - {""} for names in entities]
