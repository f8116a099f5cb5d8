"""Select or compute the scores that a model was trained on."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.core.retriever import OPTIONAL_FEATURES
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES
from graphrerank.utils.checks import UserError


def cross_encoder_columns(scores: Tensor, read: Tensor) -> Tensor:
    """Convert the scores of a cross-encoder to ``CROSS_ENCODER_FEATURES``.

    A scored candidate has its score, min-max scaled over the scored candidates, the reciprocal of its rank among them,
    and 0. Candidates with equal scores share the mean of their ranks. A candidate that was not scored has 0, 0 and 1.
    If no candidate of a list was scored, all columns are 0, as in training when the cross-encoder's scores are hidden.

    Args:
        scores: Scores of the cross-encoder, ``[..., K]``.
        read: Whether the cross-encoder has scored a candidate, ``[..., K]`` bool.

    Returns:
        Features ``[..., K, 3]``, float32 in [0, 1].

    Example:
        >>> cross_encoder_columns(torch.tensor([-9.0, 3.0, -3.0, 0.0]), torch.tensor([True, True, True, False]))
        tensor([[0.0000, 0.3333, 0.0000],
                [1.0000, 1.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    scores = scores.float()
    low = scores.masked_fill(~read, torch.inf).amin(-1, keepdim=True)
    high = scores.masked_fill(~read, -torch.inf).amax(-1, keepdim=True)
    scaled = (scores - low) / torch.where(high > low, high - low, 1.0)
    ascending = scores.masked_fill(~read, torch.inf).sort(dim=-1).values.contiguous()
    bounded = scores.masked_fill(~read, 0.0).contiguous()
    num_lower = torch.searchsorted(ascending, bounded)
    num_not_higher = torch.searchsorted(ascending, bounded, right=True)
    rank = read.sum(-1, keepdim=True) - (num_lower + num_not_higher - 1) / 2
    unread = ~read & read.any(-1, keepdim=True)
    columns = [scaled.masked_fill(~read, 0.0), (1 / rank).masked_fill(~read, 0.0), unread.float()]
    return torch.stack(columns, dim=-1)


def feature_columns(
    names: Sequence[str], given_names: Sequence[str], features: Tensor, *, match: Callable[[bool], Tensor]
) -> Tensor:
    """Return the scores that a model was trained on, in its order.

    Missing ``TEXT_MATCH_FEATURES`` are computed by ``match``. Missing ``OPTIONAL_FEATURES`` are 0 for all candidates.
    This is safe because models scale features within a list, where a constant carries no information.

    Args:
        names: Names of the ``F'`` scores that the model needs.
        given_names: Names of the ``F`` available scores.
        features: Available scores ``[..., F]``.
        match: Function that computes the text-match features, called with whether to include those of single words.

    Returns:
        Scores ``[..., F']``.

    Raises:
        UserError: If another score is missing.

    Example:
        >>> features, names = torch.tensor([[0.9, 2.0]]), ["base_score", "bm25_score"]
        >>> feature_columns(["bm25_score", "hops"], names, features, match=lambda with_words: torch.zeros(1, 3))
        tensor([[2., 0.]])
    """
    computed = [name for name in TEXT_MATCH_FEATURES if name in names and name not in given_names]
    available = (*given_names, *computed)
    missing = [name for name in names if name not in (*available, *OPTIONAL_FEATURES)]
    if missing:
        raise UserError(
            f"the model needs the scores {list(names)} of each candidate, but the retriever only provides "
            f"{list(given_names)}. Missing: {missing}"
        )
    if computed:
        with_words = not set(WORD_FEATURES).isdisjoint(computed)
        matched = _columns(match(with_words), [TEXT_MATCH_FEATURES.index(name) for name in computed])
        features = torch.cat([features, matched], dim=-1)
    zeros = features.new_zeros(*features.shape[:-1], 1)
    column = {name: index for index, name in enumerate(available)}
    return _columns(torch.cat([features, zeros], dim=-1), [column.get(name, len(available)) for name in names])


def _columns(features: Tensor, columns: Sequence[int]) -> Tensor:
    return features.index_select(-1, torch.tensor(columns, dtype=torch.int64).to(features.device))
