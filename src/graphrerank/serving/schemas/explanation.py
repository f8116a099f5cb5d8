"""Explanations of scores in answers."""

from pydantic import (
    BaseModel,
)

from graphrerank.rerank.explanation import DocumentExplanation


class EdgeEffect(BaseModel):
    """Effect of an edge on a score."""

    edge: tuple[int, int]  # the documents that it joins
    effect: float  # the score with it minus the score without it
    type: str | None  # None where the model merges types


class Explanation(BaseModel):
    """Parts of a document's score."""

    base_rank: int  # by the base score, from 1, ties by index
    base_score: float  # the given one, or the hybrid of BM25 and cosine
    gcs_part: float  # of Graph Cohesive Smoothing; 0 for a model without it
    learned_part: float  # of the network
    score: float  # the sum of both parts
    edges: list[EdgeEffect]  # up to five whose removal changes the score most, largest change first
    probability: float | None = None  # of relevance, if the artifact is calibrated


def explanation_of(explanation: DocumentExplanation, probability: float | None) -> Explanation:
    """Return an explanation as it is sent."""
    return Explanation(
        **{name: getattr(explanation, name) for name in ("base_rank", "base_score", "gcs_part", "learned_part")},
        score=explanation.gcs_part + explanation.learned_part,
        edges=[EdgeEffect(edge=edge.pair, effect=edge.effect, type=edge.edge_type) for edge in explanation.edges],
        probability=probability,
    )
