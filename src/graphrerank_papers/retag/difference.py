"""Comparison of two ReTAG indexes of the same passages."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank_papers.retag.index import ReTAGIndex


@dataclass(frozen=True)
class IndexDifference:
    """Similarity of the communities and summaries of two indexes."""

    communities: tuple[int, int]  # number of communities of each, over all graphs
    # adjusted Rand index of the two partitions of the general graph at each level of the second index: 1 for equal
    # partitions, about 0 for random ones
    rand: tuple[float, ...]
    # cosine between a summary of the second index and the nearest one of the first, averaged over all communities of
    # all graphs
    summaries: float


def index_difference(index: ReTAGIndex, other: ReTAGIndex) -> IndexDifference:
    """Compare two indexes of the same passages, such as an updated one with a new build."""
    from sklearn.metrics import adjusted_rand_score

    if list(index.passage_ids) != list(other.passage_ids):
        raise ValueError("`index` and `other` must have the same passages, got different ids")
    levels = range(other.communities.num_levels(0))
    rand = []
    for level in levels:
        left, right = _labels(index, level), _labels(other, level)
        both = (left >= 0) & (right >= 0)
        rand.append(float(adjusted_rand_score(left[both], right[both])))
    similarity = 1.0
    if len(other.communities) and len(index.communities):
        similarity = float((other.communities.vectors @ index.communities.vectors.T).max(dim=1).values.mean())
    return IndexDifference((len(index.communities), len(other.communities)), tuple(rand), similarity)


def _labels(index: ReTAGIndex, level: int) -> Tensor:
    """Return the community ``[E]`` of each entity at a level of the general graph; -1 for none."""
    label = torch.full((len(index.entities),), -1, dtype=torch.int64)
    for community in index.communities.at_level(0, level).tolist():
        label[index.communities.members[community]] = community
    return label
