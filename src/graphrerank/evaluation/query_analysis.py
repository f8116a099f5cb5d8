"""The queries that gain and lose most between two systems, and means over groups of queries."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.evaluation.records import Breakdown, EdgesOfType, QueryDifference
from graphrerank.graphs import CorpusGraph, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.text import WordTokenizer
from graphrerank.text.tokenizer import count_tokens

MOST = 10  # queries listed on either side
GROUPS = 3
BLOCK_QUERIES = 256
RELEVANT_GROUPS = ((1, 1), (2, 2), (3, 5), (6, 20), (21, None))


def query_differences(
    scores: Mapping[str, Tensor],
    *,
    system: str,
    baseline: str,
    measure: str,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
    num_relevant: Sequence[int],
) -> list[QueryDifference]:
    """List the queries on which ``system`` gains most over ``baseline``, then those on which it loses most.

    ``scores`` is ``[Q]`` of each system, NaN = the query does not count. At most ten gains, the largest first, and at
    most ten losses, the largest first; equal ones by id.
    """
    ours, theirs = scores[system].tolist(), scores[baseline].tolist()
    change = {row: a - b for row, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b and a == a and b == b}
    ordered = sorted(change, key=lambda row: (-abs(change[row]), query_ids[row]))
    gains = [row for row in ordered if change[row] > 0][:MOST]
    losses = [row for row in ordered if change[row] < 0][:MOST]
    return [
        QueryDifference(
            system, baseline, measure, query_ids[row], query_texts[row], num_relevant[row], ours[row], theirs[row]
        )
        for row in (*gains, *losses)
    ]


def break_down(
    scores: Mapping[str, Tensor], groups: Mapping[str, Mapping[str, Tensor]], *, measure: str
) -> list[Breakdown]:
    """Average every system, ``[Q]`` with NaN = does not count, over each group of queries, ``[Q]`` bool.

    The queries of a group are those that count for any system; a group without one is left out.
    """
    counts = torch.stack([~row.isnan() for row in scores.values()]).any(0)
    return [
        Breakdown(by, group, number, measure, {name: float(row[inside].nanmean()) for name, row in scores.items()})
        for by, parts in groups.items()
        for group, inside in parts.items()
        if (number := int((inside & counts).sum()))
    ]


def query_groups(
    num_relevant: Sequence[int], densities: Sequence[float], query_texts: Sequence[str]
) -> dict[str, dict[str, Tensor]]:
    """Group queries by their number of relevant nodes, their :func:`mean_degree` (where known) and their length.

    Returns:
        ``[Q]`` bool by kind of group and name of the group; a kind with a single group is left out.
    """
    groups = {
        "relevant nodes": relevant_groups(num_relevant),
        "graph density": quantile_groups(torch.tensor(densities).double(), unit="neighbours") if densities else {},
        "query length": quantile_groups(num_words(query_texts).double(), unit="words"),
    }
    return {by: parts for by, parts in groups.items() if len(parts) > 1}


def relevant_groups(num_relevant: Sequence[int]) -> dict[str, Tensor]:
    """Group queries by their number of relevant nodes; groups without a query are left out."""
    counts, groups = torch.tensor(num_relevant), {}
    for low, high in RELEVANT_GROUPS:
        inside = (counts >= low) & (counts <= high) if high is not None else counts >= low
        if bool(inside.any()):
            groups[f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"] = inside
    return groups


def quantile_groups(numbers: Tensor, *, unit: str, num_groups: int = GROUPS) -> dict[str, Tensor]:
    """Group queries by a number ``[Q]`` into about equal parts; equal numbers stay together.

    Returns:
        ``[Q]`` bool by name, from the lowest group to the highest; empty where all numbers are equal.
    """
    ascending = torch.sort(numbers).values
    ends = {float(ascending[len(ascending) * part // num_groups - 1]) for part in range(1, num_groups + 1)}
    groups, below = {}, -torch.inf
    for end in sorted(ends):
        inside = (numbers > below) & (numbers <= end)
        low, high = (f"{float(edge):.3g}" for edge in (numbers[inside].min(), numbers[inside].max()))
        groups[f"{low} {unit}" if low == high else f"{low} to {high} {unit}"] = inside
        below = end
    return groups if len(groups) > 1 else {}


def mean_degree(graph: CorpusGraph, nodes: Tensor) -> Tensor:
    """Average each query's candidates' numbers of neighbours among the candidates.

    ``nodes`` is ``[Q, K]``, padded with -1. Returns ``[Q]`` float64; 0 for a query without candidates.
    """
    edges = []
    for part in torch.split(nodes.cpu(), BLOCK_QUERIES):
        edge_index, _, ptr, _ = candidate_edges(graph, part)
        ends = torch.searchsorted(torch.sort(edge_index[1]).values, ptr)
        edges.append(ends[1:] - ends[:-1])
    return torch.cat(edges).double() / (nodes.cpu() >= 0).sum(1).clamp(min=1)


def edges_of_type(graph: CorpusGraph, nodes: Tensor, relevance: Tensor) -> list[EdgesOfType]:
    """Describe the edges of each type between the candidates of all queries; types without any are left out.

    Args:
        graph: The corpus.
        nodes: ``[Q, K]`` candidates, padded with -1.
        relevance: ``[Q, K]`` bool.
    """
    counts = torch.zeros(len(EDGE_TYPES), 5, dtype=torch.int64)  # pairs; nodes; relevant ones; their ends, relevant
    valid = nodes.cpu() >= 0
    relevance = relevance.cpu() & valid
    for part, here, labels in zip(
        *(torch.split(rows, BLOCK_QUERIES) for rows in (nodes.cpu(), valid, relevance)), strict=True
    ):
        edge_index, _, _, edge_type = candidate_edges(graph, part, keep_types=True)
        assert edge_type is not None
        relevant = labels[here]
        for number in torch.unique(edge_type).tolist():
            source, target = edge_index[:, edge_type == number]
            pairs = torch.unique(torch.stack([source, target]).sort(dim=0).values, dim=1).shape[1]
            led = relevant[source]  # edges out of relevant candidates
            reached = torch.unique(target[led & relevant[target]]).numel()
            counts[number] += torch.tensor(
                [pairs, torch.unique(target).numel(), reached, int(led.sum()), int((led & relevant[target]).sum())]
            )
    num_nodes, num_relevant = max(int(valid.sum()), 1), int(relevance.sum())
    return [
        EdgesOfType(
            EDGE_TYPES[number],
            per_query=pairs / max(len(nodes), 1),
            share_joined=joined / num_nodes,
            share_reached=reached / num_relevant if num_relevant else None,
            share_relevant=hits / led if led else None,
            base_rate=num_relevant / num_nodes,
        )
        for number, (pairs, joined, reached, led, hits) in enumerate(counts.tolist())
        if pairs
    ]


def num_words(texts: Sequence[str]) -> Tensor:
    """Count the words of each text: ``[n]`` int64."""
    return torch.tensor(count_tokens(WordTokenizer(), texts), dtype=torch.int64)
