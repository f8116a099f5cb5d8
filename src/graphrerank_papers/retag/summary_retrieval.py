"""Judging the retrieval of summaries against the selection of a full read, and counting the tokens to read."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrerank.graphs import PairEncoder, Queries, Ranking, top_k_by_node_order
from graphrerank.metrics import parse_measure
from graphrerank_papers.retag.retrieval import ReTAGRetrieval, RetrievedSummaries

TIMED_QUERIES = 64  # one at a time, after one that loads what there is to load


class Latency(NamedTuple):
    """Milliseconds per question, one at a time, without encoding it."""

    p50: float  # median by the clock
    p95: float  # 95th percentile by the clock
    cpu: float  # median of the processor's time, which other jobs on the machine do not change


@dataclass(frozen=True)
class SummaryResult:
    """The result of one way to choose summaries."""

    name: str  # what it is called in tables
    settings: Mapping[str, Any]  # what was chosen for it, by name
    recall: Tensor  # `[Q]` float64, share of the relevant summaries that it retrieved; NaN = the question has none
    milliseconds: Latency  # what it takes

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        return {
            "settings": dict(self.settings),
            "recall": float(self.recall.nanmean()),
            "ms": self.milliseconds._asdict(),
        }


@dataclass(frozen=True)
class Reading:
    """Means per question of the summaries and tokens to read."""

    name: str  # what chose the summaries
    level: int  # of the communities
    summaries: float  # mean number of summaries
    tokens: float  # mean tokens of them
    milliseconds: Latency  # what choosing them takes
    # share of the questions by the number of topics that they were asked in: none, one, more
    shares: tuple[float, float, float] = field(default=(1.0, 0.0, 0.0))

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        return {
            "name": self.name,
            "level": self.level,
            "summaries": self.summaries,
            "tokens": self.tokens,
            "ms": self.milliseconds._asdict(),
            "shares": self.shares,
        }


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

    ``scores`` is ``[Q, N]``, -inf for what is no candidate. Ties go by number; fewer are taken of fewer candidates.
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


def time_retrieval(retrieval: ReTAGRetrieval, queries: Queries) -> Latency:
    """Time questions one at a time; NaN where there is none."""
    if not len(queries):
        return Latency(torch.nan, torch.nan, torch.nan)
    retrieval.retrieve(queries.block(0, 1))
    clock, processor = [], []
    for query in range(min(TIMED_QUERIES, len(queries))):
        begin = time.perf_counter(), time.process_time()
        retrieval.retrieve(queries.block(query, query + 1))
        clock.append(time.perf_counter() - begin[0])
        processor.append(time.process_time() - begin[1])
    seconds = torch.tensor([clock, processor], dtype=torch.float64)
    (median, cpu), (high, _) = (1000 * seconds).quantile(torch.tensor([0.5, 0.95]).double(), dim=1).tolist()
    return Latency(median, high, cpu)


def measure_reading(name: str, retrieval: ReTAGRetrieval, queries: Queries) -> Reading:
    """Count the summaries and tokens per question that a retrieval selects, and time it."""
    retrieved = retrieval.retrieve(queries)
    summaries, level = retrieval.summaries, retrieval.summaries.level
    nodes = retrieved.ranking.nodes.cpu()
    tokens = summaries.num_tokens[nodes.clamp(min=0)].masked_fill(nodes < 0, 0).sum(1)
    return Reading(
        name,
        level,
        float((nodes >= 0).sum(1).double().mean()),
        float(tokens.double().mean()),
        time_retrieval(retrieval, queries),
        topic_shares(retrieved),
    )


def topic_shares(retrieved: RetrievedSummaries) -> tuple[float, float, float]:
    """Shares of the questions routed to no topic, to one, and to more."""
    topics = retrieved.graphs[:, 1:].sum(1)
    none, one, more = (float(part.double().mean()) for part in (topics == 0, topics == 1, topics > 1))
    return none, one, more
