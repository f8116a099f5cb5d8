"""Estimated work of requests, known before they are ranked."""

import math
from collections import Counter
from collections.abc import Sized
from itertools import chain

from graphrerank.graphs.entity_incidence import MIN_COMMON
from graphrerank.inference.rerank_input import RerankInput

# Seconds of one core on a busy machine, from `benchmarks/rerank_path.py` and the attacks of docs/serving.md.
PER_REQUEST = 3e-3
PER_DOCUMENT = 15e-6
PER_CHARACTER = 3e-7  # of words that were never seen; others take a fifth
PER_EDGE = 1.2e-6
PER_QUERY_CHARACTER_AND_DOCUMENT = 2e-9
PER_QUERY_CHARACTER_AND_EDGE = 3e-10
PER_EXPLAINED_EDGE_AND_NODE_OR_EDGE = 2e-6
PER_ENCODED_CHARACTER = 3e-5
PER_GROWTH = 0.1  # mostly waiting for the disk
PER_NEW_EDGE = 1e-5


def rerank_seconds(candidates: RerankInput, *, explain: bool) -> float:
    """Estimate the time to rank candidates without encoding them."""
    num_documents = candidates.num_passages
    num_edges = len(candidates.edges) if isinstance(candidates.edges, Sized) else 0  # a request's are arrays
    num_edges += 0 if candidates.doc_ids is None else num_documents - 1  # at most
    if candidates.entities is not None:
        sizes = Counter(chain.from_iterable(map(set, candidates.entities))).values()
        num_edges += sum(size * (size - 1) // 2 for size in sizes if size <= MIN_COMMON)  # others join none
    seconds = PER_REQUEST + PER_DOCUMENT * num_documents + PER_EDGE * num_edges
    if candidates.passages is not None:
        num_chars = len(candidates.query)
        seconds += PER_CHARACTER * sum(map(len, candidates.passages))
        seconds += num_chars * PER_QUERY_CHARACTER_AND_DOCUMENT * num_documents
        seconds += num_chars * PER_QUERY_CHARACTER_AND_EDGE * num_edges
    if explain:
        seconds += explain_seconds(num_documents, num_edges)
    return seconds


def explain_seconds(num_documents: int, num_edges: int) -> float:
    """Estimate the time to leave out each edge once."""
    return num_edges * PER_EXPLAINED_EDGE_AND_NODE_OR_EDGE * (num_documents + 2 * num_edges)


def most_explained_edges(num_documents: int, seconds: float) -> int:
    """Return the number of edges of which :func:`explain_seconds` estimates some seconds."""
    quarter = num_documents / 4
    return int(math.sqrt(quarter**2 + seconds / PER_EXPLAINED_EDGE_AND_NODE_OR_EDGE / 2) - quarter)


def query_seconds(query: str) -> float:
    """Estimate the time to search for a query, or to parse it."""
    return 0.01 + 1e-4 * len(query)


def inspect_seconds(query: str, *, explain: bool) -> float:
    """Estimate the time to search for a query step by step, whose edges are known only then."""
    return 2 * query_seconds(query) + (explain_seconds(100, 300) if explain else 0.0)


def growth_seconds(num_documents: int, num_chars: int, num_edges: int) -> float:
    """Estimate the time to add documents to a corpus folder without encoding them, or to remove some."""
    return PER_GROWTH + PER_DOCUMENT * num_documents + PER_CHARACTER * num_chars + PER_NEW_EDGE * num_edges


def encoding_seconds(num_chars: int) -> float:
    """Estimate the time to encode texts."""
    return PER_ENCODED_CHARACTER * num_chars
