"""What a ReTAG index was built from, and what that cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReTAGReport:
    """Counts that an index's arrays do not tell.

    Attributes:
        passages: Passages of the corpus.
        corpus_tokens: Their tokens.
        entities: Entities that the corpus names.
        relations: Relations that it states.
        unrelated: Entities that are related to none, or to too few, and so in no community of the general graph.
        summarised: Communities whose summaries were made in this build; fewer than there are after an update.
        skipped: Answers of a language model that stayed unusable; what they were asked for is made without it.
    """

    passages: int
    corpus_tokens: int
    entities: int
    relations: int
    unrelated: int
    summarised: int
    skipped: int
