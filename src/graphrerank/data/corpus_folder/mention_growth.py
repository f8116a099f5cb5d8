"""How the mentions of a corpus folder change when passages are added and removed.

A passage's mentions depend on its own text and on who bears the names in it. Names are borne by others when passages
come and go; old texts that hold such a name are found by their words and searched again, as by a preparation.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphrerank.data.corpus_folder.name_index import NameIndex, Record, bearers, names_and_codes
from graphrerank.data.corpus_folder.term_index import Integers, TermIndex
from graphrerank.data.enrichment.mentions import MAX_OWNERS, MentionSearch, Name, Owner, most_mentions, split_words

Pairs = set[tuple[int, int]]  # (mentioning, mentioned)
Owners = dict[Name, dict[int, Owner]]


@dataclass(frozen=True)
class Passage:
    """A passage that is added or removed: its number, its title and its text."""

    node: int
    title: str
    text: str


@dataclass(frozen=True)
class MentionChange:
    """What changes.

    Attributes:
        appeared: Mentions that are new.
        vanished: Mentions that are no longer, between passages that stay.
        counts: For each name how many passages more mention it.
        names: The names and codes of each added passage.
    """

    appeared: Pairs
    vanished: Pairs
    counts: dict[str, int]
    names: list[tuple[list[str], list[int]]]


class MentionGrowth:
    """The mentions of a corpus before and after a change.

    Args:
        names: Its names; those of added passages must have been announced to it.
        words: The words of its texts, in lower case.
        text_of: Returns the text of a passage, without its title.
        is_gone: ``[N]`` bool, passages that were removed before.
        num_before: Passages before the change, without removed ones.
        added: New passages, in order.
        removed: Passages that go.
    """

    def __init__(
        self,
        names: NameIndex,
        words: TermIndex,
        text_of: Callable[[int], str],
        is_gone: np.ndarray[tuple[int], np.dtype[np.bool_]],
        *,
        num_before: int,
        added: Sequence[Passage],
        removed: Sequence[Passage],
    ) -> None:
        self._names, self._words, self._text_of = names, words, text_of
        self._added, self._removed = added, removed
        self._is_gone = is_gone.copy()
        self._was_gone = is_gone
        self._is_gone[[passage.node for passage in removed]] = True
        self._limits = most_mentions(num_before), most_mentions(num_before + len(added) - len(removed))
        self._records: dict[str, tuple[dict[int, Owner], dict[int, Owner]]] = {}
        self._known_counts: dict[str, int] = {}
        self._new = [names_and_codes(passage.title, passage.text) for passage in added]
        self._more: dict[str, list[Record]] = {}
        for passage, (rows, codes) in zip(added, self._new, strict=True):
            for name, code in zip(rows, codes, strict=True):
                self._more.setdefault(name, []).append((passage.node, code))

    def change(self) -> MentionChange:
        """Search what may have changed, before and after."""
        touched = set(self._more)
        for passage in self._removed:
            touched.update(names_and_codes(passage.title, passage.text)[0])
        self._look_up(touched)
        changed = {name for name in touched if self._records[name][0] != self._records[name][1]}
        old = self._holding(changed)
        own = {passage.node: passage.text for passage in (*self._added, *self._removed)}
        texts = {node: self._text_of(node) for node in old} | own
        before, after = self._search(texts)
        after = {node: found for node, found in after.items() if node not in {p.node for p in self._removed}}
        before = {node: found for node, found in before.items() if node not in {p.node for p in self._added}}
        counts = _counted(after, self._owners(1))
        counts.subtract(_counted(before, self._owners(0)))
        flipped = self._flipped(counts)
        more = {node: self._text_of(node) for node in self._holding(flipped) if node not in texts}
        further_before, further_after = self._search(more)
        before, after = before | further_before, after | further_after
        common = [self._common(limit, counts if side else Counter()) for side, limit in enumerate(self._limits)]
        pairs = [_pairs(found, self._owners(side), common[side]) for side, found in enumerate((before, after))]
        gone = {passage.node for passage in self._removed}
        return MentionChange(
            appeared=pairs[1] - pairs[0],
            vanished={pair for pair in pairs[0] - pairs[1] if not gone & {*pair}},
            counts={name: count for name, count in counts.items() if count},
            names=self._new,
        )

    def _owners(self, side: int) -> Owners:
        """Return the bearers of the names that were looked up, before (0) or after (1)."""
        return {tuple(name.split(" ")): both[side] for name, both in self._records.items() if both[side]}

    def _look_up(self, names: Iterable[str]) -> None:
        """Find out who bears some names before and after."""
        wanted = [name for name in names if name not in self._records]
        ranks = np.array([self._names.terms.rank(name) for name in wanted], dtype=np.int64)
        known = np.flatnonzero(ranks >= 0)
        place, nodes, codes = self._names.holders(ranks[known])
        rows: dict[str, list[Record]] = {name: [] for name in wanted}
        numbers = zip(known.tolist(), self._names.counts[ranks[known]].tolist(), strict=True)
        self._known_counts |= {wanted[i]: count for i, count in numbers}
        for name, node, code in zip(known[place].tolist(), nodes.tolist(), codes.tolist(), strict=True):
            rows[wanted[name]].append((node, code))
        for name, records in rows.items():
            kept = [record for record in records if not self._is_gone[record[0]]]
            were = [record for record in records if not self._was_gone[record[0]]]
            self._records[name] = bearers(were), bearers([*kept, *self._more.get(name, ())])

    def _holding(self, names: Iterable[str]) -> list[int]:
        """List the old passages whose texts hold all words of one of some names."""
        rows = [name.split(" ") for name in names]
        vocabulary = sorted({word for row in rows for word in row})
        rank = {word: self._words.terms.rank(word) for word in vocabulary}
        known = sorted({number for number in rank.values() if number >= 0})
        place, texts, _ = self._words.holders(np.array(known, dtype=np.int64))
        ptr = np.searchsorted(place, np.arange(len(known) + 1))
        held = {number: texts[ptr[i] : ptr[i + 1]] for i, number in enumerate(known)}
        found: list[Integers] = [np.zeros(0, dtype=np.int64)]
        for row in rows:
            if all(rank[word] >= 0 for word in row):
                rarest, *others = sorted((held[rank[word]] for word in {*row}), key=len)
                for other in others:
                    at = np.searchsorted(other, rarest)
                    at[at == len(other)] = 0
                    rarest = rarest[other[at] == rarest] if len(other) else rarest[:0]
                found.append(rarest)
        nodes = np.unique(np.concatenate(found))
        return [int(node) for node in nodes[~self._is_gone[nodes]].tolist()]

    def _search(self, texts: Mapping[int, str]) -> tuple[dict[int, dict[Name, list[int]]], ...]:
        """Search in some texts by number: for each the names that it mentions before and after, and their bearers."""
        nodes = list(texts)
        lower = [[word.lower() for word in split_words(text)] for text in texts.values()]
        _, names = self._names.occurring(lower)
        self._look_up(set(names))
        sides = []
        wanted = {tuple(name.split(" ")) for name in names}
        for side in range(2):
            owners = {name: known for name, known in self._owners(side).items() if name in wanted}
            number = list(owners)
            found = MentionSearch(owners)({"texts": list(texts.values())})
            rows: dict[int, dict[Name, list[int]]] = {node: {} for node in nodes}
            columns = (np.asarray(found[key]).tolist() for key in ("text", "name", "node"))
            for text, name, node in zip(*columns, strict=True):
                rows[nodes[text]].setdefault(number[name], []).append(node)
            sides.append(rows)
        return tuple(sides)

    def _flipped(self, counts: Mapping[str, int]) -> list[str]:
        """List the names that become too common, or are no longer."""
        names, (low, high) = self._names, self._limits
        known = names.counts
        between = np.flatnonzero((known > min(low, high)) & (known <= max(low, high)))
        candidates = {names.words[place] for place in between.tolist()} | {name for name, n in counts.items() if n}
        self._look_up(candidates)
        count = {name: self._known_counts.get(name, 0) for name in candidates}
        return [name for name, n in count.items() if (n > low) != (n + counts.get(name, 0) > high)]

    def _common(self, limit: float, counts: Mapping[str, int]) -> set[Name]:
        """Return which of the names that were looked up too many passages mention."""
        return {
            tuple(name.split(" "))
            for name in self._records
            if self._known_counts.get(name, 0) + counts.get(name, 0) > limit
        }


def _counted(found: Mapping[int, Mapping[Name, Sequence[int]]], owners: Owners) -> "Counter[str]":
    """Count the passages that mention each name which is not ambiguous and do not bear it."""
    counts: Counter[str] = Counter()
    for node, names in found.items():
        counts.update(" ".join(name) for name, nodes in names.items() if _counts(node, nodes, owners[name]))
    return counts


def _pairs(found: Mapping[int, Mapping[Name, Sequence[int]]], owners: Owners, common: set[Name]) -> Pairs:
    return {
        (node, other)
        for node, names in found.items()
        for name, nodes in names.items()
        if name not in common and _counts(node, nodes, owners[name])
        for other in nodes
    }


def _counts(node: int, mentioned: Sequence[int], owners: Mapping[int, Owner]) -> bool:
    return len(owners) <= MAX_OWNERS and node not in mentioned
