"""Checks that a retriever has the edges and vectors it needs, before a data set is encoded and ranked."""

import logging

from graphrerank.core import RetrieverFactory
from graphrerank.core.adapters import expands_along_edges, needs_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.utils.checks import UserError

LOGGER = logging.getLogger(__name__)


def warn_without_edges(dataset: Dataset, build_retriever: RetrieverFactory) -> None:
    """Log a warning if the retriever expands along edges and the data set has no edges.

    Args:
        dataset: Data set that the retriever will search.
        build_retriever: Factory of the retriever.
    """
    if expands_along_edges(build_retriever) and not dataset.has_edges:
        LOGGER.warning(
            "hint: %s has no edges to expand along. To extract edges from the texts, use data.edges=auto (edges=auto "
            'for several data sets; in Python: edges="auto")',
            dataset.name,
        )


def check_vectors(
    dataset: Dataset, build_retriever: RetrieverFactory, *, has_encoder: bool, model_reads_vectors: bool
) -> bool:
    """Return whether a data set must be encoded.

    Args:
        dataset: Data set. Its edges to nearest neighbours can require vectors.
        build_retriever: Factory of the retriever.
        has_encoder: Whether there is an encoder.
        model_reads_vectors: Whether vectors of queries and passages are inputs of the model.

    Returns:
        True if the model, the retriever or the data set's edges require vectors.

    Raises:
        ValueError: If vectors are required and there is no encoder.
    """
    readers = {
        "a model with vectors as inputs (features=scores works without)": model_reads_vectors,
        "a retriever that searches vectors": needs_vectors(build_retriever),
        "edges to nearest neighbours (data.knn)": dataset.needs_vectors or (dataset.knn > 0 and has_encoder),
    }
    reader = next((reader for reader, reads in readers.items() if reads), None)
    if reader is not None and not has_encoder:
        raise UserError(f"`encoder` must be set for {reader}, got none. Use, for example, encoder=minilm")
    return reader is not None
