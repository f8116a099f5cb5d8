"""From a data set to a corpus folder, part by part; a stopped preparation continues with the part that it was at."""

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.caching import hash_texts, short_hash
from graphrerank.checks import check_choice, check_counts
from graphrerank.data.candidates import with_vectors
from graphrerank.data.corpus_folder.assembly import Assembly, encoded, write_incidence, write_strings, write_tensor
from graphrerank.data.corpus_folder.columns import Array, Column, Columns, file_column, write_column
from graphrerank.data.corpus_folder.derived_columns import rule_of, write_derived
from graphrerank.data.corpus_folder.edge_rows import as_other
from graphrerank.data.corpus_folder.opening import ENTITIES, FORMAT, MANIFEST, VECTOR_INDEXES, read_manifest
from graphrerank.data.corpus_folder.parts import EncodedParts, PartWriter, write_parts
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.engines.local import LOCAL, Engine
from graphrerank.files import sole_use, write_json
from graphrerank.graphs import CorpusGraph
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
GROWING: tuple[tuple[str, str, tuple[int, ...], Array], ...] = (  # columns that hold what was changed since
    ("added.ptr", "<i8", (), np.zeros(1, dtype=np.int64)),  # of the tokens of each added passage
    ("added.tokens", "<i4", (), NONE),
    ("added.counts", "<i4", (), NONE),
    ("edges.moved", "<i8", (3,), NONE.reshape(0, 3)),  # (node, start, stop): where its row of edges lies now
    ("removed", "<i8", (), NONE),  # numbers of passages
)


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
    nearest: Mapping[str, int | None] | None = None,
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
        nearest: How many nearest neighbours an added passage is joined with, ``k``, if it has fewer than ``below``
            others (None: in any case); as the data set's ``knn`` says when None.

    Returns:
        The folder.

    Raises:
        ValueError: If another command writes to the folder, it holds something else, a written part is damaged, or
            ``knn`` edges lack an encoder.
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
        present: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError):  # none, or one that is to be replaced
            present = read_manifest(folder)
        if present.get("columns_folder") == target.name:
            if present["fingerprint"] == fingerprint:
                return folder
            target = folder / f"{target.name}-{short_hash(present['fingerprint'])[:8]}"  # it has grown since
        if encoder is None:
            dataset = with_vectors(dataset, None, folder / PARTS)
        graph = dataset.graph
        if dataset.derived is not None and dataset.derived.makes_edges and graph.weight_by_type is None:
            graph = replace(graph, weight_by_type=as_other(graph.weight))
            dataset = dataset.with_graph(graph)
        if nearest is None and dataset.knn and encoder is not None:
            nearest = {"k": dataset.knn, "below": dataset.knn_below}
        dtype = getattr(torch, "float32" if dataset.knn else vectors)  # edges are those of the encoder's very numbers
        if engine.workers > 1:
            share = -(-graph.num_nodes // (PARTS_OF_WORKER * engine.workers))
            part_size = min(part_size, max(SMALLEST_PART, share))
        writer = PartWriter((folder / PARTS).resolve(), encoder=encoder, dtype=dtype, language=graph.passages.language)
        parts = write_parts(writer, graph.node_ids, graph.texts, part_size=part_size, engine=engine, progress=progress)
        if encoder is not None and dataset.knn:
            encoded = EncodedParts(encoder, parts)
            dataset = with_vectors(dataset, encoded, Path(cache or folder / PARTS), engine=engine)
            graph = dataset.graph
        shutil.rmtree(target, ignore_errors=True)  # of a stopped preparation
        assembly = Assembly(parts)
        columns = assembly.write(target) | _write_graph(target, graph) | _write_queries(target, dataset)
        columns |= {name: write_column(target, name, dtype, shape, [rows]) for name, dtype, shape, rows in GROWING}
        rule = None
        if dataset.derived is not None:
            further, rule = write_derived(target, graph, dataset.derived)
            columns |= further
        if encoder is not None:
            columns |= assembly.write_vectors(target, VECTOR_DTYPES[vectors])
            if index is not None:
                columns[VECTOR_INDEXES[index]] = _write_vector_index(target, columns, index)
        manifest = {
            "format": FORMAT,
            "name": dataset.name,
            "fingerprint": fingerprint,
            "encoder": None if encoder is None else {"name": encoder.name, "fingerprint": encoder.fingerprint},
            "nearest": nearest,
            "derived": rule,
            "num_nodes": graph.num_nodes,
            "language": graph.passages.language,
            "num_tokens": assembly.num_tokens,
            "num_stems": columns["stem.order"].shape[0],  # in order; those of added passages follow
            "splits": list(dataset.splits),
            "edge_counts": dict(dataset.edge_counts),
            "answers": {query: list(answers) for query, answers in dataset.answers.items()},
            "columns_folder": target.name,
            "columns": {name: column.to_json() for name, column in columns.items()},
        }
        write_json(folder / MANIFEST, manifest)
        for old in (folder / PARTS, *folder.glob(f"{COLUMNS}*")):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
    return folder


def _not_in_fingerprint(dataset: Dataset) -> list[str]:
    """Describe what a folder holds of a data set and its fingerprint leaves out: name, answers and types of edges."""
    answers = sorted((query, list(texts)) for query, texts in dataset.answers.items())
    types = dataset.graph.weight_by_type
    hashed = "" if types is None else hashlib.sha256(types.cpu().contiguous().numpy().data).hexdigest()
    derived = [] if dataset.derived is None else [repr(rule_of(dataset.derived, dataset.graph.num_nodes))]
    return [dataset.name, repr(answers), hashed, *derived]


def check_own_folder(folder: Path) -> None:
    """Refuse a folder that holds files of somebody else."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_own = path.name in (MANIFEST, PARTS) or path.name.startswith((COLUMNS, f".{MANIFEST}."))
        if not is_own:
            raise ValueError(f"{folder}: must be a new folder or a corpus folder, found {path.name!r} in it")


def _write_vector_index(folder: Path, columns: Mapping[str, Column], kind: str) -> Column:
    """Index the column of vectors."""
    entry = columns["vectors"]
    num_nodes, dim = entry.shape
    path = folder / VECTOR_INDEXES[kind]
    if kind == "ivf" and num_nodes:
        cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
        step = max(1, num_nodes // (TRAINED_VECTORS * cells))
        blocks = partial(_blocks, folder / "vectors", entry)
        starts = range(0, num_nodes, BLOCK_VECTORS)
        sample = np.concatenate([block[-start % step :: step] for start, block in zip(starts, blocks(), strict=True)])
        write_ivf_file(path, blocks, sample=sample, num_cells=cells)
        return file_column(path)
    embedding = Columns(folder, {"vectors": entry.to_json()}).tensor("vectors", entry.dtype, (dim,))
    index = new_vector_index(dim, kind, num_nodes, links=32, num_cells=None, half=embedding.dtype == torch.float16)
    fill_vector_index(index, embedding)
    write_vector_index(path, index)
    return file_column(path)


def _blocks(path: Path, column: Column) -> Iterator[npt.NDArray[np.float32]]:
    """Read a column of vectors block by block; what is read and not mapped counts no further."""
    dim = column.shape[1]
    with path.open("rb") as file:
        while (block := np.fromfile(file, column.dtype, count=BLOCK_VECTORS * dim)).size:
            yield block.reshape(-1, dim).astype(np.float32)


def _write_graph(folder: Path, graph: CorpusGraph) -> dict[str, Column]:
    tensors: dict[str, tuple[str, Any]] = {
        "edges.indptr": ("<i8", graph.indptr),
        "edges.indices": ("<i8", graph.indices),
        "edges.weight": ("<f4", graph.weight),
    }
    if graph.passages.title_lengths is not None:
        tensors["title_lengths"] = ("<i4", graph.passages.title_lengths)
    if graph.weight_by_type is not None:
        tensors["edges.weight_by_type"] = ("<f4", graph.weight_by_type)
    columns = {name: write_tensor(folder, name, dtype, tensor) for name, (dtype, tensor) in tensors.items()}
    return columns if graph.entities is None else columns | write_incidence(folder, ENTITIES, graph.entities)


def _write_queries(folder: Path, dataset: Dataset) -> dict[str, Column]:
    columns = write_strings(folder, "query_ids", encoded(dataset.query_ids))
    columns |= write_strings(folder, "query_texts", encoded(dataset.query_texts))
    for number, qrels in enumerate(dataset.splits.values()):
        for name, dtype, tensor in (
            ("query", "<i8", qrels.query),
            ("node", "<i8", qrels.node),
            ("gain", "<f4", qrels.gain),
        ):
            column = f"split{number}.{name}"
            columns[column] = write_tensor(folder, column, dtype, tensor)
    return columns
