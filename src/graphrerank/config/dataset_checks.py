"""Checks before a data set is encoded and ranked: does its retriever have the edges and the vectors that it reads?"""

import logging

from graphrerank.core import RetrieverFactory
from graphrerank.core.adapters import expands_along_edges, needs_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.utils.checks import UserError

LOGGER = logging.getLogger(__name__)


def warn_without_edges(dataset: Dataset, build_retriever: RetrieverFactory) -> None:
    """Log a hint if the retriever expands along edges and the data set has none.

    Args:
        dataset: Data set.
        build_retriever: Factory of the retriever.
    """
    if expands_along_edges(build_retriever) and not dataset.has_edges:
        LOGGER.warning("hint: %s has no edges to expand along; data.edges=auto finds edges in any texts", dataset.name)


def check_vectors(
    dataset: Dataset, build_retriever: RetrieverFactory, *, has_encoder: bool, model_reads_vectors: bool
) -> bool:
    """Return whether a data set must be encoded.

    Args:
        dataset: Data set, whose edges to nearest neighbours may read vectors.
        build_retriever: Factory of the retriever.
        has_encoder: Whether an encoder was chosen.
        model_reads_vectors: Whether the model reads vectors of queries and passages.

    Returns:
        True if the model, the retriever or the data set's edges read vectors.

    Raises:
        ValueError: If vectors are read and there is no encoder.
    """
    readers = {
        "a model that reads vectors (features=scores does not)": model_reads_vectors,
        "a retriever that reads vectors": needs_vectors(build_retriever),
        "edges to nearest neighbours (data.knn)": dataset.needs_vectors or (dataset.knn > 0 and has_encoder),
    }
    reader = next((reader for reader, reads in readers.items() if reads), None)
    if reader is not None and not has_encoder:
        raise UserError(f"`encoder` must be chosen (encoder=minilm) for {reader}, got none")
    return reader is not None
