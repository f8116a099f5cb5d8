"""Preparation of a corpus folder from a data set, in resumable shards.

A shard contains the texts, words and vectors of a few thousand passages in one file, whose name contains the hash of
the passages and settings. An interrupted preparation writes only the missing shards. An engine can write shards in
several processes. The columns are then merged from the shards in bounded memory, with one pass over all shards per
column.
"""

import contextlib
import hashlib
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.core import Encoder
from graphrerank.corpus import PackedStrings
from graphrerank.corpus.passages import Passages
from graphrerank.corpus_store.graph_columns import graph_columns, string_columns
from graphrerank.corpus_store.opening import (
    CORPUS_MANIFEST,
    FORMAT,
    VECTOR_INDEXES,
    Columns,
    ColumnWriter,
    CorpusManifest,
    EncoderName,
    read_corpus_manifest,
)
from graphrerank.corpus_store.word_columns import part_array, read_words, write_texts
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import Edges
from graphrerank.data.encoder import check_finite_vectors, encode_passages
from graphrerank.operators.vector_index import write_stored_index
from graphrerank.task_engines.base import LOCAL, TaskEngine
from graphrerank.text.languages import ENGLISH
from graphrerank.utils.caching import hash_texts, read_cached, short_hash
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.files import sole_use, write_json
from graphrerank.utils.progress import advance_to, progress_bar
from graphrerank.utils.tensor_files import save_tensors

__getattr__ = moved_names(__name__)

PART_TEXTS = 1 << 15  # Number of passages per shard. An interrupted preparation loses at most this many.
VECTOR_DTYPES = {"float16": "<f2", "float32": "<f4"}
PARTS_FOLDER = "parts"
COLUMNS = "columns-"
PART_FORMAT = 1  # Version of the shards. Increase it whenever the same passages would give other shards.


def prepare_corpus(
    dataset: Dataset,
    folder: str | Path,
    *,
    encoder: Encoder | None = None,
    vectors: str = "float16",
    index: str | None = None,
    part_size: int = PART_TEXTS,
    cache: str | Path | None = None,
    engine: TaskEngine = LOCAL,
    is_locked: bool = False,
) -> Path:
    """Write a data set as a corpus folder.

    :func:`~graphrerank.corpus_store.opening.open_corpus` opens the folder in constant time.
    The manifest is written last, so the folder has its previous content until the preparation is complete. Nothing is
    written if the folder already contains this corpus.

    Args:
        dataset: Data set to write.
        folder: New folder, or a folder with a corpus or an interrupted preparation.
        encoder: Text encoder of the passages. If None, the corpus has no vectors.
        vectors: Type of the stored vectors: ``float16``, or ``float32`` for twice the space and exact vectors.
        index: Kind of FAISS index for a ``DenseRetriever``, built in memory: ``ivf`` (8 bits per number) or ``hnsw``.
            If None, no index is built.
        part_size: Maximum number of passages per shard.
        cache: Folder that caches edges to nearest neighbours (``knn``), which need an encoder. If None, they are not
            cached.
        engine: Engine that writes the shards, such as :class:`~graphrerank.task_engines.ray_engine.RayEngine`. The
            folder is the same, byte for byte, for all engines, if the encoder's vectors are. Defaults to this process.
        is_locked: Whether the caller has already locked the folder with :func:`~graphrerank.utils.files.sole_use`.

    Returns:
        The folder.

    Raises:
        UserError: If a setting is invalid, if another command is writing to the folder, if the folder contains other
            files or a symbolic link, or if ``knn`` edges lack an encoder.
    """
    folder = Path(folder)
    vector_settings = check_vector_settings(encoder, vectors=vectors, index=index)
    check_counts(part_size=part_size)
    with contextlib.nullcontext() if is_locked else sole_use(folder):
        check_own_folder(folder)
        fingerprint = corpus_fingerprint(dataset, encoder, vectors=vectors)
        target = columns_folder(folder, dataset, fingerprint, vector_settings)
        if target is None:
            return folder
        if encoder is None:
            dataset = with_vectors(dataset, None, folder / PARTS_FOLDER)  # Raises an error if vectors are required.
        has_nearest = dataset.knn > 0 and encoder is not None
        dtype = getattr(
            torch, "float32" if has_nearest else vectors
        )  # Nearest neighbours are computed from exact vectors.
        with progress_bar("preparing passages", len(dataset.graph.passages), announce=True):
            part_writer = PartWriter(encoder, dtype, dataset.graph.passages.language)
            parts = write_parts(
                folder / PARTS_FOLDER, dataset.graph.passages, part_writer, part_size=part_size, engine=engine
            )
        stated = edges_to_state(dataset, has_nearest=has_nearest)
        if encoder is not None and has_nearest:
            dataset = with_nearest_edges(dataset, encoder, parts, Path(cache or folder / PARTS_FOLDER))
        shutil.rmtree(target, ignore_errors=True)  # Left over from an interrupted preparation.
        writer = ColumnWriter(target, {})
        num_tokens = write_texts(writer, parts)
        writer.write_arrays(graph_columns(dataset, stated))
        if encoder is not None:
            write_vectors(writer, parts, vectors=vectors, index=index)
        manifest = corpus_manifest(
            dataset, writer, fingerprint=fingerprint, encoder=encoder, num_tokens=num_tokens, has_nearest=has_nearest
        )
        write_json(folder / CORPUS_MANIFEST, manifest.model_dump())
        remove_other_columns(folder, target)
        return folder


def check_vector_settings(encoder: Encoder | None, *, vectors: str, index: str | None) -> list[str]:
    """Check the settings of vectors, and return those that determine the name of the folder of columns.

    Args:
        encoder: Text encoder. None for a corpus without vectors.
        vectors: Type of the stored vectors.
        index: Kind of FAISS index, or None.

    Returns:
        Fingerprint of the encoder, ``vectors`` and, if set, ``index``. Empty without an encoder.

    Raises:
        UserError: If a setting is unknown, or if ``index`` is set without an encoder.
    """
    check_choice(tuple(VECTOR_DTYPES), vectors=vectors)
    if index is not None:
        check_choice(tuple(VECTOR_INDEXES), index=index)
        if encoder is None:
            raise UserError(f"`index` needs an encoder (encoder=minilm), got {index!r} without one")
    if encoder is None:
        return []
    return [encoder.fingerprint, vectors, *([] if index is None else [index])]


def corpus_fingerprint(dataset: Dataset, encoder: Encoder | None, *, vectors: str) -> str:
    """Return the fingerprint of a prepared data set.

    Rounded vectors give other rankings, so the type of the vectors is part of the fingerprint unless it is ``float32``.

    Args:
        dataset: Data set to prepare.
        encoder: Text encoder. None for a corpus without vectors.
        vectors: Type of the stored vectors.

    Returns:
        Hexadecimal hash.
    """
    if encoder is None or vectors == "float32":
        return dataset.fingerprint
    return short_hash(hash_texts([dataset.fingerprint, vectors]))


def columns_folder(folder: Path, dataset: Dataset, fingerprint: str, vector_settings: Sequence[str]) -> Path | None:
    """Return the folder for the columns of a data set.

    Args:
        folder: Corpus folder.
        dataset: Data set to prepare.
        fingerprint: Fingerprint of the prepared data set.
        vector_settings: Result of :func:`check_vector_settings`.

    Returns:
        Folder in the corpus folder, named after its content. If the corpus with this name has grown since, a folder
        with another name. None if the corpus folder already contains this corpus.
    """
    content = [str(FORMAT), *_not_in_fingerprint(dataset), dataset.fingerprint, *vector_settings]
    target = folder / f"{COLUMNS}{short_hash(hash_texts(content))[:16]}"
    try:
        present = read_corpus_manifest(folder)
    except ValueError:  # There is no corpus, or a corpus of an older format, which is replaced.
        return target
    if present.columns_folder != target.name:
        return target
    if present.fingerprint == fingerprint:
        return None
    return folder / f"{target.name}-{short_hash(present.fingerprint)[:8]}"


def edges_to_state(dataset: Dataset, *, has_nearest: bool) -> Edges | None:
    """Return the explicit edges, from which a compaction derives all other edges.

    Args:
        dataset: Data set before edges to nearest neighbours are added.
        has_nearest: Whether edges to nearest neighbours will be added.

    Returns:
        Explicit edges. None if the corpus has no derived edges.
    """
    derived = dataset.derived
    is_searched = derived is not None and (derived.rule.mention_type is not None or derived.rule.makes_choices)
    if not (has_nearest or is_searched):
        return None
    return dataset.graph.typed_edges() if derived is None else derived.stated


def with_nearest_edges(dataset: Dataset, encoder: Encoder, parts: Sequence[Path], cache: Path) -> Dataset:
    """Return a data set with edges to nearest neighbours, by the vectors in all shards.

    Args:
        dataset: Data set to which the edges are added.
        encoder: Encoder of the vectors.
        parts: Files of all shards, in order.
        cache: Folder that caches the edges.

    Returns:
        Data set with vectors and edges.
    """
    embedding = torch.cat([torch.from_numpy(part_array(part, "vectors")) for part in parts])
    stored = StoredVectors(encoder.name, encoder.fingerprint, embedding, torch.arange(len(embedding)))
    return with_vectors(dataset, stored, cache)


def write_vectors(writer: ColumnWriter, parts: Sequence[Path], *, vectors: str, index: str | None) -> None:
    """Write the vectors of all shards, and a FAISS index over them.

    Args:
        writer: Writer of the columns.
        parts: Files of all shards, in order.
        vectors: Type of the stored vectors, a key of ``VECTOR_DTYPES``.
        index: Kind of index, a key of ``VECTOR_INDEXES``. If None, no index is written.
    """
    dim, dtype = part_array(parts[0], "vectors").shape[1:], VECTOR_DTYPES[vectors]
    writer.write("vectors", dtype, (part_array(part, "vectors") for part in parts), dim)
    if index is not None:
        embedding = Columns(writer.folder, {"vectors": writer.entries["vectors"]}).tensor("vectors", dtype, dim)
        write_stored_index(writer.folder / VECTOR_INDEXES[index], embedding)
        writer.note_file(VECTOR_INDEXES[index])


def corpus_manifest(
    dataset: Dataset,
    writer: ColumnWriter,
    *,
    fingerprint: str,
    encoder: Encoder | None,
    num_tokens: int,
    has_nearest: bool,
) -> CorpusManifest:
    """Return the manifest of the written columns.

    Args:
        dataset: Data set that was written to the columns.
        writer: Writer of its columns.
        fingerprint: Fingerprint of the prepared data set.
        encoder: Encoder of the vectors. None for a corpus without vectors.
        num_tokens: Number of tokens in all texts.
        has_nearest: Whether there are edges to nearest neighbours.

    Returns:
        The manifest.
    """
    passages = dataset.graph.passages
    return CorpusManifest(
        format=FORMAT,
        name=dataset.name,
        fingerprint=fingerprint,
        encoder=None if encoder is None else EncoderName(name=encoder.name, fingerprint=encoder.fingerprint),
        knn=dataset.knn if has_nearest else 0,
        knn_below=dataset.knn_below,
        derived=None if dataset.derived is None else dataset.derived.rule,
        num_prepared=len(passages),
        language=passages.language,
        num_tokens=num_tokens,
        num_stems=writer.entries["stem.texts_with"].shape[0],
        splits=list(dataset.splits),
        edge_counts=dict(dataset.edge_counts),
        answers={query: list(answers) for query, answers in dataset.answers.items()},
        columns_folder=writer.folder.name,
        columns=writer.entries,
    )


def remove_other_columns(folder: Path, target: Path) -> None:
    """Remove the shards and the columns of previous corpora.

    Args:
        folder: Corpus folder, whose manifest already refers to the new columns.
        target: Folder of the new columns.
    """
    for path in (folder / PARTS_FOLDER, *folder.glob(f"{COLUMNS}*")):
        if path != target:
            shutil.rmtree(path, ignore_errors=True)


class StoredVectors(Encoder):
    """Encoder that returns stored vectors. Passages must be encoded in corpus order.

    Args:
        name: Name of the encoder that computed the vectors.
        fingerprint: Fingerprint of the encoder that computed the vectors.
        embedding: Vectors ``[N, d]``.
        nodes: Rows of ``embedding`` for the passages to encode, ``[n]``.
    """

    def __init__(self, name: str, fingerprint: str, embedding: Tensor, nodes: Tensor) -> None:
        self.name, self._fingerprint, self._embedding, self._left = name, fingerprint, embedding, nodes

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the encoder that computed the vectors."""
        return self._fingerprint

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of the passages that follow those of the previous call.

        Args:
            texts: Next ``n`` passages.

        Returns:
            Vectors ``[n, d]``.
        """
        nodes, self._left = self._left[: len(texts)], self._left[len(texts) :]
        return self._embedding[nodes]


def _not_in_fingerprint(dataset: Dataset) -> list[str]:
    """Return the content of a folder that is not part of the data set's fingerprint, such as its name and answers."""
    answers = sorted((query, list(texts)) for query, texts in dataset.answers.items())
    types = dataset.graph.weight_by_type
    hashed = "" if types is None else hashlib.sha256(types.cpu().contiguous().numpy().data).hexdigest()
    metadata = dataset.graph.passages.metadata
    records = "" if metadata is None else hash_texts(list(metadata.as_json()))
    rule, guarded = dataset.derived and dataset.derived.rule, dataset.graph.guarded
    edges = "" if guarded is None else repr([guarded.groups, *(column.tolist() for column in guarded.columns.values())])
    return [dataset.name, repr(answers), hashed, repr(rule), repr(records), edges]


def check_own_folder(folder: Path) -> None:
    """Check that a folder contains nothing but a corpus.

    Args:
        folder: Corpus folder. It may be missing or empty.

    Raises:
        ValueError: If the folder contains other files or symbolic links.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_own = path.name in (CORPUS_MANIFEST, PARTS_FOLDER) or path.name.startswith((COLUMNS, f".{CORPUS_MANIFEST}."))
        if not is_own or path.is_symlink():
            kind = "the symbolic link " if path.is_symlink() else ""
            raise UserError(f"{folder} must be a new folder or a corpus folder, got a folder with {kind}{path.name!r}")


class PartTask(NamedTuple):
    """Passages of one shard.

    Attributes:
        path: File to write.
        ids: Ids of the passages, ``[n]``.
        texts: Texts of the passages, ``[n]``.
    """

    path: Path
    ids: list[str]
    texts: list[str]


@dataclass(frozen=True)
class PartWriter:
    """Function that writes one shard. It can be pickled, so that workers of an engine can call it.

    Attributes:
        encoder: Text encoder of the passages. None for a corpus without vectors.
        dtype: Type of the vectors.
        language: Language in which words are matched.
    """

    encoder: Encoder | None
    dtype: torch.dtype
    language: str = ENGLISH

    def file_name(self, number: int, ids: Sequence[str], texts: Sequence[str]) -> str:
        """Return the name of a shard's file, which contains the hash of its passages and of the settings.

        Args:
            number: Number of the shard.
            ids: Ids of the passages.
            texts: Texts of the passages.
        """
        settings = [str(PART_FORMAT), "" if self.encoder is None else self.encoder.fingerprint, str(self.dtype)]
        settings += [] if self.language == ENGLISH else [self.language]
        key = hash_texts(settings) + hash_texts(ids) + hash_texts(texts)
        return f"{number:06d}-{short_hash(key)}.safetensors"

    def __call__(self, task: PartTask) -> None:
        """Encode the passages, count their words, and write the shard.

        Args:
            task: Passages of the shard.

        Raises:
            UserError: If the encoder refuses a text or returns unusable vectors.
        """
        arrays = {
            **string_columns("id", PackedStrings.of(task.ids)),
            **string_columns("text", PackedStrings.of(task.texts)),
            **read_words(task.texts, self.language),
        }
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if self.encoder is not None:
            vectors = encode_passages(self.encoder, task.ids, task.texts)
            tensors["vectors"] = check_finite_vectors(vectors, len(task.texts), self.encoder.name).to(self.dtype)
        save_tensors(task.path, tensors)


def write_parts(
    folder: Path, passages: Passages, writer: PartWriter, *, part_size: int, engine: TaskEngine = LOCAL
) -> list[Path]:
    """Write the missing shards of a corpus.

    Args:
        folder: Folder of the shards. The workers of the engine must see it at the same path.
        passages: Passages of the corpus.
        writer: Function that writes one shard.
        part_size: Maximum number of passages per shard.
        engine: Engine whose workers write the shards.

    Returns:
        Files of all shards, in order.
    """
    paths: list[Path] = []
    ends: deque[int] = deque()  # for each shard that is being written, the number of passages up to its end

    def missing_parts() -> Iterator[PartTask]:
        for number, start in enumerate(range(0, max(1, len(passages.ids)), part_size)):
            ids, texts = (list(strings[start : start + part_size]) for strings in (passages.ids, passages.texts))
            path = folder.absolute() / writer.file_name(number, ids, texts)
            paths.append(path)
            if path.is_symlink() or read_cached(path) is None:
                ends.append(start + len(texts))
                yield PartTask(path, ids, texts)
            elif not ends:
                advance_to(start + len(texts))  # written by an interrupted preparation

    for _ in engine.map(writer, missing_parts()):
        advance_to(ends.popleft())
    advance_to(len(passages.ids))
    return paths
