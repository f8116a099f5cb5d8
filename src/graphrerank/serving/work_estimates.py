"""Estimate the work of requests before they are answered."""

from collections import Counter
from collections.abc import Collection, Iterable, Sized
from itertools import chain

from graphrerank.corpus.entity_incidence import MIN_COMMON
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.serving.prices import DEFAULTS, Prices, Work, work_of

SCORES, TEXTS, EXPLAIN = "scores", "texts", "explain"  # kinds of work
READ_CHARS = 2000  # characters of a text that count, because encoders truncate after a few hundred tokens


def num_encoded_chars(texts: Iterable[str]) -> int:
    """Return an upper bound of the number of characters that an encoder processes.

    Args:
        texts: Texts to encode.

    Example:
        >>> num_encoded_chars(["abc", "x" * 3000])
        2003
    """
    return sum(min(len(text), READ_CHARS) for text in texts)


def encoding_seconds(num_texts: int, num_chars: int, prices: Prices = DEFAULTS) -> float:
    """Estimate the time to encode texts, in CPU seconds.

    Args:
        num_texts: Number of texts.
        num_chars: Number of characters, as counted by :func:`num_encoded_chars`.
        prices: Prices of the encoder.

    Returns:
        CPU seconds.
    """
    return prices.of({"encoded_texts": num_texts, "encoded_characters": num_chars})


def rerank_work(candidates: RerankInput, *, explain: bool = False, cut: bool = False) -> Work:
    """Estimate the work to rank candidates.

    Args:
        candidates: Input of the reranker.
        explain: Whether to score again without each edge.
        cut: Whether passages are first truncated to a number of words.

    Returns:
        The work. Its kind is ``scores``, ``texts`` or ``explain``.
    """
    num_documents = candidates.num_passages
    num_edges = len(candidates.edges) if isinstance(candidates.edges, Sized) else 0  # requests have arrays
    num_edges += 0 if candidates.doc_ids is None else num_documents - 1  # upper bound for neighbouring chunks
    if candidates.entities is not None:
        sizes = Counter(chain.from_iterable(map(set, candidates.entities))).values()
        # more frequent entities add no edges
        num_edges += sum(size * (size - 1) // 2 for size in sizes if size <= MIN_COMMON)
    counts: dict[str, float] = {"requests": 1, "documents": num_documents, "edges": num_edges}
    encoded_chars, kind = 0, SCORES
    if candidates.vectors is not None:
        counts["vector_numbers"] = num_documents * (len(candidates.vectors[0]) if len(candidates.vectors) else 0)
    if candidates.passages is not None:
        query_chars, kind = len(candidates.query), TEXTS
        counts["characters"] = sum(map(len, candidates.passages)) * (2 if cut else 1)
        counts["query_characters_by_documents"] = query_chars * num_documents
        counts["query_characters_by_edges"] = query_chars * num_edges
        if candidates.vectors is None:
            encoded_chars = num_encoded_chars([candidates.query, *candidates.passages])
    if explain:
        counts |= explain_counts(num_documents, num_edges)
        kind = EXPLAIN
    return work_of(counts, num_documents=num_documents, encoded_chars=encoded_chars, kind=kind)


def explain_counts(num_documents: int, num_edges: int) -> dict[str, float]:
    """Return the counts of scoring again without each edge.

    Args:
        num_documents: Number of documents.
        num_edges: Number of undirected edges.

    Returns:
        Number of units by the names of :data:`~graphrerank.serving.prices.DEFAULT_PRICES`.
    """
    return {
        "explanations": 1,
        "explained_edges": num_edges,
        "explained_nodes": num_edges * num_documents,
        "explained_graph_edges": 2 * num_edges**2,
    }


def growth_work(num_documents: int, passages: Collection[str] = (), num_edges: int = 0) -> Work:
    """Estimate the work to add passages to a corpus folder or to remove passages.

    Args:
        num_documents: Number of passages.
        passages: Texts to add.
        num_edges: Number of edges to add.

    Returns:
        The work.
    """
    num_chars = sum(map(len, passages))
    counts = {"growths": 1, "documents": num_documents, "characters": num_chars, "new_edges": num_edges}
    return work_of(counts, num_documents=num_documents, encoded_chars=num_encoded_chars(passages), kind="growth")
