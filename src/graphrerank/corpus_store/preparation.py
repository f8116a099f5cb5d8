"""From a data set to a corpus folder, part by part; a stopped preparation continues with the part that it was at.

A part is what is read and encoded of some thousand passages, in one file, whose name holds the hash of its passages and
settings. From the parts come the columns: one pass over the parts for each, in bounded memory.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.core import Encoder
from graphrerank.corpus import CorpusGraph, PackedStrings, Postings, TextStems, Vocabulary, WordIndex
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from graphrerank.corpus.passages import Passages
from graphrerank.corpus_store.opening import (
    FORMAT,
    MANIFEST,
    VECTOR_INDEXES,
    Array,
    Columns,
    ColumnWriter,
    CorpusManifest,
    EncoderName,
    read_manifest,
)
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import Edges
from graphrerank.data.encoder import check_vectors
from graphrerank.features.text_match import distinct_keys
from graphrerank.features.word_table import WordTable, first_of_equals
from graphrerank.operators.vector_index import write_stored_index
from graphrerank.text.languages import ENGLISH
from graphrerank.utils.caching import hash_texts, read_cached, short_hash
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.files import map_tensors, save_tensors, sole_use, write_json
from graphrerank.utils.progress import advance_to, progress_bar

PART_TEXTS = 1 << 15  # passages of a part: at most this much work is lost on a stop
VECTOR_DTYPES = {"float16": "<f2", "float32": "<f4"}
PARTS = "parts"
COLUMNS = "columns-"
BLOCK_POSTINGS = 1 << 23  # sorted at once, 64 MiB of keys
PART_FORMAT = 1  # raise it when the same passages would give other parts
Integers = npt.NDArray[np.int64]


def prepare_corpus(
    dataset: Dataset,
    folder: str | Path,
    *,
    encoder: Encoder | None = None,
    vectors: str = "float16",
    index: str | None = None,
    part_size: int = PART_TEXTS,
    cache: str | Path | None = None,
    is_locked: bool = False,
) -> Path:
    """Write a data set as a corpus folder, which :func:`open_corpus` opens in constant time.

    The manifest is written last: until then the folder holds what it held before. Nothing is written if it holds this
    corpus already.

    Args:
        dataset: The data set.
        folder: One that is new, or holds a corpus folder or one in preparation.
        encoder: Encodes the passages; None for a corpus without vectors.
        vectors: ``float16``, or ``float32`` for twice the room and the very numbers of the encoder.
        index: ``ivf`` (8 bits a number) or ``hnsw``, built in memory: an index of FAISS for a ``DenseRetriever``.
        part_size: Passages of a part, at most.
        cache: Folder for edges to nearest neighbours (``knn``), which need an encoder.
        is_locked: Whether the caller has the sole use of the folder already.

    Raises:
        ValueError: If another command writes to the folder, it holds something else or a symbolic link, or ``knn``
            edges lack an encoder.
    """
    folder = Path(folder)
    check_choice(tuple(VECTOR_DTYPES), vectors=vectors)
    check_counts(part_size=part_size)
    if index is not None:
        check_choice(tuple(VECTOR_INDEXES), index=index)
        if encoder is None:
            raise UserError(f"`index` needs an encoder (encoder=minilm), got {index!r} without one")
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
        with progress_bar("passages", len(passages)):
            parts = _write_parts(folder / PARTS, passages, part_size, encoder, dtype)
        shutil.rmtree(target, ignore_errors=True)  # of a stopped preparation
        writer = ColumnWriter(target, {})
        derived, stated = dataset.derived, None
        searched = derived is not None and (derived.rule.mention_type is not None or derived.rule.makes_choices)
        if finds_nearest or searched:
            stated = dataset.graph.typed_edges() if derived is None else derived.stated
        if encoder is not None and finds_nearest:
            embedding = torch.cat([torch.from_numpy(_array(part, "vectors")) for part in parts])
            known = StoredVectors(encoder.name, encoder.fingerprint, embedding, torch.arange(len(embedding)))
            dataset = with_vectors(dataset, known, Path(cache or folder / PARTS))
        num_tokens = write_texts(writer, parts)
        _write_graph(writer, dataset, stated)
        if encoder is not None:
            dim, dtype_name = _array(parts[0], "vectors").shape[1:], VECTOR_DTYPES[vectors]
            writer.write("vectors", dtype_name, (_array(part, "vectors") for part in parts), dim)
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
            num_stems=writer.entries["stem.texts_with"].shape[0],
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


class StoredVectors(Encoder):
    """An encoder of passages in their order, which reads the vectors of ``nodes``."""

    def __init__(self, name: str, fingerprint: str, embedding: Tensor, nodes: Tensor) -> None:
        self.name, self._fingerprint, self._embedding, self._left = name, fingerprint, embedding, nodes

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the encoder that made the vectors."""
        return self._fingerprint

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Read the vectors of the passages that follow those of the call before."""
        nodes, self._left = self._left[: len(texts)], self._left[len(texts) :]
        return self._embedding[nodes]


def _not_in_fingerprint(dataset: Dataset) -> list[str]:
    """Describe what a folder holds of a data set and its fingerprint leaves out: name, answers and types of edges."""
    answers = sorted((query, list(texts)) for query, texts in dataset.answers.items())
    types = dataset.graph.weight_by_type
    hashed = "" if types is None else hashlib.sha256(types.cpu().contiguous().numpy().data).hexdigest()
    metadata = dataset.graph.passages.metadata
    held = "" if metadata is None else hash_texts(list(metadata.as_json()))
    rule, guarded = dataset.derived and dataset.derived.rule, dataset.graph.guarded
    edges = "" if guarded is None else repr([guarded.groups, *(part.tolist() for part in guarded.columns.values())])
    return [dataset.name, repr(answers), hashed, repr(rule), repr(held), edges]


def check_own_folder(folder: Path) -> None:
    """Refuse a folder with other files, or with symbolic links."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_own = path.name in (MANIFEST, PARTS) or path.name.startswith((COLUMNS, f".{MANIFEST}."))
        if not is_own or path.is_symlink():
            kind = "the symbolic link " if path.is_symlink() else ""
            raise UserError(f"{folder}: must be a new folder or a corpus folder, found {kind}{path.name!r} in it")


def _write_graph(writer: ColumnWriter, dataset: Dataset, stated: Edges | None) -> None:
    """Write edges, titles, entities, queries and judgements, and empty columns for what will be added and removed.

    ``stated`` are the edges from which a compaction finds all others; None where there are no others.
    """
    graph, tensors = dataset.graph, dict[str, Tensor]()
    arrays = _columns("query_ids", PackedStrings.of(dataset.query_ids))
    arrays |= _columns("query_texts", PackedStrings.of(dataset.query_texts))
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        if (tensor := getattr(graph, name)) is not None:
            tensors[f"edges.{name}"] = tensor
    if graph.passages.title_lengths is not None:
        tensors["title_lengths"] = graph.passages.title_lengths.int()
    if graph.entities is not None:
        arrays |= _columns("entities.names", PackedStrings.of(graph.entities.names))
        for name in ("indptr", "indices", "sizes", "holder_ptr", "holders"):
            tensors[f"entities.{name}"] = getattr(graph.entities, name)
    if dataset.derived is not None and dataset.derived.entity_names is not None:
        names_of = (json.dumps(sorted(names)) for names in dataset.derived.entity_names)
        arrays |= _columns("stated.entities", PackedStrings.of(names_of))
    if stated is not None:
        tensors |= dict(zip(("stated.pairs", "stated.weight", "stated.type"), stated, strict=True))
    metadata = graph.passages.metadata or Metadata([""] * graph.num_nodes)
    arrays |= _columns("metadata", PackedStrings.of(metadata.as_json()))
    entries = Entries.of(metadata.records)
    arrays |= {**_columns("metadata.terms", entries.terms), "metadata.ptr": entries.ptr}
    arrays["metadata.holders"] = entries.holders
    if (guarded := graph.guarded) is not None:
        arrays |= _columns("guarded.groups", PackedStrings.of(guarded.groups))
        tensors |= {f"guarded.{name}": column for name, column in guarded.columns.items()}
    for number, qrels in enumerate(dataset.splits.values()):
        tensors |= {f"split{number}.{name}": getattr(qrels, name) for name in ("query", "node", "gain")}
    tensors["added.ptr"] = torch.zeros(1, dtype=torch.int64)  # of the tokens of each added passage
    tensors["added.tokens"] = tensors["added.counts"] = torch.zeros(0, dtype=torch.int32)
    tensors["edges.moved"] = torch.zeros(0, 3, dtype=torch.int64)  # (node, start, stop) of rows that lie elsewhere
    tensors["removed"] = torch.zeros(0, dtype=torch.int64)  # numbers of passages
    writer.write_arrays({name: tensor.cpu().numpy() for name, tensor in tensors.items()} | arrays)


def _write_parts(
    folder: Path, passages: Passages, part_size: int, encoder: Encoder | None, dtype: torch.dtype
) -> list[Path]:
    """Write the parts of a corpus that are not there, perhaps with vectors of ``dtype``; return all in order."""
    settings = [str(PART_FORMAT), "" if encoder is None else encoder.fingerprint, str(dtype)]
    settings += [] if passages.language == ENGLISH else [passages.language]
    paths: list[Path] = []
    done = 0
    for number, start in enumerate(range(0, max(1, len(passages.ids)), part_size)):
        ids, texts = (list(of[start : start + part_size]) for of in (passages.ids, passages.texts))
        key = hash_texts(settings) + hash_texts(ids) + hash_texts(texts)
        path = folder / f"{number:06d}-{short_hash(key)}.safetensors"
        paths.append(path)
        if not path.is_symlink() and read_cached(path) is not None:
            continue
        arrays = {
            **_columns("id", PackedStrings.of(ids)),
            **_columns("text", PackedStrings.of(texts)),
            **read_words(texts, passages.language),
        }
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if encoder is not None:
            tensors["vectors"] = check_vectors(encoder.encode(texts), len(texts), encoder.name).to(dtype)
        save_tensors(path, tensors)
        done += len(texts)
        advance_to(done)
    return paths


def _array(part: Path, name: str) -> Array:
    """Map an array of a part, for as long as it is held, so that few pages are resident."""
    return map_tensors(part)[0][name].numpy()


def read_words(texts: Sequence[str], language: str) -> dict[str, npt.NDArray[Any]]:
    """Read the words of ``n`` texts: arrays as in :class:`~graphrerank.corpus.WordIndex`."""
    table, size = WordTable(language), max(1, len(texts))
    read = table.read(texts)
    tokens, rank = _ascending(table.token_words)
    key = np.sort(rank[read.tokens] * size + read.text_of_token)
    first = np.flatnonzero(first_of_equals(key))
    token, text = np.divmod(key[first], size)
    stems, rank = _ascending(table.stem_words)
    num_stems = max(1, len(stems))
    held, in_lead = distinct_keys(read.text_of_stem * num_stems + rank[read.stems], read.in_lead)
    holder, stem = np.divmod(held, num_stems)
    return {
        **_columns("token.words", PackedStrings.of_encoded(tokens)),
        "token.ptr": np.searchsorted(token, np.arange(len(tokens) + 1)),
        "token.texts": text.astype(np.int32),
        "token.counts": np.diff(first, append=len(key)).astype(np.int32),
        "token.lengths": np.bincount(read.text_of_token, minlength=len(texts)).astype(np.int32),
        **_columns("stem.words", PackedStrings.of_encoded(stems)),
        "stem.ptr": np.searchsorted(holder, np.arange(len(texts) + 1)),
        "stem.stems": stem.astype(np.int32),
        "stem.in_lead": in_lead,
    }


def with_words(graph: CorpusGraph) -> CorpusGraph:
    """Return a graph whose words are read, so that parts of it (:meth:`CorpusGraph.select`) need not read them."""
    if graph.passages.words is not None:
        return graph
    read = read_words(graph.texts, graph.passages.language)
    token, stem = (
        Vocabulary(PackedStrings(read[f"{kind}.words.offsets"], read[f"{kind}.words.content"]), num_sorted)
        for kind, num_sorted in (("token", len(read["token.ptr"]) - 1), ("stem", len(read["stem.words.offsets"]) - 1))
    )
    ptr, lengths = read["token.ptr"], read["token.lengths"]
    num_tokens = int(lengths.sum(dtype=np.int64))
    tokens = Postings(token, ptr, read["token.texts"], read["token.counts"], lengths, num_tokens)
    texts_with = np.bincount(read["stem.stems"], minlength=len(stem))
    stems = TextStems(stem, read["stem.ptr"], read["stem.stems"], read["stem.in_lead"], texts_with, len(graph.texts))
    return graph.with_passages(words=WordIndex(tokens, stems))


def _ascending(words: Sequence[str]) -> tuple[list[bytes], Integers]:
    """Sort words by their bytes; return them, and the rank of each."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    order = sorted(range(len(words)), key=encoded.__getitem__)
    rank = np.empty(len(words), dtype=np.int64)
    rank[order] = np.arange(len(words))
    return [encoded[place] for place in order], rank


def _columns(name: str, strings: PackedStrings) -> dict[str, npt.NDArray[Any]]:
    return {f"{name}.offsets": strings.offsets, f"{name}.content": strings.content}


def hash_strings(strings: Sequence[str]) -> Integers:
    """Hash strings to 64 bits: ``[n]`` int64."""
    digests = (blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest() for string in strings)
    return np.frombuffer(b"".join(digests), dtype="<i8")


def write_texts(writer: ColumnWriter, parts: Sequence[Path]) -> int:
    """Write the columns of ids, texts and words from all parts, in order; return the number of tokens."""
    write = writer.write

    def each(name: str) -> Iterator[Array]:
        return (_array(part, name) for part in parts)

    for name, kind in (("id", "node_ids"), ("text", "texts")):
        write(f"{kind}.content", "|u1", each(f"{name}.content"))
        write(f"{kind}.offsets", "<i8", _running(each(f"{name}.offsets")))
    ids = (PackedStrings(_array(part, "id.offsets"), _array(part, "id.content")) for part in parts)
    write("node_ids.hashes", "<i8", map(hash_strings, ids))
    words, ranks = _vocabulary(parts, "token.words")
    writer.write_arrays(_columns("token.words", PackedStrings.of_encoded(words)))
    count = np.zeros(len(words), dtype=np.int64)
    for part, rank in zip(parts, ranks, strict=True):
        count[rank] += np.diff(_array(part, "token.ptr"))
    ptr = np.cumsum([0, *count])
    write("token.ptr", "<i8", [ptr])
    write("token.postings", "<i4", _postings(parts, ranks, ptr), (2,))
    write("token.lengths", "<i4", each("token.lengths"))
    words, ranks = _vocabulary(parts, "stem.words")
    writer.write_arrays(_columns("stem.words", PackedStrings.of_encoded(words)))
    write("stem.ptr", "<i8", _running(each("stem.ptr")))
    write("stem.stems", "<i4", (rank[_array(part, "stem.stems")] for part, rank in zip(parts, ranks, strict=True)))
    write("stem.in_lead", "|b1", each("stem.in_lead"))
    texts_with = np.zeros(len(words), dtype=np.int64)
    for part, rank in zip(parts, ranks, strict=True):
        texts_with += np.bincount(rank[_array(part, "stem.stems")], minlength=len(words))
    write("stem.texts_with", "<i8", [texts_with])
    return sum(int(lengths.sum(dtype=np.int64)) for lengths in each("token.lengths"))


def _running(parts: Iterable[Array]) -> Iterator[Integers]:
    """Join the parts' offsets."""
    total = 0
    yield np.zeros(1, dtype=np.int64)
    for offsets in parts:
        yield offsets[1:] + total
        total += int(offsets[-1])


def _postings(parts: Sequence[Path], ranks: Sequence[Integers], ptr: Integers) -> Iterator[Array]:
    """Join the parts' postings token by token: (text, count), in blocks of tokens."""
    starts = np.cumsum([0, *(len(_array(part, "token.lengths")) for part in parts)])
    limits = np.searchsorted(ptr, np.arange(0, ptr[-1] + BLOCK_POSTINGS, BLOCK_POSTINGS))
    for start, stop in pairwise(np.unique(np.append(limits, len(ptr) - 1)).tolist()):
        tokens, rows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.int32)]
        for part, rank, first in zip(parts, ranks, starts, strict=False):
            low, high = np.searchsorted(rank, (start, stop))
            local = _array(part, "token.ptr")[low : high + 1]
            held = slice(int(local[0]), int(local[-1]))
            tokens.append(np.repeat(rank[low:high], np.diff(local)))
            rows.append(np.stack([_array(part, "token.texts")[held] + first, _array(part, "token.counts")[held]], 1))
        yield np.concatenate(rows)[np.argsort(np.concatenate(tokens), kind="stable")]


def _vocabulary(parts: Sequence[Path], name: str) -> tuple[list[bytes], list[Integers]]:
    """Join the words of all parts, ascending by their bytes; return the place of each part's words too."""

    def read(part: Path) -> Iterator[bytes]:
        content = _array(part, f"{name}.content").tobytes()
        return (content[start:stop] for start, stop in pairwise(_array(part, f"{name}.offsets").tolist()))

    words = sorted(set[bytes]().union(*map(read, parts)))
    place = {word: rank for rank, word in enumerate(words)}
    return words, [np.array([place[word] for word in read(part)], dtype=np.int64) for part in parts]
