"""Probabilities of the augmentation of training batches. No torch, so that commands read their settings quickly."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class AugmentationSettings:
    """Settings of the augmentation of training batches, as probabilities per query in [0, 1].

    Attributes:
        base_swap: Probability of replacing the base score by BM25 or the cosine similarity, with equal probability.
        score_dropout: Probability of hiding a score other than the base score. The scores of an expansion are hidden
            together, and so are those of the text match.
        cross_encoder_dropout: Probability of hiding the scores of a cross-encoder, which `score_dropout` never hides.
        edge_dropout: Probability of removing all edges and the scores computed from them.
        type_merge: Probability of merging all edges into the type `other`. Requires a model that uses edge types.
        type_swap: Probability of permuting the edge types at random. Requires a model that uses edge types.
        type_dropout: Probability, for each edge type, of removing its edges. Requires a model that uses edge types.
        edge_noise: Probability of adding up to 1,500 edges of one type between random candidates.
        list_cut: Probability of truncating the list to its first 20 to 80 candidates by base score. Lists that would
            lose all relevant candidates are not truncated.
    """

    base_swap: float = 0.0
    score_dropout: float = 0.0
    cross_encoder_dropout: float = 0.0
    edge_dropout: float = 0.0
    type_merge: float = 0.0
    type_swap: float = 0.0
    type_dropout: float = 0.0
    edge_noise: float = 0.0
    list_cut: float = 0.0
