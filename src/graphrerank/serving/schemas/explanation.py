"""Explanations of scores in answers."""

from pydantic import BaseModel

from graphrerank.rerank.explanation import DocumentExplanation


class EdgeEffectResult(BaseModel):
    """Effect of an edge on a score."""

    #: Positions of the documents that the edge joins.
    edge: tuple[int, int]
    #: Score with the edge minus the score without it.
    effect: float
    #: Type of the edge. Null for a model that merges types.
    type: str | None


class Explanation(BaseModel):
    """Parts of a document's score."""

    #: Rank by the base score, from 1. Ties are ranked by index.
    base_rank: int
    #: Score in the request, or the hybrid of BM25 and cosine.
    base_score: float
    #: Part of Graph Cohesive Smoothing. 0 for a model without it.
    gcs_part: float
    #: Part of the network.
    learned_part: float
    #: Sum of both parts.
    score: float
    #: Up to five edges whose removal changes the score most, largest change first.
    edges: list[EdgeEffectResult]
    #: Probability of relevance, if the artifact is calibrated.
    probability: float | None = None


def explanation_of(explanation: DocumentExplanation, probability: float | None) -> Explanation:
    """Return an explanation as it is sent."""
    return Explanation(
        **{name: getattr(explanation, name) for name in ("base_rank", "base_score", "gcs_part", "learned_part")},
        score=explanation.gcs_part + explanation.learned_part,
        edges=[EdgeEffectResult(edge=edge.pair, effect=edge.effect, type=edge.edge_type) for edge in explanation.edges],
        probability=probability,
    )
