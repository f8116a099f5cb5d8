"""The language steps of ReTAG, which have an extractive and a generative implementation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank_papers.retag.community_summaries import Summarizer
from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.summary_material import Material
from graphrerank_papers.retag.topics import Topics


@dataclass(frozen=True)
class Corpus:
    """A corpus before topics are found."""

    graph: EntityGraph  # entities, sentences and relations
    material: Material  # texts that summaries are made from
    sentence_vectors: Tensor  # `[S, d]`
    entity_vectors: Tensor  # `[E, d]`


class LanguageSteps(Protocol):
    """An implementation of the language steps."""

    is_extractive: bool  # whether summaries consist of sentences of the corpus, which are then the material's texts

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the results would."""

    @property
    def num_skipped(self) -> int:
        """Number of answers that remained unusable, over all calls."""

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Collect the texts that summaries are made from."""

    def find_topics(self, corpus: Corpus, centre: Tensor) -> Topics:
        """Find the topics of a corpus with the centre ``[d]``; thresholds are set later."""

    def relevant_entities(self, corpus: Corpus, topics: Topics, *, first_passage: int, first_entity: int) -> Tensor:
        """Return which entities belong to which topics, ``[E, T]`` bool, given the passages from ``first_passage`` on.

        Entities before ``first_entity`` need only be judged by those passages.
        """

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Return which relations belong to which topics, ``[m, T]`` bool, given the passages from ``first_passage`` on.

        ``entities`` are those of each topic, ``[E, T]`` bool, which include both ends of its relations.
        """

    def summarizer(self, corpus: Corpus) -> Summarizer:
        """Return the summarizer of a corpus."""

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return ``[n, d]`` unit vectors of summaries, zeros for empty ones."""


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """Subtract the centre and normalise; zero vectors stay zero."""
    is_nonzero = vectors.abs().sum(dim=1, keepdim=True) > 0
    return torch.nn.functional.normalize(vectors - centre, dim=1) * is_nonzero


def join_texts(material: Material, texts: Sequence[int]) -> str:
    """Join texts by spaces."""
    return " ".join(material.texts[text] for text in texts)
