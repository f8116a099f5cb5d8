"""Single queries of a data set for ``report.html``: the top of every system's ranking, and the edges in it."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.candidate_edges import candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.evaluation.comparisons import best_other
from graphrerank.evaluation.measuring import relevant_nodes
from graphrerank.evaluation.records import BrowsedQuery, DatasetResult, QueryBrowser
from graphrerank.evaluation.systems import RankedDataset

MAX_BROWSED = 200  # maximum number of queries, because the page contains all of them
TOP = 10  # number of passages of each ranking
MAX_TEXT = 160  # maximum number of characters of a passage


def browse_queries(result: DatasetResult, ranked: RankedDataset) -> QueryBrowser:
    """Collect the queries on which the primary system differs most from the best of the other systems.

    Args:
        result: Scores and rankings of all systems. The first tested measure is compared.
        ranked: Data set of the queries.

    Returns:
        At most ``MAX_BROWSED`` queries, the largest difference first. Ties are ordered by query id.
    """
    graph, names = ranked.dataset.graph, list(result.systems)
    baseline = best_other(result) or result.primary
    measure = result.tested[0]
    scores = torch.stack([result.systems[name].values[measure] for name in names])
    change = (scores[-1] - scores[names.index(baseline)]).abs().nan_to_num(-1.0).tolist()
    rows = sorted(range(len(result.query_ids)), key=lambda row: (-change[row], result.query_ids[row]))[:MAX_BROWSED]
    rankings = [system.ranking for system in result.systems.values()]
    tops = [[] if ranking is None else _top_nodes(ranking.nodes[rows]) for ranking in rankings]
    distinct = [sorted({node for top in tops if top for node in top[index]}) for index in range(len(rows))]
    relevant = relevant_nodes(ranked.dataset.split(ranked.split), ranked.queries).tolist()
    number_of = {node: number for number, node in enumerate(sorted({node for nodes in distinct for node in nodes}))}
    queries = [
        BrowsedQuery(
            query_id=result.query_ids[row],
            query_text=result.query_texts[row],
            num_relevant=result.num_relevant[row],
            scores=[None if score != score else score for score in scores[:, row].tolist()],
            rankings=[[number_of[node] for node in top[index]] if top else [] for top in tops],
            relevant=[number_of[node] for node in distinct[index] if node in set(relevant[row])],
            edges=[(number_of[a], number_of[b], kind) for a, b, kind in edges],
        )
        for index, (row, edges) in enumerate(zip(rows, edges_between(graph, distinct), strict=True))
    ]
    used = {kind for query in queries for *_, kind in query.edges}
    return QueryBrowser(
        systems=names,
        baseline=names.index(baseline),
        measure=measure,
        passages=[(graph.node_ids[node], " ".join(graph.texts[node].split())[:MAX_TEXT]) for node in number_of],
        edge_types={number: name for number, name in enumerate(EDGE_TYPES) if number in used},
        queries=queries,
    )


def _top_nodes(nodes: Tensor) -> list[list[int]]:
    """Return the first nodes of each row without padding."""
    return [[node for node in row if node >= 0] for row in nodes[:, :TOP].tolist()]


def edges_between(graph: CorpusGraph, nodes: list[list[int]]) -> list[list[tuple[int, int, int]]]:
    """List the edges between the nodes of each query.

    Args:
        graph: Corpus graph.
        nodes: Nodes of each query, without duplicates.

    Returns:
        Smaller node, larger node and edge type, once for each type that connects a pair, by query.
    """
    edges: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    if not any(nodes):
        return edges
    padded = pad_sequence([torch.tensor(row, dtype=torch.int64) for row in nodes], True, -1)
    joined = candidate_edges(graph, padded, keep_types=True)
    assert joined.edge_type is not None
    row = torch.searchsorted(joined.ptr, joined.edge_index[1], right=True) - 1
    low, high = padded[padded >= 0][joined.edge_index].sort(dim=0).values
    for query, first, second, kind in torch.unique(torch.stack([row, low, high, joined.edge_type]), dim=1).T.tolist():
        edges[query].append((first, second, kind))
    return edges
