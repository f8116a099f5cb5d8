"""Sizes and costs of a ReTAG index."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReTAGReport:
    """Counts that an index's arrays do not contain.

    Attributes:
        passages: Passages of the corpus.
        corpus_tokens: Tokens of the passages.
        entities: Entities that the corpus names.
        relations: Related pairs of entities.
        unrelated: Entities in no community of the general graph, as they are related to too few others.
        summarised: Communities summarised in this build; after an update not all of them.
        skipped: Answers of a language model that remained unusable and were left out.
    """

    passages: int
    corpus_tokens: int
    entities: int
    relations: int
    unrelated: int
    summarised: int
    skipped: int
