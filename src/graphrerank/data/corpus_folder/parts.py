"""The parts of a corpus in preparation: what is read and encoded of some thousand passages, one file each.

A part's name holds the hash of its passages and settings, so that a stopped preparation finds the parts that it wrote.
From the parts come the columns: one pass over the parts for each, in bounded memory.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.corpus_folder.columns import Array, ColumnWriter
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.features.text_match import distinct_keys
from graphrerank.features.word_table import WordTable, first_of_equals
from graphrerank.files import load_tensors, save_tensors
from graphrerank.graphs import PackedStrings
from graphrerank.text.languages import ENGLISH

BLOCK_POSTINGS = 1 << 23  # sorted at once, 64 MiB of keys
FORMAT = 1  # raise it when the same passages would give other parts
WORDS = (
    *("token.words.offsets", "token.words.content", "token.ptr", "token.texts", "token.counts", "token.lengths"),
    *("stem.words.offsets", "stem.words.content", "stem.seen", "stem.ptr", "stem.stems", "stem.in_lead"),
)
STRINGS = ("id.offsets", "id.content", "text.offsets", "text.content")

Integers = npt.NDArray[np.int64]


class PartWriter:
    """Writes parts of a corpus to a folder, as the work of an engine; with an encoder also vectors, of ``dtype``."""

    def __init__(self, folder: Path, *, encoder: Encoder | None, dtype: torch.dtype, language: str = ENGLISH) -> None:
        self.folder, self.encoder, self.dtype, self.language = folder, encoder, dtype, language

    def path(self, number: int, node_ids: Sequence[str], texts: Sequence[str]) -> Path:
        """Name the part of some passages and its number among the parts."""
        settings = [str(FORMAT), "" if self.encoder is None else self.encoder.fingerprint, str(self.dtype)]
        settings += [] if self.language == ENGLISH else [self.language]
        key = hash_texts(settings) + hash_texts(node_ids) + hash_texts(texts)
        return self.folder / f"{number:06d}-{short_hash(key)}.safetensors"

    def __call__(self, block: Block) -> Block:
        """Write a part: of the file's name ``path [1]`` in the folder, ``ids [n]`` and ``texts [n]``."""
        (name,), ids, texts = (list(block[key]) for key in ("path", "ids", "texts"))
        arrays = {
            **_columns("id", PackedStrings.of(ids)),
            **_columns("text", PackedStrings.of(texts)),
            **read_words(texts, self.language),
        }
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        if self.encoder is not None:
            vectors = check_vectors(self.encoder.encode(texts), len(texts), self.encoder.name)
            tensors["vectors"] = vectors.to(self.dtype)
        save_tensors(self.folder / name, tensors)
        return {"count": np.array([len(texts)])}


class WrittenPart:
    """A part on disk; each array is mapped for as long as it is held, so that few pages are resident."""

    def __init__(self, path: Path, *, has_vectors: bool) -> None:
        self._path = path
        self._names = (*STRINGS, *WORDS, *(("vectors",) if has_vectors else ()))
        self._num_texts = len(self.array("token.lengths"))

    def array(self, name: str) -> npt.NDArray[Any]:
        """Map one of its arrays."""
        return load_tensors(self._path, self._names)[name].numpy()

    def strings(self, name: str) -> PackedStrings:
        """Return one of its lists of strings."""
        return PackedStrings(self.array(f"{name}.offsets"), self.array(f"{name}.content"))

    def __len__(self) -> int:
        return self._num_texts


def write_parts(
    writer: PartWriter,
    node_ids: Sequence[str],
    texts: Sequence[str],
    *,
    part_size: int,
    engine: Engine = LOCAL,
    progress: Callable[[int], None] = lambda passages: None,
) -> list[WrittenPart]:
    """Write the parts of a corpus that are not there; return all in order."""
    paths: list[Path] = []

    def missing() -> Iterator[Block]:
        for number, start in enumerate(range(0, max(1, len(node_ids)), part_size)):
            ids, part_texts = list(node_ids[start : start + part_size]), list(texts[start : start + part_size])
            path = writer.path(number, ids, part_texts)
            paths.append(path)
            if path.is_file() and not path.is_symlink():
                progress(len(ids))
            else:
                yield {"path": [path.name], "ids": ids, "texts": part_texts}

    for done in engine.map(writer, missing()):
        progress(int(np.asarray(done["count"])[0]))
    return [WrittenPart(path, has_vectors=writer.encoder is not None) for path in paths]


def read_words(texts: Sequence[str], language: str) -> dict[str, npt.NDArray[Any]]:
    """Read the words of ``n`` texts: arrays as in :class:`~graphrerank.graphs.WordIndex`, named by :data:`WORDS`.

    ``stem.seen [V]`` are the stems in the order in which they first occur.
    """
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
        "stem.seen": rank,
        "stem.ptr": np.searchsorted(holder, np.arange(len(texts) + 1)),
        "stem.stems": stem.astype(np.int32),
        "stem.in_lead": in_lead,
    }


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


def write_texts(writer: ColumnWriter, parts: Sequence[WrittenPart]) -> int:
    """Write the columns of ids, texts and words from all parts, in order; return the number of tokens."""
    write = writer.write
    for name, kind in (("id", "node_ids"), ("text", "texts")):
        write(f"{kind}.content", "|u1", _each(parts, f"{name}.content"))
        write(f"{kind}.offsets", "<i8", _running(parts, f"{name}.offsets"))
    write("node_ids.hashes", "<i8", (hash_strings(part.strings("id")) for part in parts))
    words, ranks = _vocabulary(parts, "token.words")
    writer.write_strings("token.words", PackedStrings.of_encoded(words))
    count = np.zeros(len(words), dtype=np.int64)
    for part, rank in zip(parts, ranks, strict=True):
        count[rank] += np.diff(part.array("token.ptr"))
    ptr = np.cumsum([0, *count])
    write("token.ptr", "<i8", [ptr])
    write("token.postings", "<i4", _postings(parts, ranks, ptr), (2,))
    write("token.lengths", "<i4", _each(parts, "token.lengths"))
    words, ranks = _vocabulary(parts, "stem.words")
    writer.write_strings("stem.words", PackedStrings.of_encoded(words))
    write("stem.ptr", "<i8", _running(parts, "stem.ptr"))
    write("stem.stems", "<i4", (rank[part.array("stem.stems")] for part, rank in zip(parts, ranks, strict=True)))
    write("stem.in_lead", "|b1", _each(parts, "stem.in_lead"))
    texts_with, order, num_seen = np.zeros(len(words), dtype=np.int64), np.full(len(words), -1), 0
    for part, rank in zip(parts, ranks, strict=True):
        texts_with += np.bincount(rank[part.array("stem.stems")], minlength=len(words))
        seen = rank[part.array("stem.seen")]
        new = seen[order[seen] < 0]
        order[new] = np.arange(num_seen, num_seen + len(new))
        num_seen += len(new)
    write("stem.texts_with", "<i8", [texts_with])
    write("stem.order", "<i4", [order])
    return sum(int(part.array("token.lengths").sum(dtype=np.int64)) for part in parts)


def _each(parts: Sequence[WrittenPart], name: str) -> Iterator[Array]:
    return (part.array(name) for part in parts)


def _running(parts: Sequence[WrittenPart], name: str) -> Iterator[Integers]:
    """Join the parts' offsets."""
    total = 0
    yield np.zeros(1, dtype=np.int64)
    for part in parts:
        offsets = part.array(name)
        yield offsets[1:] + total
        total += int(offsets[-1])


def _postings(parts: Sequence[WrittenPart], ranks: Sequence[Integers], ptr: Integers) -> Iterator[Array]:
    """Join the parts' postings token by token: (text, count), in blocks of tokens."""
    starts = np.cumsum([0, *map(len, parts)])
    limits = np.searchsorted(ptr, np.arange(0, ptr[-1] + BLOCK_POSTINGS, BLOCK_POSTINGS))
    for start, stop in pairwise(np.unique(np.append(limits, len(ptr) - 1)).tolist()):
        tokens, rows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.int32)]
        for part, rank, first in zip(parts, ranks, starts, strict=False):
            low, high = np.searchsorted(rank, (start, stop))
            local = part.array("token.ptr")[low : high + 1]
            held = slice(int(local[0]), int(local[-1]))
            tokens.append(np.repeat(rank[low:high], np.diff(local)))
            rows.append(np.stack([part.array("token.texts")[held] + first, part.array("token.counts")[held]], 1))
        yield np.concatenate(rows)[np.argsort(np.concatenate(tokens), kind="stable")]


def _vocabulary(parts: Sequence[WrittenPart], name: str) -> tuple[list[bytes], list[Integers]]:
    """Join the words of all parts, ascending by their bytes; return the place of each part's words too."""
    found: set[bytes] = set()
    for part in parts:
        found.update(_encoded(part, name))
    words = sorted(found)
    place = {word: rank for rank, word in enumerate(words)}
    return words, [np.array([place[word] for word in _encoded(part, name)], dtype=np.int64) for part in parts]


def _encoded(part: WrittenPart, name: str) -> list[bytes]:
    content = part.array(f"{name}.content").tobytes()
    return [content[start:stop] for start, stop in pairwise(part.array(f"{name}.offsets").tolist())]
