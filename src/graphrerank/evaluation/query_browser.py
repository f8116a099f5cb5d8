"""Single queries of a data set for ``report.html``: the top of every system's ranking, and the edges in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.candidate_edges import candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.evaluation.comparisons import best_other
from graphrerank.evaluation.measuring import relevant_nodes
from graphrerank.evaluation.records import BrowsedEdge, BrowsedQuery, DatasetResult, QueryBrowser
from graphrerank.evaluation.systems import RankedDataset
from graphrerank.utils.checks import UserError

MAX_BROWSED = 200  # maximum number of queries of a page, which contains all of them
EDGE_QUERIES = 256  # number of queries whose edges are listed at once
TOP = 10  # number of passages of each ranking
MAX_TEXT = 160  # maximum number of characters of a passage


def browse_queries(result: DatasetResult, ranked: RankedDataset) -> QueryBrowser:
    """Collect all queries with the top of every system's ranking.

    Args:
        result: Scores and rankings of all systems. The first tested measure is compared.
        ranked: Data set of the queries.

    Returns:
        Queries ordered by the difference between the primary system and the best of the other systems, the largest
        first. Ties are ordered by query id.
    """
    graph = ranked.dataset.graph
    order, scores, baseline = order_of_queries(result)
    rankings = [system.ranking for system in result.systems.values()]
    tops = [[] if ranking is None else _top_nodes(ranking.nodes[order]) for ranking in rankings]
    # nodes that a system ranks, for each query in the order of the browser
    ranked_nodes = [sorted({node for top in tops if top for node in top[index]}) for index in range(len(order))]
    relevant_nodes_of = relevant_nodes(ranked.dataset.split(ranked.split), ranked.queries).tolist()
    number_of = {node: number for number, node in enumerate(sorted(set(chain.from_iterable(ranked_nodes))))}
    blocks = (ranked_nodes[start : start + EDGE_QUERIES] for start in range(0, len(order), EDGE_QUERIES))
    edges_of_query = chain.from_iterable(edges_between(graph, block) for block in blocks)
    queries = []
    for index, (row, edges) in enumerate(zip(order, edges_of_query, strict=True)):
        relevant = set(relevant_nodes_of[row])
        query = BrowsedQuery(
            query_id=result.query_ids[row],
            query_text=result.query_texts[row],
            num_relevant=result.num_relevant[row],
            scores=scores[row],
            rankings=[[number_of[node] for node in top[index]] if top else [] for top in tops],
            relevant=[number_of[node] for node in ranked_nodes[index] if node in relevant],
            edges=[BrowsedEdge(number_of[first], number_of[second], edge_type) for first, second, edge_type in edges],
        )
        queries.append(query)
    type_numbers = {edge_type for query in queries for *_, edge_type in query.edges}
    return QueryBrowser(
        systems=list(result.systems),
        baseline=baseline,
        measure=result.tested[0],
        passages=[(graph.node_ids[node], " ".join(graph.texts[node].split())[:MAX_TEXT]) for node in number_of],
        edge_types={number: name for number, name in enumerate(EDGE_TYPES) if number in type_numbers},
        queries=queries,
    )


class QueryOrder(NamedTuple):
    """Queries of a result in the order of a browser.

    Attributes:
        rows: Rows of the queries, the largest difference first.
        scores: Score of each system by row. None if the measure excludes the query.
        baseline: Index of the best system other than the primary one.
    """

    rows: list[int]
    scores: list[list[float | None]]
    baseline: int


def order_of_queries(result: DatasetResult) -> QueryOrder:
    """Order the queries by how much the primary system differs from the best of the other systems.

    Args:
        result: Scores of all systems. The first tested measure is compared.

    Returns:
        Rows of the queries, the scores, and the other system.
    """
    names, measure = list(result.systems), result.tested[0]
    baseline = names.index(best_other(result) or result.primary)
    scores = torch.stack([result.systems[name].values[measure] for name in names])
    change = (scores[-1] - scores[baseline]).abs().nan_to_num(-1.0).tolist()
    rows = sorted(range(len(result.query_ids)), key=lambda row: (-change[row], result.query_ids[row]))
    plain = [[None if score != score else score for score in row] for row in scores.T.tolist()]
    return QueryOrder(rows, plain, baseline)


def first_queries(browser: QueryBrowser, count: int | None = None) -> QueryBrowser:
    """Return the first queries of a browser with the passages that they refer to.

    Args:
        browser: Queries of a data set.
        count: Maximum number of queries. If None, ``MAX_BROWSED``.

    Returns:
        Browser for a page.
    """
    queries = browser.queries[: MAX_BROWSED if count is None else count]
    ranked = sorted({passage for query in queries for ranking in query.rankings for passage in ranking})
    number_of = {passage: number for number, passage in enumerate(ranked)}
    renumbered = [
        replace(
            query,
            rankings=[[number_of[passage] for passage in ranking] for ranking in query.rankings],
            relevant=[number_of[passage] for passage in query.relevant],
            edges=[
                BrowsedEdge(number_of[first], number_of[second], edge_type) for first, second, edge_type in query.edges
            ],
        )
        for query in queries
    ]
    type_numbers = {edge_type for query in queries for *_, edge_type in query.edges}
    edge_types = {number: name for number, name in browser.edge_types.items() if number in type_numbers}
    passages = [browser.passages[passage] for passage in ranked]
    return replace(browser, passages=passages, edge_types=edge_types, queries=renumbered)


def merge_browsers(
    result: DatasetResult, browsers: Mapping[str, QueryBrowser], sources: Mapping[str, tuple[str, str]]
) -> QueryBrowser:
    """Combine the browsers of several runs. Edges between passages that different runs ranked are unknown.

    Args:
        result: Combined scores of all systems.
        browsers: Browsers of all queries, by run. At least one.
        sources: Run of each system of ``result``, and its name in the run. Systems of other runs than those of
            ``browsers`` have no rankings.

    Returns:
        Queries in the order of :func:`browse_queries`.
    """
    texts = {name: text for browser in browsers.values() for name, text in browser.passages}
    number_of = {name: number for number, name in enumerate(sorted(texts))}
    runs = {run: _RunQueries.of(browser, number_of) for run, browser in browsers.items()}
    order, scores, baseline = order_of_queries(result)
    queries = []
    for row in order:
        query_id = result.query_ids[row]
        rankings: list[list[int]] = []
        for system in result.systems:
            run, name_in_run = sources[system]
            rankings.append(runs[run].ranking(query_id, name_in_run) if run in runs else [])
        ranked = {passage for ranking in rankings for passage in ranking}
        relevant = {passage for queries_of_run in runs.values() for passage in queries_of_run.relevant(query_id)}
        edges = {edge for queries_of_run in runs.values() for edge in queries_of_run.edges(query_id)}
        merged_query = BrowsedQuery(
            query_id=query_id,
            query_text=result.query_texts[row],
            num_relevant=result.num_relevant[row],
            scores=scores[row],
            rankings=rankings,
            relevant=sorted(relevant & ranked),
            edges=sorted(edge for edge in edges if edge.first in ranked and edge.second in ranked),
        )
        queries.append(merged_query)
    return QueryBrowser(
        systems=list(result.systems),
        baseline=baseline,
        measure=result.tested[0],
        passages=[(name, texts[name]) for name in number_of],
        edge_types=dict(enumerate(EDGE_TYPES)),
        queries=queries,
    )


@dataclass(frozen=True)
class _RunQueries:
    """Queries of one run, whose passages are renumbered for a browser of several runs.

    Attributes:
        systems: Names of the systems in the run.
        queries: Queries by id.
        numbers: New number of each passage of the run.
        edge_types: New number of each edge type of the run.
    """

    systems: Sequence[str]
    queries: Mapping[str, BrowsedQuery]
    numbers: Sequence[int]
    edge_types: Mapping[int, int]

    @classmethod
    def of(cls, browser: QueryBrowser, number_of: Mapping[str, int]) -> "_RunQueries":
        """Renumber the passages of a run by ``number_of``, and its edge types by their positions in ``EDGE_TYPES``."""
        return cls(
            list(browser.systems),
            {query.query_id: query for query in browser.queries},
            [number_of[name] for name, _ in browser.passages],
            {number: EDGE_TYPES.index(name) for number, name in browser.edge_types.items()},
        )

    def ranking(self, query_id: str, system: str) -> list[int]:
        """Return the first passages of a system."""
        position = self.systems.index(system)
        return [self.numbers[passage] for passage in self.queries[query_id].rankings[position]]

    def relevant(self, query_id: str) -> list[int]:
        """Return the relevant passages that the run ranked."""
        return [self.numbers[passage] for passage in self.queries[query_id].relevant]

    def edges(self, query_id: str) -> list[BrowsedEdge]:
        """Return the edges between passages that the run ranked."""
        edges = []
        for first, second, edge_type in self.queries[query_id].edges:
            first, second = sorted((self.numbers[first], self.numbers[second]))
            edges.append(BrowsedEdge(first, second, self.edge_types[edge_type]))
        return edges


def check_browser(browser: QueryBrowser, result: DatasetResult) -> None:
    """Check a browser that was read from a file.

    Args:
        browser: Queries of a data set.
        result: Result of the data set.

    Raises:
        UserError: If its systems or queries are not those of the result, or an index is out of range.
    """
    if set(browser.systems) != set(result.systems) or browser.baseline not in range(len(browser.systems)):
        raise UserError(f"the systems must be {list(result.systems)}, got {list(browser.systems)}")
    if sorted(query.query_id for query in browser.queries) != sorted(result.query_ids):
        raise UserError(f"the queries must be the {len(result.query_ids)} queries of {result.name!r}")
    if unknown := set(browser.edge_types.values()) - set(EDGE_TYPES):
        raise UserError(f"the edge types must be in {list(EDGE_TYPES)}, got {sorted(unknown)}")
    passages = range(len(browser.passages))
    for query in browser.queries:
        indices = {
            *query.relevant,
            *chain.from_iterable(query.rankings),
            *(end for edge in query.edges for end in edge[:2]),
        }
        kinds = {kind for *_, kind in query.edges}
        if len(query.rankings) != len(browser.systems) or not all(index in passages for index in indices):
            raise UserError(f"query {query.query_id!r} must have a ranking of known passages for each system")
        if not kinds <= set(browser.edge_types):
            raise UserError(f"query {query.query_id!r} must have edges of known types, got {sorted(kinds)}")


def _top_nodes(nodes: Tensor) -> list[list[int]]:
    """Return the first nodes of each row without padding."""
    return [[node for node in row if node >= 0] for row in nodes[:, :TOP].tolist()]


def edges_between(graph: CorpusGraph, nodes: list[list[int]]) -> list[list[BrowsedEdge]]:
    """List the edges between the nodes of each query.

    Args:
        graph: Corpus graph.
        nodes: Nodes of each query, without duplicates.

    Returns:
        Edges of each query, the smaller node first. Nodes that several edge types connect have one edge per type.
    """
    edges: list[list[BrowsedEdge]] = [[] for _ in nodes]
    if not any(nodes):
        return edges
    padded = pad_sequence([torch.tensor(row, dtype=torch.int64) for row in nodes], True, -1)
    joined = candidate_edges(graph, padded, keep_types=True)
    assert joined.edge_type is not None
    query_of_edge = torch.searchsorted(joined.ptr, joined.edge_index[1], right=True) - 1
    smaller, larger = padded[padded >= 0][joined.edge_index].sort(dim=0).values
    columns = torch.stack([query_of_edge, smaller, larger, joined.edge_type])
    for query, first, second, edge_type in torch.unique(columns, dim=1).T.tolist():
        edges[query].append(BrowsedEdge(first, second, edge_type))
    return edges
