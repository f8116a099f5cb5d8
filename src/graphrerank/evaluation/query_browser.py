"""Single queries in a report: two rankings, their relevant passages, and the edges between them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Ranking, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES

SHOWN = 10  # passages of each ranking
MOST = 300  # queries: a report stays a file that can be sent
SHOWN_TEXT = 240  # characters of a passage


def browse_queries(
    graph: CorpusGraph,
    rankings: Mapping[str, Ranking],
    scores: Mapping[str, Tensor],
    relevant: Tensor,
    *,
    measure: str,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
) -> dict[str, Any]:
    """Return the queries on which two systems differ most, at most :data:`MOST`, as ``browser.js`` reads them.

    Queries are lists of id, text, number of relevant passages, score by each system (None = the query does not count),
    first passages of each system, the relevant ones of them, and edges with their types; passages are numbers of
    ``passages``, each an id and the beginning of a text. ``rankings`` are ``[Q, K]`` of one or two systems, the primary
    one last, ``scores`` ``[Q]``, ``relevant`` ``[Q, R]``, padded with -1.
    """
    table = torch.stack([scores[name] for name in rankings])
    change = (table[-1] - table[0]).abs().nan_to_num(-1.0).tolist()
    rows = sorted(range(len(query_ids)), key=lambda row: (-change[row], query_ids[row]))[:MOST]
    tops = [ranking.nodes[rows, :SHOWN].cpu() for ranking in rankings.values()]
    shown = _distinct(torch.cat(tops, dim=1))
    place = {node: number for number, node in enumerate(torch.unique(shown[shown >= 0]).tolist())}
    edges = _edges(graph, shown)
    queries = [
        [
            query_ids[row],
            query_texts[row],
            int((relevant[row] >= 0).sum()),
            [None if score != score else score for score in table[:, row].tolist()],
            [[place[node] for node in top[number].tolist() if node >= 0] for top in tops],
            sorted(place[node] for node in set(relevant[row].tolist()) & set(shown[number].tolist()) - {-1}),
            [(place[a], place[b], kind) for a, b, kind in edges[number]],
        ]
        for number, row in enumerate(rows)
    ]
    used = {kind for listed in edges for *_, kind in listed}
    return {
        "systems": list(rankings),
        "measure": measure,
        "passages": [(graph.node_ids[node], " ".join(graph.texts[node].split())[:SHOWN_TEXT]) for node in place],
        "types": {str(number): name for number, name in enumerate(EDGE_TYPES) if number in used},
        "queries": queries,
    }


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
    edges: list[list[tuple[int, int, int]]] = [[] for _ in range(len(nodes))]
    for query, a, b, kind in torch.unique(torch.stack([row, low, high, edge_type]), dim=1).T.tolist():
        edges[query].append((a, b, kind))
    return edges
