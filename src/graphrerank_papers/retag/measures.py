"""Measures of the retrieval of summaries: recall of the selection of a full read, tokens to read, and time."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphrerank.graphs import PairEncoder, Queries, Ranking, top_k_by_node_order
from graphrerank.metrics import parse_measure
from graphrerank_papers.retag.retrieval import ReTAGRetrieval

TIMED_QUERIES = 64  # one at a time, after one that loads what there is to load


def read_by_pairs(
    encoder: PairEncoder,
    query_texts: Sequence[str],
    texts: Sequence[str],
    candidates: Tensor,
    *,
    advance: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Score every summary that a full read would see by a cross-encoder: ``[Q, N]`` float32, -inf for no candidate.

    ``candidates`` is ``[Q, N]`` bool; ``advance`` is called after each question with the pairs read so far and in all.
    """
    scores = torch.full(candidates.shape, -torch.inf)
    total, done = int(candidates.sum()), 0
    for row, question in enumerate(query_texts):
        nodes = candidates[row].nonzero().flatten().tolist()
        if nodes:
            vectors = encoder.encode([question] * len(nodes), [texts[node] for node in nodes])
            scores[row, nodes] = encoder.head(vectors).cpu().float()
        done += len(nodes)
        if advance is not None:
            advance(done, total)
    return scores


def most_relevant(scores: Tensor, count: int) -> Tensor:
    """Take the ``count`` best summaries of each question, what a full read would select: ``[Q, N]`` bool.

    ``scores`` is ``[Q, N]``, -inf for what is no candidate. Ties go by index; fewer are taken of fewer candidates.
    """
    nodes, _ = top_k_by_node_order(scores, count)
    relevant = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool)
    return relevant.scatter(1, nodes.masked_fill(nodes < 0, scores.shape[1]), True)[:, :-1]


def summary_recall(ranking: Ranking, relevant: Tensor, *, top_k: int) -> Tensor:
    """Share of the ``relevant`` summaries (``[Q, N]`` bool) in the top K: ``[Q]`` float64; NaN where there is none."""
    has_any = relevant.any(1)
    recall = torch.full((len(relevant),), torch.nan, dtype=torch.float64)
    if bool(has_any.any()):
        nodes, held = ranking.nodes[has_any], relevant[has_any]
        ranked = held.gather(1, nodes.clamp(min=0)).masked_fill(nodes < 0, False)
        gains = held.float().sort(dim=1, descending=True).values
        recall[has_any] = parse_measure(f"R@{top_k}")(ranked.float(), gains)
    return recall


def time_retrieval(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, float]:
    """Time questions one at a time, without encoding them; NaN without questions.

    Returns:
        Milliseconds: the median and the 95th percentile by the clock, ``p50 ms`` and ``p95 ms``, and the median of the
        processor's time, ``CPU ms``, which other jobs on the machine do not change.
    """
    names = ("p50 ms", "p95 ms", "CPU ms")
    if not len(queries):
        return dict.fromkeys(names, torch.nan)
    retrieval.retrieve(queries.block(0, 1))
    clock, processor = [], []
    for query in range(min(TIMED_QUERIES, len(queries))):
        begin = time.perf_counter(), time.process_time()
        retrieval.retrieve(queries.block(query, query + 1))
        clock.append(time.perf_counter() - begin[0])
        processor.append(time.process_time() - begin[1])
    seconds = torch.tensor([clock, processor], dtype=torch.float64)
    (median, cpu), (high, _) = (1000 * seconds).quantile(torch.tensor([0.5, 0.95]).double(), dim=1).tolist()
    return dict(zip(names, (median, high, cpu), strict=True))


def measure_reading(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, Any]:
    """Count what a retrieval selects per question, and time it.

    Returns:
        Means of ``summaries`` and their ``tokens``; shares of the questions searched in ``no topic``, ``one topic`` and
        ``more``; and :func:`time_retrieval`.
    """
    retrieved = retrieval.retrieve(queries)
    nodes, topics = retrieved.ranking.nodes.cpu(), retrieved.graphs[:, 1:].sum(1)
    tokens = retrieval.summaries.num_tokens[nodes.clamp(min=0)].masked_fill(nodes < 0, 0).sum(1)
    counts = {
        "summaries": (nodes >= 0).sum(1),
        "tokens": tokens,
        "no topic": topics == 0,
        "one topic": topics == 1,
        "more": topics > 1,
    }
    means = {name: float(count.double().mean()) for name, count in counts.items()}
    return means | time_retrieval(retrieval, queries)
