"""The scores that a model was trained on, from those that a retriever gives."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES
from graphrerank.graphs.retriever import OPTIONAL_FEATURES


def feature_columns(
    names: Sequence[str], given_names: Sequence[str], features: Tensor, *, match: Callable[[bool], Tensor]
) -> Tensor:
    """Pick, compute or leave out each of the ``F'`` scores that a model reads, of ``[..., F]`` that a retriever gives.

    ``TEXT_MATCH_FEATURES`` that the retriever does not give are columns of ``match(with_words)``.
    ``OPTIONAL_FEATURES`` that it does not give are 0 for all candidates: for features of a walk this means that the
    base ranking gave all candidates, for BM25 and cosine that they are unknown. Models scale features within each list,
    where a constant carries no information.

    Raises:
        ValueError: If the retriever does not give one of the other names.
    """
    computed = [name for name in TEXT_MATCH_FEATURES if name in names and name not in given_names]
    known = (*given_names, *computed)
    missing = [name for name in names if name not in (*known, *OPTIONAL_FEATURES)]
    if missing:
        raise ValueError(
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
