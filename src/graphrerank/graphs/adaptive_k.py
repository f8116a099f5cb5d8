"""Where to end a list: after what is likely to be relevant, or once the rest is likely to be not."""

from torch import Tensor

from graphrerank.graphs.list_confidence import ListConfidence

CALIBRATE = "`graphrerank calibrate checkpoint=CHECKPOINT` adds it to one that has none"


def adaptive_k(
    probabilities: Tensor | None,
    confidence: ListConfidence | None,
    *,
    min_probability: float | None = None,
    min_perfect_recall: float | None = None,
) -> int | None:
    """Return how many passages of a ranking to keep.

    Args:
        probabilities: ``[K]`` in [0, 1], of relevance, best first; None for a model that is not calibrated.
        confidence: Of the model; None where it has none.
        min_probability: Keep the passages that are relevant with at least this probability; None for no such end.
        min_perfect_recall: Keep as few passages as hold all that is relevant with at least this probability, all ``K``
            if no number of them does; None for no such end.

    Returns:
        From 0 to ``K``; the smaller number if both are given, None if neither is.

    Raises:
        ValueError: If a number is not in [0, 1], or the model has not what it needs.

    Example:
        >>> import torch
        >>> adaptive_k(torch.tensor([0.9, 0.5, 0.1]), None, min_probability=0.5)
        2
    """
    check_ends(min_probability=min_probability, min_perfect_recall=min_perfect_recall)
    kept = None
    if min_probability is not None:
        if probabilities is None:
            raise ValueError(f"`min_probability` needs a calibrated model, this one is not; {CALIBRATE}")
        kept = int((probabilities >= min_probability).sum())
    if min_perfect_recall is not None:
        if probabilities is None or confidence is None:
            raise ValueError(f"`min_perfect_recall` needs a model with `list_confidence`, this has none; {CALIBRATE}")
        short = int((confidence.perfect_recall(probabilities) < min_perfect_recall).sum())  # it does not fall
        enough = min(short + 1, len(probabilities))
        kept = enough if kept is None else min(kept, enough)
    return kept


def check_ends(**ends: float | None) -> None:
    """Raise a ValueError that names a probability outside of [0, 1]."""
    for name, end in ends.items():
        number = isinstance(end, int | float) and not isinstance(end, bool)
        if end is not None and not (number and 0 <= end <= 1):
            raise ValueError(f"`{name}` must be a probability in [0, 1], got {end!r}")
