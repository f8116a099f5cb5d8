"""Mentions and shared entities of passages that are added to a corpus folder, and of those that they touch."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Columns
from graphrerank.data.corpus_folder.derived_columns import ORIGINS, WORDS, has_origins, words_of
from graphrerank.data.corpus_folder.edge_rows import CHOSE, MENTIONS, NO_MARKS, Marks, Origins
from graphrerank.data.corpus_folder.entity_growth import (
    ENTITIES,
    EntityChange,
    changed_choices,
    changed_counts,
    grown_incidence,
)
from graphrerank.data.corpus_folder.mention_growth import MentionChange, MentionGrowth, Pairs, Passage
from graphrerank.data.corpus_folder.name_index import NameIndex, names_and_codes
from graphrerank.data.corpus_folder.term_index import Append, Integers, TermIndex
from graphrerank.data.readers.documents import split_passage
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.entity_incidence import normalized_names
from graphrerank.graphs.sparse_rows import row_slots
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor

FILE = "file"
EXTRACTORS = {"spelling": PatternEntityExtractor, "spacy": SpacyEntityExtractor}


class DerivedGrowth:
    """What a change of a corpus folder does to mentions and shared entities.

    Args:
        folder: The corpus folder, for messages.
        columns: Its columns.
        manifest: Its manifest.
        graph: The corpus before the change.
        passages: New passages.
        title_lengths: How many characters at the start of each are its title.
        entities: Names of their entities; None to extract them as the preparation did.
        removed: ``[r]`` int64, passages that go, ascending.

    Raises:
        ValueError: If there is no way to a passage's entities.
    """

    def __init__(
        self,
        folder: Path,
        columns: Columns,
        manifest: Mapping[str, Any],
        graph: CorpusGraph,
        *,
        passages: Sequence[str],
        title_lengths: Sequence[int],
        entities: Sequence[Iterable[str]] | None,
        removed: Integers,
    ) -> None:
        if graph.entities is not None and manifest.get("derived") is None:
            raise ValueError(f"{folder}: has entities as an older version wrote them; prepare it again")
        self._columns, self._graph, self._removed = columns, graph, removed
        self._rule: Mapping[str, Any] = manifest.get("derived") or {}
        self._split = [split_passage(*pair) for pair in zip(passages, title_lengths, strict=True)]
        self._was_gone = np.zeros(graph.num_nodes, dtype=np.bool_)
        if graph.passages.removed is not None:
            self._was_gone |= graph.passages.removed.numpy()
        self._num_before = graph.num_nodes - int(self._was_gone.sum())
        self.origins: Origins | None = None
        self.marks = NO_MARKS
        self._mentions: tuple[NameIndex, TermIndex, MentionChange] | None = None
        self._entities: tuple[TermIndex, list[list[str]], dict[str, int]] | None = None
        self.incidence: EntityIncidence | None = None
        if has_origins(manifest):
            stated, marks, shared = (columns.tensor(name, dtype, shape) for name, dtype, shape in ORIGINS)
            self.origins = Origins(stated, marks, shared, self._rule["mention_type"])
        if self._rule.get("mention_type") is not None:
            self._mentions = self._mentioned()
            change = self._mentions[2]
            self.marks = Marks.joined(
                Marks.of(_tensor(change.appeared), MENTIONS, is_set=True),
                Marks.of(_tensor(change.vanished), MENTIONS, is_set=False),
            )
        if self._rule.get("entity_source") is not None:
            self._derive_entities(self._names(folder, passages, entities))

    @property
    def pairs_of_added(self) -> Tensor:
        """``[M, 2]`` int64, the edges that added passages get."""
        pairs = self.marks.pairs[self.marks.is_set]
        return pairs[(pairs >= self._graph.num_nodes).any(1)]

    def append(self, append: Append) -> None:
        """Append what further changes will read; the rows of edges are not among it."""
        if self._mentions is not None:
            names, words, change = self._mentions
            words.append(append, [words_of(text) for _, text in self._split])
            rows, codes = ([row[place] for row in change.names] for place in range(2))
            names.append(append, rows, codes=codes, changes=change.counts)  # type: ignore[arg-type]
        if self._entities is not None:
            index, rows_of_entities, counts = self._entities
            index.append(append, rows_of_entities, changes=counts)

    def _mentioned(self) -> tuple[NameIndex, TermIndex, MentionChange]:
        first, lengths = self._graph.num_nodes, self._graph.passages.title_lengths
        assert lengths is not None
        added = [Passage(first + place, *split) for place, split in enumerate(self._split)]
        removed = [
            Passage(node, *split_passage(self._graph.texts[node], int(lengths[node])))
            for node in self._removed.tolist()
        ]
        new = (name for passage in added for name in names_and_codes(passage.title, passage.text)[0])
        names = NameIndex(self._columns, first, new)
        words = TermIndex(self._columns, WORDS, first)
        growth = MentionGrowth(
            names,
            words,
            lambda node: split_passage(self._graph.texts[node], int(lengths[node]))[1],
            self._was_gone,
            num_before=self._num_before,
            added=added,
            removed=removed,
        )
        return names, words, growth.change()

    def _names(self, folder: Path, passages: Sequence[str], entities: Sequence[Iterable[str]] | None) -> list[set[str]]:
        source = self._rule["entity_source"]
        if entities is not None:
            if len(entities) != len(passages):
                raise ValueError(f"`entities` must have one entry per id ({len(passages)}), got {len(entities)}")
            return normalized_names(entities)
        if source in EXTRACTORS:
            return normalized_names([found.names for found in EXTRACTORS[source]().extract(passages)])
        if source != FILE and passages:
            raise ValueError(f"`entities` must be given, as those of {folder} are by {source}, got none")
        return [set() for _ in passages]

    def _derive_entities(self, names: Sequence[set[str]]) -> None:
        is_gone = self._was_gone.copy()
        is_gone[self._removed] = True
        index = TermIndex(self._columns, ENTITIES, self._graph.num_nodes)
        max_share = float(self._rule["max_entity_share"])
        rows, counts, _ = changed_counts(index, names, self._removed)
        self._entities = index, rows, counts
        if not self._rule["chooses"]:
            left = len(is_gone) - int(is_gone.sum()) + len(names)
            self.incidence = grown_incidence(index, is_gone, num_passages=left, max_share=max_share, added=names)
            return
        change = changed_choices(
            index,
            is_gone,
            first=self._graph.num_nodes,
            num_before=self._num_before,
            measured_against=int(self._rule["measured_against"]),
            max_share=max_share,
            added=names,
            removed=self._removed,
        )
        self.marks = Marks.joined(self.marks, self._new_choices(change, len(names)))

    def _new_choices(self, change: EntityChange, num_added: int) -> Marks:
        """Compare the choices of passages with those that they made before."""
        assert self.origins is not None
        graph, num_nodes = self._graph, self._graph.num_nodes + num_added
        old = change.choosing[change.choosing < graph.num_nodes]
        origin, slot = row_slots(graph.indptr, old, graph.row_stop)
        chose = (self.origins.marks[slot] & CHOSE) > 0
        before = torch.stack([old[origin[chose]], graph.indices[slot[chose]]], dim=1)
        weight = self.origins.shared[slot[chose]]
        key, order = torch.sort(before[:, 0] * num_nodes + before[:, 1])
        wanted = change.chosen[:, 0] * num_nodes + change.chosen[:, 1]
        place = torch.searchsorted(key, wanted).clamp(max=max(len(key) - 1, 0))
        is_same = torch.zeros(len(wanted), dtype=torch.bool)
        if len(key):
            is_same = (key[place] == wanted) & (weight[order][place] == change.weight)
        is_over = ~torch.isin(before[:, 0] * num_nodes + before[:, 1], wanted)
        is_over &= ~torch.isin(before[:, 1], torch.from_numpy(self._removed))
        return Marks.joined(
            Marks.of(change.chosen[~is_same], CHOSE, is_set=True, weight=change.weight[~is_same]),
            Marks.of(before[is_over], CHOSE, is_set=False),
        )


def _tensor(pairs: Pairs) -> Tensor:
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
