"""Edges that follow from passages themselves, and what it takes to derive those of further passages."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphrerank.data.enrichment.mentions import Mentions, find_mentions
from graphrerank.data.enrichment.shared_entities import choose_neighbours, shared_weight
from graphrerank.data.readers.documents import split_passage
from graphrerank.graphs import EntityIncidence
from graphrerank.graphs.edge_types import ENTITY

Edges = tuple[Tensor, Tensor, Tensor]  # pairs `[M, 2]`, weights `[M]` and types `[M]`


@dataclass(frozen=True)
class DerivedEdges:
    """The edges of a data set by origin; its graph holds all of them.

    Attributes:
        stated: Edges that do not follow from titles and entities.
        mention_type: The type of edges by mentions; None where they are not searched for.
        mentions: The mentions; None likewise.
        entity_source: ``spelling``, ``spacy``, ``file`` or the name of an extractor's class; None without entities.
        entity_names: Normalised names of the entities of each of ``N`` passages; None likewise.
        max_entity_share: Share of the passages; an entity in more is ignored.
        chosen: ``[C, 2]`` (passage, the one it chose) and weights ``[C]``, of
            :func:`~graphrerank.data.enrichment.shared_entities.choose_neighbours`; None where there are none, or not
            yet.
        makes_choices: Whether there are to be such edges; else passages that share an entity are neighbours query by
            query.
    """

    stated: Edges
    mention_type: int | None = None
    mentions: Mentions | None = None
    entity_source: str | None = None
    entity_names: Sequence[AbstractSet[str]] | None = None
    max_entity_share: float = 1.0
    chosen: tuple[Tensor, Tensor] | None = None
    makes_choices: bool = False

    @property
    def makes_edges(self) -> bool:
        """Whether there may be edges that are not stated."""
        return self.mention_type is not None or self.makes_choices

    def joined(self) -> Edges:
        """Return all edges."""
        parts = [self.stated]
        if self.mentions is not None:
            assert self.mention_type is not None
            pairs = self.mentions.pairs
            parts.append((pairs, torch.ones(len(pairs)), torch.full((len(pairs),), self.mention_type)))
        if self.chosen is not None:
            pairs, weight = self.chosen
            parts.append((pairs, weight, torch.full((len(pairs),), ENTITY)))
        pairs, weight, types = (torch.cat(column) for column in zip(*parts, strict=True))
        return pairs, weight, types

    def derived_again(self, passages: Sequence[str], title_lengths: Sequence[int]) -> "DerivedEdges":
        """Search the same passages for all mentions and shared entities again."""
        mentions, chosen = None, None
        if self.mention_type is not None:
            split = [split_passage(*pair) for pair in zip(passages, title_lengths, strict=True)]
            mentions = find_mentions([title for title, _ in split], [text for _, text in split])
        if self.makes_choices:
            assert self.entity_names is not None
            incidence = EntityIncidence.from_names(self.entity_names, max_share=self.max_entity_share)
            pairs, total = choose_neighbours(incidence)
            chosen = (pairs, shared_weight(total, incidence.num_nodes))
        return replace(self, mentions=mentions, chosen=chosen)
