"""The scores of a request that are computed from its texts, which are split into words once for all of them."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.shared_words import words_of
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.graphs.retriever import TEXT_FEATURES
from graphrerank.inference.rerank_input import RerankInput

BM25_SCORE = TEXT_FEATURES[0]


def text_features(
    given: RerankInput, names: Collection[str], edges: Tensor, *, check: Callable[[], None]
) -> dict[str, Tensor]:
    """Compute scores from texts.

    Args:
        given: The candidates.
        names: What is needed; of it BM25, divided by its maximum, and ``TEXT_MATCH_FEATURES`` are computed.
        edges: ``[M, 2]`` pairs (target, source).
        check: Called between blocks of the work; may raise.

    Returns:
        ``[n]`` float32 by name; nothing without passages.
    """
    columns: dict[str, Tensor] = {}
    is_matched = not set(TEXT_MATCH_FEATURES).isdisjoint(names)
    if given.passages is None or not (is_matched or BM25_SCORE in names):
        return columns
    words, table = words_of(given.passages, language=given.language_of_passages, check=check)
    query = table.read([given.query])
    if BM25_SCORE in names:
        scores = torch.from_numpy(bm25_scores(words, query.tokens, check=check))
        columns[BM25_SCORE] = scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)
    if is_matched:
        match = TextMatch(words, table=table)
        nodes, ptr = torch.arange(given.num_passages), torch.tensor([0, given.num_passages])
        with_words = not set(WORD_FEATURES).isdisjoint(names)
        found = match.score(query, nodes, edges.T.flip(0), ptr, with_words=with_words, check=check)
        columns |= zip(TEXT_MATCH_FEATURES[: found.shape[1]], found.T, strict=True)
    return columns
