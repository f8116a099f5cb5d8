"""Rerankers behind KET-RAG: the chunks of its contexts as a corpus, and contexts of a ranking's first chunks."""

from dataclasses import replace

import torch

from graphrerank.graphs import CorpusGraph, EntityIncidence, Ranking
from graphrerank.indexes import KETIndex
from graphrerank.pipelines.ket.channels import fits
from graphrerank.pipelines.ket.retrieval import Contexts, padded


def chunk_corpus(index: KETIndex) -> CorpusGraph:
    """See an index's chunks as a corpus: the edges of the chunks' graph, and the entities of the skeleton.

    Args:
        index: Of chunks that are not halved: the chunks' graph joins whole ones.

    Returns:
        Of ``m`` nodes, numbered as the chunks.

    Raises:
        ValueError: If chunks are halved.
    """
    if index.settings.num_splits:
        raise ValueError(f"`index` must be of whole chunks (`num_splits` 0), got {index.settings.num_splits}")
    texts = index.sub_chunk_texts
    numbers = [str(number) for number in range(len(texts.texts))]
    graph = CorpusGraph.from_edges(numbers, texts.texts, index.chunk_graph.edges).with_embedding(texts.vectors)
    if index.skeleton is None:
        return graph
    names: list[list[str]] = [[] for _ in numbers]
    for entity, chunk in index.skeleton.entity_links.tolist():
        names[chunk].append(index.skeleton.names[entity])
    return replace(graph, entities=EntityIncidence.from_names(names))


def pack_chunks(index: KETIndex, ranking: Ranking, context_tokens: int) -> Contexts:
    """Fill contexts with the first chunks of a ranking that fit, in its order.

    Args:
        index: Whose sub-chunks are ranked.
        ranking: ``[B, C]``, padded with -1.
        context_tokens: Most tokens of a context.

    Raises:
        ValueError: If ``context_tokens`` is below 1.
    """
    if context_tokens < 1:
        raise ValueError(f"`context_tokens` must be a positive integer, got {context_tokens}")
    chunks = index.sub_chunk_texts
    query, column = torch.nonzero(ranking.nodes >= 0, as_tuple=True)
    chunk = ranking.nodes[query, column]
    room = torch.full((len(ranking),), context_tokens, device=chunk.device)
    kept = fits(query, chunks.num_tokens.to(chunk.device)[chunk], room)
    nodes = padded(torch.stack([query[kept], chunk[kept]], dim=1), len(ranking))
    texts = ["".join(f"{chunks.texts[number]}\n" for number in row if number >= 0) for row in nodes.tolist()]
    scores = ranking.scores[:, : nodes.shape[1]].masked_fill(nodes < 0, -torch.inf)
    lengths = torch.zeros(len(ranking), dtype=torch.int64).index_add_(
        0, query[kept].cpu(), chunks.num_tokens[chunk[kept].cpu()]
    )
    return Contexts(Ranking(nodes, scores), texts, lengths, {"text": nodes})
