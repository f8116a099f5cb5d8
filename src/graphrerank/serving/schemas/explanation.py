"""Explanations of scores in responses."""

from pydantic import BaseModel, Field

from graphrerank.rerank.explanation import DocumentExplanation


class EdgeEffectResult(BaseModel):
    """Effect of an edge on a score."""

    edge: tuple[int, int] = Field(description="Positions of the documents that the edge connects.")
    effect: float = Field(description="Score with the edge minus score without it.")
    type: str | None = Field(description="Type of the edge. null for a model that merges edge types.")


class Explanation(BaseModel):
    """Terms of a document's score."""

    base_rank: int = Field(description="Rank by the base score, starting at 1. Equal scores share the best rank.")
    base_score: float = Field(description="Score in the request, or the hybrid of BM25 and cosine.")
    gcs_part: float = Field(description="Term of Graph Cohesive Smoothing. 0 for a model without it.")
    learned_part: float = Field(description="Term of the network.")
    score: float = Field(description="Sum of `gcs_part` and `learned_part`.")
    edges: list[EdgeEffectResult] = Field(
        description="Up to five edges whose removal changes the score most, largest change first."
    )
    probability: float | None = Field(
        default=None, description="Probability of relevance, if the artifact is calibrated."
    )


def explanation_of(explanation: DocumentExplanation, probability: float | None) -> Explanation:
    """Return an explanation in the form of a response.

    Args:
        explanation: Explanation of one document.
        probability: Probability of relevance of the document. None if unknown.
    """
    return Explanation(
        **{name: getattr(explanation, name) for name in ("base_rank", "base_score", "gcs_part", "learned_part")},
        score=explanation.gcs_part + explanation.learned_part,
        edges=[EdgeEffectResult(edge=edge.pair, effect=edge.effect, type=edge.edge_type) for edge in explanation.edges],
        probability=probability,
    )
