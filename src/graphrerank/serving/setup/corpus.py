"""Load the corpus that a service searches, with its vectors, index and pipelines."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from graphrerank.corpus_store.opening import is_corpus_folder, open_corpus
from graphrerank.corpus_store.word_columns import with_words
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.vector_cache import MemoryVectorCache, VectorCache
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.settings import PermissionSettings
from graphrerank.text.languages import AUTO
from graphrerank.utils.checks import UserError

MakePipeline = Callable[..., Pipeline]  # called as make_pipeline(graph, text_encoder=encoder)
ReadDataset = Callable[[Path, str], Any]  # called as read_dataset(folder, language)


def read_folder(folder: Path, language: str = AUTO) -> Any:
    """Read a data set folder, or open a corpus folder.

    Args:
        folder: Data set folder or corpus folder.
        language: Language of word matching for a data set folder. A corpus folder already has one.

    Returns:
        The data set.
    """
    return open_corpus(folder) if is_corpus_folder(folder) else Dataset.from_folder(folder, language=language)


def load_corpus(
    folder: Path,
    *,
    make_pipeline: MakePipeline,
    cache: Path,
    compared: Mapping[str, MakePipeline] | None = None,
    make_encoder: Callable[[], Encoder] | None = None,
    query_encoder: Callable[[], MemoryVectorCache] | None = None,
    read_dataset: ReadDataset = read_folder,
    device: str = "cpu",
    permissions: PermissionSettings | None = None,
    language: str = AUTO,
) -> SearchableCorpus:
    """Index a data set folder, or map a corpus folder into memory, for the pipelines that search it.

    Args:
        folder: Data set folder or corpus folder.
        make_pipeline: Function that builds the pipeline from the corpus graph and ``text_encoder``, for example a
            ``functools.partial`` of :class:`~graphrerank.pipelines.pipeline.Pipeline`.
        cache: Folder of cached vectors and candidates.
        compared: Functions by name that build additional pipelines. The page shows the rankings of these pipelines for
            comparison. If None, there are none.
        make_encoder: Function that builds the encoder of the corpus, whose vectors are cached on disk. If None, the
            corpus is searched without vectors.
        query_encoder: Function that returns the encoder of queries, which may be shared with other engines. If None,
            ``make_encoder`` builds it.
        read_dataset: Function that reads the folder in a language. Defaults to :func:`read_folder`.
        device: Device of the corpus, ``cpu`` or ``cuda``.
        permissions: Source of the callers' principals. If None, callers have none.
        language: Language of word matching. ``auto`` is the language of a corpus folder, or the language detected from
            the passages of a data set folder.

    Returns:
        The corpus with its pipelines.

    Raises:
        UserError: If the corpus folder was prepared in another language, or without the required principals.
    """
    permissions = permissions or PermissionSettings()
    dataset = read_dataset(folder, language)
    check_language(dataset, language, folder)
    check_principals(dataset, permissions, folder)
    # The encoder of the corpus is separate from that of queries, and loads its weights only if a vector is missing.
    corpus_encoder = None if make_encoder is None else VectorCache(make_encoder(), cache / "vectors")
    dataset = with_vectors(dataset, corpus_encoder, cache / "candidates")
    dataset = dataset.with_graph(with_words(dataset.graph))
    graph = dataset.graph.to(device)
    encoder = None
    if make_encoder is not None:
        encoder = MemoryVectorCache(make_encoder()) if query_encoder is None else query_encoder()
    return SearchableCorpus(
        graph,
        make_pipeline(graph, text_encoder=encoder),
        encoder,
        {name: make(graph, text_encoder=encoder) for name, make in (compared or {}).items()},
        see=partial(dataset.seen_by, statistics=permissions.statistics),
        has_permissions=permissions.are_set or graph.is_guarded,
        fingerprint=dataset.fingerprint,
    )


def check_language(dataset: Any, language: str, folder: Path) -> None:
    """Check that the language setting agrees with the language in which a corpus was prepared.

    Args:
        dataset: Data set of the corpus.
        language: Language setting.
        folder: Folder of the data set, for the error message.

    Raises:
        UserError: If the data set has another language.
    """
    prepared = dataset.graph.passages.language
    if language not in (AUTO, prepared):
        raise UserError(
            f"`language` must be auto or {prepared}, the language in which {folder} was prepared, got {language!r}"
        )


def check_principals(dataset: Any, permissions: PermissionSettings, folder: Path) -> None:
    """Check that a corpus folder has the principals that a service with permissions needs.

    Args:
        dataset: Data set of the corpus.
        permissions: Source of the callers' principals.
        folder: Folder of the data set.

    Raises:
        UserError: If the corpus folder was prepared by a version without support for permissions.
    """
    if permissions.are_set and is_corpus_folder(folder) and dataset.graph.passages.metadata is None:
        raise UserError(
            f"`index` {folder} was prepared by an older version, which did not store principals. Prepare it again"
        )
