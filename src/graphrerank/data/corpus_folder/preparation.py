"""From a data set to a corpus folder, part by part; a stopped preparation continues with the part that it was at."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.caching import hash_texts, short_hash
from graphrerank.checks import check_choice, check_counts
from graphrerank.data.candidates import with_vectors
from graphrerank.data.corpus_folder.columns import Columns, ColumnWriter
from graphrerank.data.corpus_folder.opening import (
    FORMAT,
    MANIFEST,
    VECTOR_INDEXES,
    CorpusManifest,
    EncoderName,
    read_manifest,
)
from graphrerank.data.corpus_folder.parts import Assembly, EncodedParts, PartWriter, write_parts
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.engines.local import LOCAL, Engine
from graphrerank.files import sole_use, write_json
from graphrerank.graphs import CorpusGraph, PackedStrings
from graphrerank.graphs.ivf_file import write_ivf_file
from graphrerank.graphs.vector_index import (
    BLOCK_VECTORS,
    TRAINED_VECTORS,
    fill_vector_index,
    new_vector_index,
    write_vector_index,
)

PART_TEXTS = 1 << 15  # passages of a part: at most this much work is lost on a stop
SMALLEST_PART = 1 << 8  # that several workers share a small corpus for
PARTS_OF_WORKER = 4  # at least, so that none waits long for another one at the end
VECTOR_DTYPES = {"float16": "<f2", "float32": "<f4"}
PARTS = "parts"
COLUMNS = "columns-"
NONE = np.zeros(0, dtype=np.int64)


def prepare_corpus(
    dataset: Dataset,
    folder: str | Path,
    *,
    encoder: Encoder | None = None,
    vectors: str = "float16",
    index: str | None = None,
    part_size: int = PART_TEXTS,
    cache: str | Path | None = None,
    engine: Engine = LOCAL,
    progress: Callable[[int], None] = lambda passages: None,
    is_locked: bool = False,
) -> Path:
    """Write a data set as a corpus folder, which :func:`open_corpus` opens in constant time.

    The manifest is written last: until then the folder holds what it held before. Nothing is written if it holds this
    corpus already.

    Args:
        dataset: The data set; of its graph, texts and ids may be any sequences.
        folder: A folder that is new, or holds a corpus folder or one in preparation.
        encoder: Encodes the passages; None for a corpus without vectors.
        vectors: ``float16``, or ``float32`` for twice the room and the very numbers of the encoder.
        index: ``ivf`` (of 8 bits a number, written part by part) or ``hnsw`` (built in memory) for an index of
            FAISS too, which a ``DenseRetriever`` of this kind then maps; needs vectors.
        part_size: Passages of a part, at most: of a small corpus several workers of the engine take smaller ones.
        cache: Folder for edges to nearest neighbours (``knn``), which need an encoder.
        engine: Writes the parts and finds the nearest neighbours; its workers must see ``folder``.
        progress: Called with the number of passages of each finished part.
        is_locked: Whether the caller has the sole use of the folder already.

    Returns:
        The folder.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If it holds something else or a symbolic link, a written part is damaged, or ``knn`` edges lack an
            encoder.
    """
    folder = Path(folder)
    check_choice(tuple(VECTOR_DTYPES), vectors=vectors)
    check_counts(part_size=part_size)
    if index is not None:
        check_choice(tuple(VECTOR_INDEXES), index=index)
        if encoder is None:
            raise ValueError(f"`index` needs an encoder (encoder=minilm), got {index!r} without one")
    with contextlib.nullcontext() if is_locked else sole_use(folder):
        check_own_folder(folder)
        settings = [] if encoder is None else [encoder.fingerprint, vectors, *([] if index is None else [index])]
        fingerprint = dataset.fingerprint
        if settings and vectors != "float32":
            fingerprint = short_hash(hash_texts([fingerprint, vectors]))  # other vectors, other rankings
        key = short_hash(hash_texts([str(FORMAT), *_not_in_fingerprint(dataset), dataset.fingerprint, *settings]))[:16]
        target = folder / f"{COLUMNS}{key}"
        with contextlib.suppress(ValueError):  # none, or one that is to be replaced
            present = read_manifest(folder)
            if present.columns_folder == target.name:
                if present.fingerprint == fingerprint:
                    return folder
                target = folder / f"{target.name}-{short_hash(present.fingerprint)[:8]}"  # it has grown since
        if encoder is None:
            dataset = with_vectors(dataset, None, folder / PARTS)
        finds_nearest = dataset.knn > 0 and encoder is not None
        dtype = getattr(torch, "float32" if finds_nearest else vectors)  # edges are those of the encoder's very numbers
        passages = dataset.graph.passages
        if engine.workers > 1:
            share = -(-len(passages) // (PARTS_OF_WORKER * engine.workers))
            part_size = min(part_size, max(SMALLEST_PART, share))
        part_writer = PartWriter((folder / PARTS).resolve(), encoder=encoder, dtype=dtype, language=passages.language)
        parts = write_parts(
            part_writer, passages.ids, passages.texts, part_size=part_size, engine=engine, progress=progress
        )
        shutil.rmtree(target, ignore_errors=True)  # of a stopped preparation
        writer = ColumnWriter(target, {})
        _write_stated(writer, dataset, finds_nearest=finds_nearest)
        if encoder is not None and finds_nearest:
            encoded = EncodedParts(encoder, parts)
            dataset = with_vectors(dataset, encoded, Path(cache or folder / PARTS), engine=engine)
        assembly = Assembly(parts)
        assembly.write(writer)
        _write_graph(writer, dataset.graph)
        _write_queries(writer, dataset)
        if encoder is not None:
            assembly.write_vectors(writer, VECTOR_DTYPES[vectors])
            if index is not None:
                _write_vector_index(writer, index)
        manifest = CorpusManifest(
            format=FORMAT,
            name=dataset.name,
            fingerprint=fingerprint,
            encoder=None if encoder is None else EncoderName(name=encoder.name, fingerprint=encoder.fingerprint),
            knn=dataset.knn if finds_nearest else 0,
            knn_below=dataset.knn_below,
            derived=None if dataset.derived is None else dataset.derived.rule,
            num_prepared=len(passages),
            language=passages.language,
            num_tokens=assembly.num_tokens,
            num_stems=writer.entries["stem.order"].shape[0],
            splits=list(dataset.splits),
            edge_counts=dict(dataset.edge_counts),
            answers={query: list(answers) for query, answers in dataset.answers.items()},
            columns_folder=target.name,
            columns=writer.entries,
        )
        write_json(folder / MANIFEST, manifest.model_dump())
        for old in (folder / PARTS, *folder.glob(f"{COLUMNS}*")):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
        return folder


def _not_in_fingerprint(dataset: Dataset) -> list[str]:
    """Describe what a folder holds of a data set and its fingerprint leaves out: name, answers and types of edges."""
    answers = sorted((query, list(texts)) for query, texts in dataset.answers.items())
    types = dataset.graph.weight_by_type
    hashed = "" if types is None else hashlib.sha256(types.cpu().contiguous().numpy().data).hexdigest()
    return [dataset.name, repr(answers), hashed, repr(dataset.derived and dataset.derived.rule)]


def check_own_folder(folder: Path) -> None:
    """Refuse a folder that holds files of somebody else, or symbolic links."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_own = path.name in (MANIFEST, PARTS) or path.name.startswith((COLUMNS, f".{MANIFEST}."))
        if not is_own or path.is_symlink():
            kind = "the symbolic link " if path.is_symlink() else ""
            raise ValueError(f"{folder}: must be a new folder or a corpus folder, found {kind}{path.name!r} in it")


def _write_vector_index(writer: ColumnWriter, kind: str) -> None:
    """Index the column of vectors."""
    num_nodes, dim = writer.entries["vectors"].shape
    columns = Columns(writer.folder, {"vectors": writer.entries["vectors"]})
    path = writer.folder / VECTOR_INDEXES[kind]
    if kind == "ivf" and num_nodes:
        cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
        step = max(1, num_nodes // (TRAINED_VECTORS * cells))
        blocks = partial(_blocks, writer.folder / "vectors", writer.entries["vectors"].dtype, dim)
        starts = range(0, num_nodes, BLOCK_VECTORS)
        sample = np.concatenate([block[-start % step :: step] for start, block in zip(starts, blocks(), strict=True)])
        write_ivf_file(path, blocks, sample=sample, num_cells=cells)
    else:
        embedding = columns.tensor("vectors", writer.entries["vectors"].dtype, (dim,))
        index = new_vector_index(dim, kind, num_nodes, links=32, num_cells=None, half=embedding.dtype == torch.float16)
        fill_vector_index(index, embedding)
        write_vector_index(path, index)
    writer.note_file(path.name)


def _blocks(path: Path, dtype: str, dim: int) -> Iterator[npt.NDArray[np.float32]]:
    """Read a column of vectors block by block; what is read and not mapped counts no further."""
    with path.open("rb") as file:
        while (block := np.fromfile(file, dtype, count=BLOCK_VECTORS * dim)).size:
            yield block.reshape(-1, dim).astype(np.float32)


def _write_graph(writer: ColumnWriter, graph: CorpusGraph) -> None:
    """Write edges, titles and entities, and empty columns for what will be added and removed."""
    tensors: dict[str, tuple[str, Any]] = {
        "edges.indptr": ("<i8", graph.indptr),
        "edges.indices": ("<i8", graph.indices),
        "edges.weight": ("<f4", graph.weight),
    }
    if graph.passages.title_lengths is not None:
        tensors["title_lengths"] = ("<i4", graph.passages.title_lengths)
    if graph.weight_by_type is not None:
        tensors["edges.weight_by_type"] = ("<f4", graph.weight_by_type)
    if (entities := graph.entities) is not None:
        writer.write_strings("entities.names", PackedStrings.of(entities.names))
        for name in ("indptr", "indices", "sizes", "holder_ptr", "holders"):
            tensors[f"entities.{name}"] = ("<i8", getattr(entities, name))
    for name, (dtype, tensor) in tensors.items():
        writer.write_tensor(name, dtype, tensor)
    writer.write("added.ptr", "<i8", [np.zeros(1, dtype=np.int64)])  # of the tokens of each added passage
    writer.write("added.tokens", "<i4", [NONE])
    writer.write("added.counts", "<i4", [NONE])
    writer.write("edges.moved", "<i8", [NONE.reshape(0, 3)], (3,))  # (node, start, stop) of rows that lie elsewhere
    writer.write("removed", "<i8", [NONE])  # numbers of passages


def _write_stated(writer: ColumnWriter, dataset: Dataset, *, finds_nearest: bool) -> None:
    """Write what a compaction needs to find edges again: those that are not found, and the entities of passages."""
    derived = dataset.derived
    if derived is not None and derived.entity_names is not None:
        names = (json.dumps(sorted(held)) for held in derived.entity_names)
        writer.write_strings("stated.entities", PackedStrings.of(names))
    if finds_nearest or (derived is not None and derived.rule.makes_edges):
        edges = dataset.graph.typed_edges() if derived is None else derived.stated
        for name, dtype, tensor in zip(("pairs", "weight", "type"), ("<i8", "<f4", "<i8"), edges, strict=True):
            writer.write_tensor(f"stated.{name}", dtype, tensor)


def _write_queries(writer: ColumnWriter, dataset: Dataset) -> None:
    writer.write_strings("query_ids", PackedStrings.of(dataset.query_ids))
    writer.write_strings("query_texts", PackedStrings.of(dataset.query_texts))
    for number, qrels in enumerate(dataset.splits.values()):
        for name, dtype, tensor in (
            ("query", "<i8", qrels.query),
            ("node", "<i8", qrels.node),
            ("gain", "<f4", qrels.gain),
        ):
            writer.write_tensor(f"split{number}.{name}", dtype, tensor)
