"""Choose the two thresholds on s(q) that part dense retrieval, fusion and graph retrieval."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.graphs.routes import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares

TIE_PRICE = 1e-9  # added to the price: of equal objectives the faster one
BLOCK_NUMBERS = 1 << 20  # of the bootstrap at once


@dataclass(frozen=True)
class ThresholdChoice:
    """Thresholds and their result on the queries that they were chosen on."""

    low: float  # queries with s(q) up to it go to dense retrieval; -1: none does
    high: float  # queries with s(q) from it on go to graph retrieval; 2: none does. Above `low`
    low_interval: tuple[float, float]  # 95% bootstrap interval of `low` over queries, within [0, 1]
    high_interval: tuple[float, float]  # that of `high`
    price: float  # accuracy that a second per query must bring
    objective: float  # mean accuracy minus `price` times mean seconds
    accuracy: float  # mean correctness
    seconds: float  # mean per query
    shares: dict[str, float]  # of queries per path
    alone: dict[str, float]  # the objective of each path for all queries


def choose_thresholds(
    scores: Tensor,
    correct: Tensor,
    seconds: Tensor | Sequence[float],
    *,
    price: float,
    fuse: bool = True,
    samples: int = 1000,
    seed: int = 0,
) -> ThresholdChoice:
    r"""Choose the thresholds of the highest mean accuracy minus price times seconds, among all there are.

    .. math:: J(\tau_L, \tau_H) = \frac{1}{n} \sum_q c_{q, r(q)} - \lambda t_{r(q)}

    Source: EA-GraphRAG, section 3.3, "a composite objective of validation accuracy and expected latency", which the
    paper does not write out. Between two neighbouring scores all thresholds route alike, so that one candidate stands
    for them: ``low`` at a third of the gap and ``high`` at two thirds, so that ``low`` stays below ``high`` where
    nothing is fused. :math:`J` is a sum of a part of ``low`` and a part of ``high``: prefix sums and a running maximum
    find the best of all pairs, also within each bootstrap sample.

    Args:
        scores: ``[n]``, s(q) in [0, 1] of validation queries: all kinds, not the disagreements alone.
        correct: ``[n, 3]``, how right each of :data:`ROUTES` was, in [0, 1].
        seconds: ``[3]``, of each of :data:`ROUTES` per query, measured; or ``[n, 3]`` where they differ by data set.
        price: Accuracy per second, not negative: with 0.01 a second must bring a hundredth.
        fuse: Whether fusion may be chosen; without it ``low`` and ``high`` lie between the same two scores.
        samples: Bootstrap samples of the queries.
        seed: Of the samples; torch's global generator is left alone.

    Raises:
        ValueError: If a shape does not fit or a number is out of range.
    """
    time = torch.as_tensor(seconds, dtype=torch.float64)
    _check(scores, correct, time, price, samples)
    time = time.expand(len(scores), 3)
    order = scores.double().argsort(stable=True)
    sorted_scores, sorted_correct = scores.double()[order], correct.double()[order]
    distinct, group = torch.unique_consecutive(sorted_scores, return_inverse=True)
    lows, highs = _candidates(distinct)
    worth = sorted_correct - (price + TIE_PRICE) * time[order]  # [n, 3]

    low_part, high_part = _parts(worth, group, torch.ones(1, len(scores), dtype=torch.float64))
    low_at, high_at = (int(index) for index in _best(low_part, high_part, fuse=fuse))
    low_samples, high_samples = _bootstrap(worth, group, lows, highs, fuse=fuse, samples=samples, seed=seed)

    low, high = float(lows[low_at]), float(highs[high_at])
    path = choose_routes(scores, low, high)
    accuracy = float(correct.double().gather(1, path.unsqueeze(1)).mean())
    mean_seconds = float(time.gather(1, path.unsqueeze(1)).mean())
    means = (correct.double() - price * time).mean(dim=0)
    return ThresholdChoice(
        low=low,
        high=high,
        low_interval=_interval(low_samples),
        high_interval=_interval(high_samples),
        price=price,
        objective=accuracy - price * mean_seconds,
        accuracy=accuracy,
        seconds=mean_seconds,
        shares=route_shares(path),
        alone=dict(zip(ROUTES, means.tolist(), strict=True)),
    )


def _check(scores: Tensor, correct: Tensor, seconds: Tensor, price: float, samples: int) -> None:
    if scores.ndim != 1 or len(scores) == 0 or not bool(((scores >= 0) & (scores <= 1)).all()):
        raise ValueError(f"`scores` must be one or more numbers in [0, 1], got shape {tuple(scores.shape)}")
    if correct.shape != (len(scores), 3) or not bool(((correct >= 0) & (correct <= 1)).all()):
        raise ValueError(f"`correct` must have shape [{len(scores)}, 3] and lie in [0, 1], got {tuple(correct.shape)}")
    if seconds.shape not in {(3,), (len(scores), 3)} or not bool(((seconds >= 0) & seconds.isfinite()).all()):
        raise ValueError(
            f"`seconds` must be finite times of {', '.join(ROUTES)}, [3] or [{len(scores)}, 3], got {seconds.tolist()}"
        )
    if not 0 <= price < float("inf"):
        raise ValueError(f"`price` must be finite and not negative, got {price}")
    check_counts(samples=samples)


def _candidates(distinct: Tensor) -> tuple[Tensor, Tensor]:
    """Return one ``low`` and one ``high`` for each cut of ``m`` ascending scores, ``[m + 1]`` each."""
    gap = distinct.diff()
    low = torch.cat([distinct.new_tensor([-1.0]), distinct[:-1] + gap / 3, distinct.new_tensor([1.0])])
    high = torch.cat([distinct.new_tensor([0.0]), distinct[:-1] + 2 * gap / 3, distinct.new_tensor([2.0])])
    return low, high


def _parts(worth: Tensor, group: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """Split the objective of the cuts ``i <= j`` into ``low_part[:, i] + high_part[:, j]``, ``[S, m + 1]`` each."""
    # worth: [n, 3] of each path, by ascending score; group: [n], index of each distinct score
    # times: [S, n], how often each query counts; rows sum to n
    num_groups = int(group[-1]) + 1
    gain_low = times * (worth[:, DENSE] - worth[:, FUSION]) / len(worth)
    gain_high = times * (worth[:, FUSION] - worth[:, GRAPH]) / len(worth)
    base = (times * worth[:, GRAPH]).sum(dim=1, keepdim=True) / len(worth)

    def prefix(gain: Tensor) -> Tensor:
        summed = gain.new_zeros(len(gain), num_groups + 1)
        return summed.index_add_(1, group + 1, gain).cumsum(dim=1)

    return prefix(gain_low), base + prefix(gain_high)


def _best(low_part: Tensor, high_part: Tensor, *, fuse: bool) -> tuple[Tensor, Tensor]:
    """Return the cuts ``i <= j`` of the highest sum, ``[S]`` each; without fusion ``i = j``."""
    if not fuse:
        cut = (low_part + high_part).argmax(dim=1)
        return cut, cut
    best_below, best_index = low_part.cummax(dim=1)
    high_at = (best_below + high_part).argmax(dim=1)
    return best_index.gather(1, high_at.unsqueeze(1)).squeeze(1), high_at


def _bootstrap(
    worth: Tensor, group: Tensor, lows: Tensor, highs: Tensor, *, fuse: bool, samples: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return the best thresholds of samples of the queries drawn with replacement, ``[samples]`` each."""
    generator = torch.Generator().manual_seed(seed)
    num_queries, thresholds = len(worth), []
    size = max(1, BLOCK_NUMBERS // num_queries)
    for start in range(0, samples, size):
        drawn = torch.randint(num_queries, (min(size, samples - start), num_queries), generator=generator)
        times = torch.zeros(drawn.shape, dtype=torch.float64)
        times.scatter_add_(1, drawn, torch.ones_like(times))
        low_at, high_at = _best(*_parts(worth, group, times), fuse=fuse)
        thresholds.append(torch.stack([lows[low_at], highs[high_at]]))
    low, high = torch.cat(thresholds, dim=1)
    return low, high


def _interval(thresholds: Tensor) -> tuple[float, float]:
    low, high = thresholds.clamp(0, 1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
