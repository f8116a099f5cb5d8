"""Fit the probability that a list's top is complete, on lists outside of the training."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.graphs.list_confidence import ListConfidence, list_statistics

RANKS = (1, 2, 3, 5, 10, 20)  # at which lists are judged; one function serves all
MIN_COMPLETE = 0.1  # share of a data set's lists that must be complete at the last rank for them to teach anything
PENALTY = 1.0  # inverse weight of the squared weights, of statistics with unit variance


def fit_list_confidence(lists: Mapping[str, tuple[Tensor, Tensor]], ranks: Sequence[int] = RANKS) -> ListConfidence:
    """Fit a logistic regression on lists of several data sets, each of which counts the same.

    Of several, those that :func:`teach_confidence` leaves out do not count.

    Args:
        lists: By data set: ``[Q, K]`` probabilities of relevance, best first, 0 where padded; and ``[Q, K]`` bool,
            whether all relevant passages of the query are among the first 1, 2, ..., K.
        ranks: Ranks to judge the lists at; those beyond a list's end are left out.

    Raises:
        ValueError: If no list that is left is complete at any of the ranks, or all are at all of them.
    """
    from sklearn.linear_model import LogisticRegression

    rows, labels, weights = [], [], []
    for name in teach_confidence({name: complete for name, (_, complete) in lists.items()}, ranks):
        probabilities, complete = lists[name]
        at = [rank - 1 for rank in ranks if rank <= probabilities.shape[1]]
        rows.append(list_statistics(probabilities)[:, at].flatten(0, 1))
        labels.append(complete[:, at].flatten())
        weights.append(torch.full((len(labels[-1]),), 1 / max(1, len(labels[-1]))))
    count = sum(int(of.sum()) for of in labels)
    total = sum(map(len, labels))
    if not 0 < count < total:
        raise ValueError(
            f"`lists` must be complete at some ranks and incomplete at others, got {count} of {total} in "
            f"{len(labels)} data sets, of several those with a complete list in ten"
        )
    x, y, weight = torch.cat(rows), torch.cat(labels), torch.cat(weights).double()
    mean, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-9)
    model = LogisticRegression(C=PENALTY, max_iter=1000)
    model.fit(((x - mean) / spread).numpy(), y.numpy(), sample_weight=(weight / weight.mean()).numpy())
    slope = torch.from_numpy(model.coef_[0]) / spread
    beyond, within = slope.tolist()
    return ListConfidence(beyond, within, intercept=float(model.intercept_[0] - slope @ mean))


def teach_confidence(complete: Mapping[str, Tensor], ranks: Sequence[int] = RANKS) -> list[str]:
    """Name the data sets that a fit is taught by: the only one, or of several those often complete.

    Where queries have dozens of relevant passages, hardly a list ever is. Nothing in a list tells these from others, so
    that they would lower the confidence everywhere.

    Args:
        complete: By data set ``[Q, K]`` bool, as in :func:`fit_list_confidence`.
        ranks: As in :func:`fit_list_confidence`; at the last that lists have, a tenth of them must be complete.
    """
    if len(complete) == 1:
        return list(complete)
    return [name for name, of in complete.items() if _share_complete(of, ranks) >= MIN_COMPLETE]


def _share_complete(complete: Tensor, ranks: Sequence[int]) -> float:
    last = max(rank for rank in ranks if rank <= complete.shape[1])
    return float(complete[:, last - 1].double().mean())
