"""Training losses: pure functions of scores, relevance and a mask of real candidates."""

from graphrerank.losses.bce import binary_cross_entropy
from graphrerank.losses.lambdaloss import lambda_loss
from graphrerank.losses.listwise import listwise_softmax_cross_entropy
from graphrerank.losses.ranknet import ranknet
from graphrerank.losses.smooth_pr import smooth_perfect_recall

__all__ = [
    "binary_cross_entropy",
    "lambda_loss",
    "listwise_softmax_cross_entropy",
    "ranknet",
    "smooth_perfect_recall",
]
