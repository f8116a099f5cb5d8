"""How the neighbours by shared entities of a corpus folder change when passages are added and removed."""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.data.corpus_folder.term_index import Integers, TermIndex
from graphrerank.data.enrichment.shared_entities import choose_neighbours, shared_weight
from graphrerank.graphs import EntityIncidence, PackedStrings
from graphrerank.graphs.entity_incidence import most_holders

ENTITIES = "held"  # the name of the index


@dataclass(frozen=True)
class EntityChange:
    """What changes.

    Attributes:
        choosing: ``[S]`` int64, ascending, the passages that choose anew.
        chosen: ``[C, 2]`` int64, (passage, chosen one): all choices of these.
        weight: ``[C]`` float32.
    """

    choosing: Tensor
    chosen: Tensor
    weight: Tensor


def grown_incidence(
    index: TermIndex,
    is_gone: npt.NDArray[np.bool_],
    *,
    num_passages: int,
    max_share: float,
    added: Sequence[AbstractSet[str]],
) -> EntityIncidence:
    """Return the entities of all passages after a change, as :meth:`EntityIncidence.from_names`: one pass over them.

    Args:
        index: The entities of the passages before, both ways.
        is_gone: ``[N]`` bool, passages that were removed, now or before; they have none.
        num_passages: Passages after the change, without removed ones.
        max_share: Share of the passages; an entity in more is ignored.
        added: Normalised names of the entities of each added passage.
    """
    place, terms = index.terms_of(np.arange(len(is_gone)))
    place, terms = place[~is_gone[place]], terms[~is_gone[place]]
    number, new = index.numbered(name for names in added for name in names)
    gained = np.array([number[name] for names in added for name in names], dtype=np.int64)
    late = len(is_gone) + np.repeat(np.arange(len(added)), list(map(len, added)))
    place, terms = np.concatenate([place, late]), np.concatenate([terms, gained])
    held = np.bincount(terms, minlength=len(index.words) + len(new))
    is_rare = held <= most_holders(num_passages, max_share)
    num_nodes = len(is_gone) + len(added)
    sizes = np.bincount(place[is_rare[terms]], minlength=num_nodes)
    shared = np.flatnonzero(is_rare & (held > 1))
    names = [index.words[n] if n < len(index.words) else new[n - len(index.words)] for n in shared.tolist()]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    rank = np.full(len(held), -1)
    rank[shared[order]] = np.arange(len(order))
    is_shared = rank[terms] >= 0
    place, entity = place[is_shared], rank[terms[is_shared]]
    by_place = np.lexsort((entity, place))
    return EntityIncidence(
        [names[n] for n in order.tolist()],
        torch.from_numpy(np.searchsorted(place[by_place], np.arange(num_nodes + 1))),
        torch.from_numpy(entity[by_place]),
        torch.from_numpy(sizes),
    )


def changed_choices(
    index: TermIndex,
    is_gone: npt.NDArray[np.bool_],
    *,
    first: int,
    num_before: int,
    measured_against: int,
    max_share: float,
    added: Sequence[AbstractSet[str]],
    removed: Integers,
) -> EntityChange:
    """Let those passages choose their neighbours anew that share an entity with an added or removed one.

    Source: :func:`~graphrerank.data.enrichment.shared_entities.choose_neighbours`, whose rarity of an entity is
    measured against the number of passages of the last preparation: else each added passage would change all weights.

    Args:
        index: The entities of the passages, both ways, with the number of passages that hold each.
        is_gone: ``[N]`` bool, passages that were removed, now or before.
        first: Number of the first added passage.
        num_before: Passages before the change, without removed ones.
        measured_against: Passages of the last preparation.
        max_share: Share of the passages; an entity in more is ignored.
        added: Normalised names of the entities of each added passage.
        removed: ``[r]`` int64, passages that go, ascending.
    """
    rows, _, lost = changed_counts(index, added, removed)
    number, new = index.numbered(name for row in rows for name in row)
    before = np.concatenate([index.counts, np.zeros(len(new), dtype=np.int64)])
    after = before.copy()
    gained = np.array([number[name] for row in rows for name in row], dtype=np.int64)
    np.add.at(after, gained, 1)
    np.subtract.at(after, lost, 1)
    low, high = most_holders(num_before, max_share), most_holders(num_before + len(added) - len(removed), max_share)
    holder_of_new = first + np.repeat(np.arange(len(rows)), list(map(len, rows)))
    was_kept, is_kept = before <= low, after <= high
    flipped = np.flatnonzero((was_kept != is_kept) & (before > 1))
    touched = np.unique(np.concatenate([gained, lost, flipped]))
    touched = touched[was_kept[touched] | is_kept[touched]]
    holding = _Holders(index, is_gone, gained, holder_of_new)
    _, choosing = holding.of(touched)
    choosing = np.unique(np.concatenate([choosing, np.arange(first, first + len(rows))]))
    place, held = holding.terms_of(choosing, first)
    shared = is_kept[held] & (after[held] > 1)
    place, held = place[shared], held[shared]
    entities = np.unique(held)
    names = [index.words[n] if n < len(index.words) else new[n - len(index.words)] for n in entities.tolist()]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)  # as a preparation numbers them
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    local = rank[np.searchsorted(entities, held)]
    of_entity, holders = holding.of(entities[order])
    nodes = np.unique(np.concatenate([holders, choosing]))
    row = np.searchsorted(nodes, choosing)[place]
    by_row = np.lexsort((local, row))
    incidence = EntityIncidence(
        PackedStrings.of([]),
        torch.from_numpy(np.searchsorted(row[by_row], np.arange(len(nodes) + 1))),
        torch.from_numpy(local[by_row]),
        torch.zeros(len(nodes), dtype=torch.int64),
        (
            torch.from_numpy(np.searchsorted(of_entity, np.arange(len(entities) + 1))),
            torch.from_numpy(np.searchsorted(nodes, holders)),
        ),
    )
    choosers = torch.from_numpy(np.searchsorted(nodes, choosing))
    chosen, total = choose_neighbours(incidence, nodes=choosers, num_passages=measured_against)
    weight = shared_weight(total, measured_against)
    return EntityChange(torch.from_numpy(choosing), torch.from_numpy(nodes)[chosen], weight)


def changed_counts(
    index: TermIndex, added: Sequence[AbstractSet[str]], removed: Integers
) -> tuple[list[list[str]], dict[str, int], Integers]:
    """Return the entities of each added passage, how many passages more hold each, and those of removed passages."""
    rows = [sorted(names) for names in added]
    counts = Counter(name for row in rows for name in row)
    _, lost = index.terms_of(removed)
    counts.subtract(index.words[term] for term in lost.tolist())
    return rows, dict(counts), lost


class _Holders:
    """Who holds which entity after the change."""

    def __init__(self, index: TermIndex, is_gone: npt.NDArray[np.bool_], gained: Integers, holder: Integers) -> None:
        self._index, self._is_gone = index, is_gone
        order = np.argsort(gained, kind="stable")
        self._gained, self._holder = gained[order], holder[order]
        self._by_holder = gained, holder

    def of(self, entities: Integers) -> tuple[Integers, Integers]:
        """List the holders of some entities: the place in ``entities``, ascending, and the passage, ascending."""
        known = np.flatnonzero(entities < len(self._index.words))
        place, nodes, _ = self._index.holders(entities[known])
        kept = ~self._is_gone[nodes]
        order = np.argsort(entities, kind="stable")
        at = np.searchsorted(entities[order], self._gained)
        at[at == len(entities)] = 0
        some = entities[order][at] == self._gained if len(entities) else np.zeros(len(at), dtype=np.bool_)
        place = np.concatenate([known[place[kept]], order[at[some]]])
        nodes = np.concatenate([nodes[kept], self._holder[some]])
        by_place = np.lexsort((nodes, place))
        return place[by_place], nodes[by_place]

    def terms_of(self, nodes: Integers, first: int) -> tuple[Integers, Integers]:
        """List the entities of some passages, ascending: the place in ``nodes`` and the entity."""
        split = int(np.searchsorted(nodes, first))
        place, terms = self._index.terms_of(nodes[:split])
        gained, holder = self._by_holder
        late = np.searchsorted(nodes, holder)
        return np.concatenate([place, late]), np.concatenate([terms, gained])
