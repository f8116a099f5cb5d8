"""Reranking of KET-RAG's chunks: the chunks as a corpus, their order by a reranker, and contexts packed from it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, EntityIncidence, PairEncoder, Queries, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES, SIMILARITY
from graphrerank.graphs.sparse_rows import pad_rows
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import GRanker
from graphrerank_papers.ket.channels import fits
from graphrerank_papers.ket.index import KETIndex
from graphrerank_papers.ket.retrieval import Contexts

Order = Callable[[Queries, Ranking], Ranking]


def chunk_corpus(index: KETIndex) -> CorpusGraph:
    """Return an index's chunks as a corpus with the edges of the chunk graph and the entities of the skeleton.

    Chunks must not be halved, as the chunk graph joins whole ones.
    """
    if index.settings.num_splits:
        raise ValueError(f"`index` must have whole chunks (`num_splits` 0), got {index.settings.num_splits}")
    texts = index.sub_chunk_texts
    ids = [str(chunk) for chunk in range(len(texts.texts))]
    graph = CorpusGraph.from_edges(ids, texts.texts, index.chunk_graph.edges, edge_type=SIMILARITY)
    graph = graph.with_embedding(texts.vectors)
    if index.skeleton is None:
        return graph
    names: list[list[str]] = [[] for _ in ids]
    for entity, chunk in index.skeleton.entity_links.tolist():
        names[chunk].append(index.skeleton.names[entity])
    return replace(graph, entities=EntityIncidence.from_names(names))


def pack_chunks(index: KETIndex, ranking: Ranking, context_tokens: int) -> Contexts:
    """Fill contexts of at most ``context_tokens`` with the first chunks of a ranking ``[B, C]`` that fit, in order."""
    check_counts(context_tokens=context_tokens)
    chunks = index.sub_chunk_texts
    query, column = torch.nonzero(ranking.nodes >= 0, as_tuple=True)
    chunk = ranking.nodes[query, column]
    limits = torch.full((len(ranking),), context_tokens, device=chunk.device)
    fitting = fits(query, chunks.num_tokens.to(chunk.device)[chunk], limits)
    query, chunk = query[fitting], chunk[fitting]
    nodes = pad_rows(query, chunk, len(ranking), fill=-1)
    passages = [tuple(chunks.texts[node] for node in row if node >= 0) for row in nodes.tolist()]
    scores = ranking.scores[:, : nodes.shape[1]].masked_fill(nodes < 0, -torch.inf)
    lengths = torch.zeros(len(ranking), dtype=torch.int64)
    lengths.index_add_(0, query.cpu(), chunks.num_tokens[chunk.cpu()])
    return Contexts(Ranking(nodes, scores), passages, lengths, {"text": nodes})


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
