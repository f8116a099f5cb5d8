"""The language steps of ReTAG, which can be done in more than one way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.indexes.retag.community_summaries import Summarizer
from graphrerank.indexes.retag.entity_graph import EntityGraph
from graphrerank.indexes.retag.summary_material import Material
from graphrerank.indexes.retag.topics import Topics
from graphrerank.knowledge import Knowledge


@dataclass(frozen=True)
class Corpus:
    """What is known before topics are.

    Attributes:
        graph: Entities, sentences and relations.
        material: What summaries are made from.
        sentence_vectors: ``[S, d]``.
        entity_vectors: ``[E, d]``.
    """

    graph: EntityGraph
    material: Material
    sentence_vectors: Tensor
    entity_vectors: Tensor


@dataclass(frozen=True)
class FoundTopics:
    """Topics before their thresholds are set.

    Attributes:
        names: ``T`` names.
        terms: Of each its words, the most telling first.
        vectors: ``[T, d]`` unit vectors, of centred vectors.
    """

    names: Sequence[str]
    terms: Sequence[Sequence[str]]
    vectors: Tensor


class Language(Protocol):
    """A way to do the language steps.

    Attributes:
        picked: Whether summaries consist of sentences of the corpus, which then are the material's texts.
    """

    picked: bool

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever what it gives would."""

    @property
    def skipped(self) -> int:
        """Answers that stayed unusable, over all calls."""

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Gather what summaries are made from."""

    def find_topics(self, corpus: Corpus, centre: Tensor) -> FoundTopics:
        """Find the topics of a corpus."""

    def relevant_entities(self, corpus: Corpus, topics: Topics, *, first_passage: int, first_entity: int) -> Tensor:
        """Tell which entities belong to which topics, by what passages from ``first_passage`` on say of them.

        Returns:
            ``[E, T]`` bool; of entities before ``first_entity`` no more need be told than those passages do.
        """

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Tell which relations belong to which topics, likewise: ``[m, T]`` bool.

        Args:
            corpus: The corpus.
            topics: ``T`` topics.
            entities: ``[E, T]`` bool, those of each topic; both ends of its relations are among them.
            first_passage: What is said before it is known.
        """

    def summarizer(self, corpus: Corpus) -> Summarizer:
        """Give what sums texts up."""

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Give ``[n, d]`` unit vectors of summaries, zeros of an empty one."""


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """Subtract what all vectors have in common; one of zeros stays what it is."""
    told = vectors.abs().sum(dim=1, keepdim=True) > 0
    return torch.nn.functional.normalize(vectors - centre, dim=1) * told


def join_texts(material: Material, numbers: Sequence[int]) -> str:
    """Write texts one behind the other."""
    return " ".join(material.texts[number] for number in numbers)
