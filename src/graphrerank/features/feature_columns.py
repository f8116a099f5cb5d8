"""The scores that a model was trained on, from those that a retriever gives."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.core.retriever import OPTIONAL_FEATURES
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES
from graphrerank.utils.checks import UserError


def cross_encoder_columns(scores: Tensor, read: Tensor) -> Tensor:
    """Turn a cross-encoder's scores ``[..., K]``, of candidates that it has ``read``, into ``CROSS_ENCODER_FEATURES``.

    Of a candidate that was read: its score, min-max scaled among those read; 1 / its rank among them, ties by place;
    and 0. Of the others of the list: 0, 0 and 1. Where nothing was read, all is 0, as where a model's columns are
    hidden. Returns ``[..., K, 3]`` float32 in [0, 1].

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
    order = scores.masked_fill(~read, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(scores.shape[-1]).expand_as(order)) + 1
    unread = ~read & read.any(-1, keepdim=True)
    columns = [scaled.masked_fill(~read, 0.0), (1 / rank).masked_fill(~read, 0.0), unread.float()]
    return torch.stack(columns, dim=-1)


def feature_columns(
    names: Sequence[str], given_names: Sequence[str], features: Tensor, *, match: Callable[[bool], Tensor]
) -> Tensor:
    """Pick or compute each of the ``F'`` scores that a model reads, of ``[..., F]`` that a retriever gives.

    ``TEXT_MATCH_FEATURES`` that the retriever does not give are columns of ``match(with_words)``.
    ``OPTIONAL_FEATURES`` that it does not give are 0 for all candidates: models scale features within each list, where
    a constant carries no information. A ValueError names others that it does not give.
    """
    computed = [name for name in TEXT_MATCH_FEATURES if name in names and name not in given_names]
    known = (*given_names, *computed)
    missing = [name for name in names if name not in (*known, *OPTIONAL_FEATURES)]
    if missing:
        raise UserError(
            f"needed the scores {list(names)} per candidate, the retriever gives {tuple(given_names)}: no {missing}"
        )
    if computed:
        with_words = not set(WORD_FEATURES).isdisjoint(computed)
        matched = _columns(match(with_words), [TEXT_MATCH_FEATURES.index(name) for name in computed])
        features = torch.cat([features, matched], dim=-1)
    unknown = features.new_zeros(*features.shape[:-1], 1)
    column = {name: index for index, name in enumerate(known)}
    return _columns(torch.cat([features, unknown], dim=-1), [column.get(name, len(known)) for name in names])


def _columns(features: Tensor, columns: Sequence[int]) -> Tensor:
    return features.index_select(-1, torch.tensor(columns, dtype=torch.int64).to(features.device))
