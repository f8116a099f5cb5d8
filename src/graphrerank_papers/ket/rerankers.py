"""Orders of a context's chunks: by a graph reranker, or by a cross-encoder's vectors, smoothed or not."""

from collections.abc import Callable
from typing import Any

import torch

from graphrerank.graphs import CorpusGraph, PairEncoder, Queries, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES, SIMILARITY
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.pipelines.granker import GRanker
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources

Order = Callable[[Queries, Ranking], Ranking]


def by_graph_reranker(graph: CorpusGraph, reranker: GraphReranker) -> Order:
    """Order chunks by a trained graph reranker of BM25, cosine and the edges among them, which join similar ones."""
    assert graph.embedding is not None
    assert graph.entities is not None
    vectors = graph.embedding
    names, entities = graph.entities.names, graph.entities
    neighbours = {
        node: graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist() for node in range(graph.num_nodes)
    }

    def order(queries: Queries, ranking: Ranking) -> Ranking:
        inputs, rows = [], [[node for node in row if node >= 0] for row in ranking.nodes.tolist()]
        for text, vector, row in zip(queries.texts, queries.encoded, rows, strict=True):
            position = {node: index for index, node in enumerate(row)}
            edges = [(position[a], position[b]) for a in row for b in neighbours[a] if a < b and b in position]
            inputs.append(
                RerankInput(
                    text,
                    [graph.texts[node] for node in row],
                    edges=edges,
                    edge_types=[EDGE_TYPES[SIMILARITY]] * len(edges),
                    entities=[
                        [names[e] for e in entities.indices[entities.indptr[node] : entities.indptr[node + 1]].tolist()]
                        for node in row
                    ],
                    query_vector=vector,
                    vectors=vectors[row],
                )
            )
        nodes, scores = torch.full_like(ranking.nodes, -1), torch.full_like(ranking.scores, -torch.inf)
        for query, (row, reranked) in enumerate(zip(rows, reranker.rerank_batch(inputs), strict=True)):
            nodes[query, : len(row)] = torch.tensor(row)[reranked.indices]
            scores[query, : len(row)] = reranked.scores
        return Ranking(nodes, scores)

    return order


def by_granker(graph: CorpusGraph, encoder: PairEncoder, *, smoothing: float) -> Order:
    """Order chunks by a cross-encoder's head on smoothed vectors; without smoothing, by the cross-encoder."""
    resources = Resources(graph, budget=graph.num_nodes, retriever=_no_retriever, pair_encoder=encoder)
    step = GRanker(resources, smoothing=smoothing)

    def order(queries: Queries, ranking: Ranking) -> Ranking:
        state = RetrievalState.start(queries, graph.device).with_ranking(ranking.nodes, ranking.scores)
        return step.run(state).ranking

    return order


def _no_retriever(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("chunks are ranked, not searched")
