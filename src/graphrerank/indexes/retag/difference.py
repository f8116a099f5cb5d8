"""How far two ReTAG indexes of the same passages are from each other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.indexes.retag.index import ReTAGIndex


@dataclass(frozen=True)
class IndexDifference:
    """How alike the general graphs of two indexes are cut into communities and summed up.

    Attributes:
        communities: Numbers of communities of both, all graphs together.
        rand: Adjusted Rand index of the two partitions at each level of the second index: 1 for the same communities,
            about 0 for communities by chance.
        summaries: Mean over the second index's communities, all graphs together, of the cosine of the nearest summary
            of the first.
    """

    communities: tuple[int, int]
    rand: tuple[float, ...]
    summaries: float


def index_difference(index: ReTAGIndex, other: ReTAGIndex) -> IndexDifference:
    """Compare two indexes of the same passages, as one that grew with one that was built at once.

    Raises:
        ValueError: If they are of other passages.
    """
    from sklearn.metrics import adjusted_rand_score

    if list(index.passage_ids) != list(other.passage_ids):
        raise ValueError("`index` and `other` must be of the same passages, got different ids")
    levels = range(other.communities.num_levels(0))
    rand = []
    for level in levels:
        left, right = _labels(index, level), _labels(other, level)
        both = (left >= 0) & (right >= 0)
        rand.append(float(adjusted_rand_score(left[both], right[both])))
    likeness = 1.0
    if len(other.communities) and len(index.communities):
        likeness = float((other.communities.vectors @ index.communities.vectors.T).max(dim=1).values.mean())
    return IndexDifference((len(index.communities), len(other.communities)), tuple(rand), likeness)


def _labels(index: ReTAGIndex, level: int) -> Tensor:
    """``[E]``, the community of each entity at a level of the general graph; -1 for none."""
    label = torch.full((len(index.entities),), -1, dtype=torch.int64)
    for community in index.communities.at_level(0, level).tolist():
        label[index.communities.members[community]] = community
    return label
