"""Estimated work of requests, known before they are ranked."""

from graphrerank.inference import RerankInput

# Seconds of one core, measured by `benchmarks/rerank_path.py` without an encoder; rounded up.
PER_REQUEST = 1e-3
PER_DOCUMENT = 5e-6
PER_CHARACTER = 1e-7
PER_EDGE = 1e-6
PER_QUERY_CHARACTER_AND_EDGE = 5e-9
PER_EXPLAINED_EDGE_AND_DOCUMENT = 4e-6
PER_ENCODED_CHARACTER = 3e-5


def rerank_seconds(candidates: RerankInput, *, explain: bool) -> float:
    """Estimate the time to rank candidates without encoding them."""
    num_documents = candidates.num_passages
    num_edges = 0 if candidates.edges is None else len(candidates.edges)
    seconds = PER_REQUEST + PER_DOCUMENT * num_documents + PER_EDGE * num_edges
    if candidates.passages is not None:
        seconds += PER_CHARACTER * sum(map(len, candidates.passages))
        seconds += PER_QUERY_CHARACTER_AND_EDGE * len(candidates.query) * num_edges
    if explain:
        seconds += num_edges * PER_EXPLAINED_EDGE_AND_DOCUMENT * num_documents
    return seconds


def query_seconds(query: str) -> float:
    """Estimate the time to search for a query, or to parse it."""
    return 0.01 + 1e-4 * len(query)


def encoding_seconds(num_chars: int) -> float:
    """Estimate the time to encode texts."""
    return PER_ENCODED_CHARACTER * num_chars
