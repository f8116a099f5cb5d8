"""Sizes and costs of a ReTAG index."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReTAGReport:
    """Counts that an index's arrays do not contain."""

    passages: int  # passages of the corpus
    corpus_tokens: int  # tokens of the passages
    entities: int  # entities that the corpus names
    relations: int  # related pairs of entities
    unrelated: int  # entities in no community of the general graph, as they are related to too few others
    summarised: int  # communities summarised in this build; after an update not all of them
    skipped: int  # answers of a language model that remained unusable and were left out
