"""From a data set to a corpus folder, part by part; a stopped preparation continues with the part that it was at."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

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
from graphrerank.data.corpus_folder.parts import PartWriter, write_parts, write_texts
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import Edges
from graphrerank.data.encoder import Encoder
from graphrerank.data.engines.local import LOCAL, Engine
from graphrerank.files import sole_use, write_json
from graphrerank.graphs import PackedStrings
from graphrerank.graphs.vector_index import write_stored_index

PART_TEXTS = 1 << 15  # passages of a part: at most this much work is lost on a stop
SMALLEST_PART = 1 << 8  # that several workers share a small corpus for
PARTS_OF_WORKER = 4  # at least, so that none waits long for another one at the end
VECTOR_DTYPES = {"float16": "<f2", "float32": "<f4"}
PARTS = "parts"
COLUMNS = "columns-"


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
        folder: One that is new, or holds a corpus folder or one in preparation.
        encoder: Encodes the passages; None for a corpus without vectors.
        vectors: ``float16``, or ``float32`` for twice the room and the very numbers of the encoder.
        index: ``ivf`` (8 bits a number) or ``hnsw`` (built in memory): an index of FAISS for a ``DenseRetriever``.
        part_size: Passages of a part, at most: of a small corpus several workers of the engine take smaller ones.
        cache: Folder for edges to nearest neighbours (``knn``), which need an encoder.
        engine: Writes the parts and finds the nearest neighbours; its workers must see ``folder``.
        progress: Called with the number of passages of each finished part.
        is_locked: Whether the caller has the sole use of the folder already.

    Raises:
        FolderInUseError: If another command writes to the folder.
        ValueError: If it holds something else or a symbolic link, a part is damaged, or ``knn`` edges lack an encoder.
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
        derived, stated = dataset.derived, None
        if finds_nearest or (derived is not None and derived.rule.makes_edges):
            stated = dataset.graph.typed_edges() if derived is None else derived.stated
        if encoder is not None and finds_nearest:
            embedding = torch.cat([torch.from_numpy(part.array("vectors")) for part in parts])
            known = StoredVectors(encoder.name, encoder.fingerprint, embedding)
            dataset = with_vectors(dataset, known, Path(cache or folder / PARTS), engine=engine)
        num_tokens = write_texts(writer, parts)
        _write_graph(writer, dataset, stated)
        if encoder is not None:
            dim, dtype_name = parts[0].array("vectors").shape[1:], VECTOR_DTYPES[vectors]
            writer.write("vectors", dtype_name, (part.array("vectors") for part in parts), dim)
            if index is not None:
                embedding = Columns(target, {"vectors": writer.entries["vectors"]}).tensor("vectors", dtype_name, dim)
                write_stored_index(target / VECTOR_INDEXES[index], embedding)
                writer.note_file(VECTOR_INDEXES[index])
        manifest = CorpusManifest(
            format=FORMAT,
            name=dataset.name,
            fingerprint=fingerprint,
            encoder=None if encoder is None else EncoderName(name=encoder.name, fingerprint=encoder.fingerprint),
            knn=dataset.knn if finds_nearest else 0,
            knn_below=dataset.knn_below,
            derived=None if derived is None else derived.rule,
            num_prepared=len(passages),
            language=passages.language,
            num_tokens=num_tokens,
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


class StoredVectors:
    """An encoder of passages in their order, which reads their vectors: those of ``nodes``, or of all when None."""

    def __init__(self, name: str, fingerprint: str, embedding: Tensor, nodes: Tensor | None = None) -> None:
        self.name, self.fingerprint = name, fingerprint
        self._embedding, self._nodes, self._start = embedding, nodes, 0

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Read the vectors of the passages that follow those of the call before."""
        rows = slice(self._start, self._start + len(texts))
        self._start = rows.stop
        return self._embedding[rows if self._nodes is None else self._nodes[rows]]


def _not_in_fingerprint(dataset: Dataset) -> list[str]:
    """Describe what a folder holds of a data set and its fingerprint leaves out: name, answers and types of edges."""
    answers = sorted((query, list(texts)) for query, texts in dataset.answers.items())
    types = dataset.graph.weight_by_type
    hashed = "" if types is None else hashlib.sha256(types.cpu().contiguous().numpy().data).hexdigest()
    return [dataset.name, repr(answers), hashed, repr(dataset.derived and dataset.derived.rule)]


def check_own_folder(folder: Path) -> None:
    """Refuse a folder with other files, or with symbolic links."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_own = path.name in (MANIFEST, PARTS) or path.name.startswith((COLUMNS, f".{MANIFEST}."))
        if not is_own or path.is_symlink():
            kind = "the symbolic link " if path.is_symlink() else ""
            raise ValueError(f"{folder}: must be a new folder or a corpus folder, found {kind}{path.name!r} in it")


def _write_graph(writer: ColumnWriter, dataset: Dataset, stated: Edges | None) -> None:
    """Write edges, titles, entities, queries and judgements, and empty columns for what will be added and removed.

    ``stated`` are the edges from which a compaction finds all others; None where there are no others.
    """
    graph, tensors = dataset.graph, dict[str, Tensor]()
    strings = {"query_ids": dataset.query_ids, "query_texts": dataset.query_texts}
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        if (tensor := getattr(graph, name)) is not None:
            tensors[f"edges.{name}"] = tensor
    if graph.passages.title_lengths is not None:
        tensors["title_lengths"] = graph.passages.title_lengths.int()
    if graph.entities is not None:
        strings["entities.names"] = graph.entities.names
        for name in ("indptr", "indices", "sizes", "holder_ptr", "holders"):
            tensors[f"entities.{name}"] = getattr(graph.entities, name)
    if dataset.derived is not None and dataset.derived.entity_names is not None:
        strings["stated.entities"] = [json.dumps(sorted(names)) for names in dataset.derived.entity_names]
    if stated is not None:
        tensors |= {f"stated.{name}": tensor for name, tensor in zip(("pairs", "weight", "type"), stated, strict=True)}
    for number, qrels in enumerate(dataset.splits.values()):
        tensors |= {f"split{number}.{name}": getattr(qrels, name) for name in ("query", "node", "gain")}
    tensors["added.ptr"] = torch.zeros(1, dtype=torch.int64)  # of the tokens of each added passage
    tensors["added.tokens"] = tensors["added.counts"] = torch.zeros(0, dtype=torch.int32)
    tensors["edges.moved"] = torch.zeros(0, 3, dtype=torch.int64)  # (node, start, stop) of rows that lie elsewhere
    tensors["removed"] = torch.zeros(0, dtype=torch.int64)  # numbers of passages
    for name, tensor in tensors.items():
        writer.write_tensor(name, tensor)
    for name, held in strings.items():
        writer.write_strings(name, PackedStrings.of(held))
