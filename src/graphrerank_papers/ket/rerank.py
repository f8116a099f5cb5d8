"""Reranking of KET-RAG's chunks: the chunks as a corpus, and contexts packed from a ranking of chunks."""

from dataclasses import replace

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, EntityIncidence, Ranking
from graphrerank.graphs.edge_types import SIMILARITY
from graphrerank.graphs.sparse_rows import pad_rows
from graphrerank_papers.ket.channels import fits
from graphrerank_papers.ket.index import KETIndex
from graphrerank_papers.ket.retrieval import Contexts


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
