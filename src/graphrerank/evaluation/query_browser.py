"""Single queries in a report: two rankings, their relevant passages, and the edges between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Ranking, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES

SHOWN = 10  # passages of each ranking
MOST = 300  # queries: a report stays a file that can be sent
SHOWN_TEXT = 240  # characters of a passage


@dataclass(frozen=True)
class BrowsedQuery:
    """One query; passages are places in :attr:`QueryBrowser.passages`."""

    row: int  # its place among the queries of the result
    rankings: Sequence[Sequence[int]]  # the first passages of each system, best first
    relevant: Sequence[int]  # those of them that are relevant
    edges: Sequence[tuple[int, int, int]]  # pairs that are joined, and the number of the edge's type


@dataclass(frozen=True)
class QueryBrowser:
    """The queries of a data set that can be looked at one by one."""

    systems: Sequence[str]  # the two systems, the primary one last; that one alone where there is no other
    measure: str  # by which the queries were chosen
    passages: Sequence[tuple[str, str]]  # id and beginning of the text
    queries: Sequence[BrowsedQuery]  # those on which the systems differ most come first


def browse_queries(
    graph: CorpusGraph,
    rankings: Mapping[str, Ranking],
    scores: Mapping[str, Tensor],
    relevant: Tensor,
    *,
    measure: str,
    query_ids: Sequence[str],
) -> QueryBrowser:
    """Lay out the queries on which two systems differ most, at most :data:`MOST`; equal ones by id.

    Args:
        graph: The corpus.
        rankings: ``[Q, K]`` of one or two systems, the primary one last.
        scores: ``[Q]`` of each in ``measure``; NaN = the query does not count, and comes last.
        relevant: ``[Q, R]`` relevant nodes, padded with -1.
        measure: Name of the measure.
        query_ids: ``Q`` ids.
    """
    first, last = (scores[name] for name in (next(iter(rankings)), list(rankings)[-1]))
    change = (last - first).abs().nan_to_num(-1.0).tolist()
    rows = sorted(range(len(query_ids)), key=lambda row: (-change[row], query_ids[row]))[:MOST]
    tops = [ranking.nodes[rows, :SHOWN].cpu() for ranking in rankings.values()]
    shown = _distinct(torch.cat(tops, dim=1))
    place_of = {node: place for place, node in enumerate(torch.unique(shown[shown >= 0]).tolist())}
    edges = _edges(graph, shown)
    queries = []
    for number, row in enumerate(rows):
        listed = [[place_of[node] for node in top[number].tolist() if node >= 0] for top in tops]
        hits = set(relevant[row].tolist()) & set(shown[number].tolist()) - {-1}
        queries.append(
            BrowsedQuery(
                row,
                listed,
                sorted(place_of[node] for node in hits),
                [(place_of[a], place_of[b], kind) for a, b, kind in edges[number]],
            )
        )
    passages = [(graph.node_ids[node], " ".join(graph.texts[node].split())[:SHOWN_TEXT]) for node in place_of]
    return QueryBrowser(tuple(rankings), measure, passages, queries)


def _distinct(nodes: Tensor) -> Tensor:
    """Keep each node of a row once; the others become -1."""
    ordered, order = nodes.sort(dim=1)
    again = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    return torch.full_like(nodes, -1).scatter_(1, order, ordered.masked_fill(again, -1))


def _edges(graph: CorpusGraph, nodes: Tensor) -> list[list[tuple[int, int, int]]]:
    """List the pairs of nodes in each row of ``[Q, K]`` that are joined, with the type: one edge for each type."""
    edge_index, _, ptr, edge_type = candidate_edges(graph, nodes, keep_types=True)
    assert edge_type is not None
    number = nodes[nodes >= 0]
    row = torch.searchsorted(ptr, edge_index[1], right=True) - 1
    low, high = number[edge_index].sort(dim=0).values
    found = torch.unique(torch.stack([row, low, high, edge_type]), dim=1).T.tolist()
    edges: list[list[tuple[int, int, int]]] = [[] for _ in range(len(nodes))]
    for query, a, b, kind in found:
        edges[query].append((a, b, kind))
    return edges


def browser_data(browser: QueryBrowser, texts: Sequence[str], ids: Sequence[str], counts: Sequence[int],
                 scores: Sequence[Sequence[float | None]]) -> dict[str, Any]:  # fmt: skip
    """Return what the report's script reads: the browser with the queries' texts, judgements and scores.

    Args:
        browser: The queries.
        texts: The texts of the result's queries.
        ids: Their ids.
        counts: Their numbers of relevant passages.
        scores: Their scores by each of the browser's systems; None = the query does not count.
    """
    used = {kind for query in browser.queries for _, _, kind in query.edges}
    queries = [
        [
            *(ids[query.row], texts[query.row], counts[query.row], [row[query.row] for row in scores]),
            *(query.rankings, query.relevant, query.edges),
        ]
        for query in browser.queries
    ]
    return {
        "systems": browser.systems,
        "measure": browser.measure,
        "passages": browser.passages,
        "types": {str(number): name for number, name in enumerate(EDGE_TYPES) if number in used},
        "queries": queries,
    }
