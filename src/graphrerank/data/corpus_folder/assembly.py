"""From the parts of a corpus to its columns: one pass over the parts for each, in bounded memory."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Array, Column, write_column
from graphrerank.data.corpus_folder.node_numbers import hash_strings
from graphrerank.data.corpus_folder.parts import Part, WrittenPart
from graphrerank.graphs import EntityIncidence, PackedStrings

BLOCK_POSTINGS = 1 << 23  # sorted at once, 64 MiB of keys

Integers = npt.NDArray[np.int64]


class Assembly:
    """The columns of a corpus from its parts.

    Args:
        parts: All parts, written, in order.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [WrittenPart(part) for part in parts]
        self._start = np.cumsum([0, *map(len, self._parts)])

    def write(self, folder: Path) -> dict[str, Column]:
        """Write the columns of ids, texts, words and vectors; return the manifest's entries."""
        write = partial(write_column, folder)
        columns = {}
        for name, kind in (("id", "node_ids"), ("text", "texts")):
            columns[f"{kind}.content"] = write(f"{kind}.content", "|u1", (), self._each(f"{name}.content"))
            columns[f"{kind}.offsets"] = write(f"{kind}.offsets", "<i8", (), self._running(f"{name}.offsets"))
        for name, vocabulary in (("token.words", self._tokens), ("stem.words", self._stems)):
            columns |= write_strings(folder, name, vocabulary.words)
        columns["token.ptr"] = write("token.ptr", "<i8", (), [self._token_ptr])
        columns["token.postings"] = write("token.postings", "<i4", (2,), self._postings())
        columns["token.lengths"] = write("token.lengths", "<i4", (), self._each("token.lengths"))
        columns["stem.ptr"] = write("stem.ptr", "<i8", (), self._running("stem.ptr"))
        columns["stem.stems"] = write("stem.stems", "<i4", (), self._text_stems())
        columns["stem.in_lead"] = write("stem.in_lead", "|b1", (), self._each("stem.in_lead"))
        columns["stem.texts_with"] = write("stem.texts_with", "<i8", (), [self._texts_with()])
        columns["stem.order"] = write("stem.order", "<i4", (), [self._order_of_stems()])
        hashes = np.concatenate([hash_strings(part.strings("id")) for part in self._parts])
        by_hash = np.argsort(hashes, kind="stable")
        columns["node_ids.hashes"] = write("node_ids.hashes", "<i8", (), [hashes[by_hash]])
        columns["node_ids.by_hash"] = write("node_ids.by_hash", "<i8", (), [by_hash])
        return columns

    def write_vectors(self, folder: Path, dtype: str) -> dict[str, Column]:
        """Write the column of vectors; return the manifest's entry."""
        shape = self._parts[0].array("vectors").shape[1:]
        return {"vectors": write_column(folder, "vectors", dtype, shape, self._each("vectors"))}

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts, repeats included."""
        return sum(int(part.array("token.lengths").sum(dtype=np.int64)) for part in self._parts)

    def _each(self, name: str) -> Iterator[Array]:
        return (part.array(name) for part in self._parts)

    def _running(self, name: str) -> Iterator[Integers]:
        """Join the parts' offsets."""
        total = 0
        yield np.zeros(1, dtype=np.int64)
        for part in self._parts:
            offsets = part.array(name)
            yield offsets[1:] + total
            total += int(offsets[-1])

    @cached_property
    def _tokens(self) -> "_Vocabulary":
        return _Vocabulary(self._parts, "token.words")

    @cached_property
    def _stems(self) -> "_Vocabulary":
        return _Vocabulary(self._parts, "stem.words")

    @cached_property
    def _token_ptr(self) -> Integers:
        count = np.zeros(len(self._tokens.words), dtype=np.int64)
        for part, rank in zip(self._parts, self._tokens.ranks, strict=True):
            count[rank] += np.diff(part.array("token.ptr"))
        return np.cumsum([0, *count])

    def _postings(self) -> Iterator[Array]:
        """Join the parts' postings token by token: (text, count), in blocks of tokens."""
        ptr = self._token_ptr
        limits = np.searchsorted(ptr, np.arange(0, ptr[-1] + BLOCK_POSTINGS, BLOCK_POSTINGS))
        for start, stop in pairwise(np.unique(np.append(limits, len(ptr) - 1)).tolist()):
            tokens, rows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.int32)]
            for part, rank, first in zip(self._parts, self._tokens.ranks, self._start, strict=False):
                low, high = np.searchsorted(rank, (start, stop))
                local = part.array("token.ptr")[low : high + 1]
                held = slice(int(local[0]), int(local[-1]))
                tokens.append(np.repeat(rank[low:high], np.diff(local)))
                rows.append(np.stack([part.array("token.texts")[held] + first, part.array("token.counts")[held]], 1))
            yield np.concatenate(rows)[np.argsort(np.concatenate(tokens), kind="stable")]

    def _text_stems(self) -> Iterator[Integers]:
        for part, rank in zip(self._parts, self._stems.ranks, strict=True):
            yield rank[part.array("stem.stems")]

    def _texts_with(self) -> Integers:
        """Count the texts that hold each stem."""
        count = np.zeros(len(self._stems.words), dtype=np.int64)
        for stems in self._text_stems():
            count += np.bincount(stems, minlength=len(count))
        return count

    def _order_of_stems(self) -> Integers:
        """Number the stems by first appearance."""
        number = np.full(len(self._stems.words), -1)
        count = 0
        for part, rank in zip(self._parts, self._stems.ranks, strict=True):
            seen = rank[part.array("stem.seen")]
            new = seen[number[seen] < 0]
            number[new] = np.arange(count, count + len(new))
            count += len(new)
        return number


class _Vocabulary:
    """The words of all parts.

    Attributes:
        words: Ascending by their bytes.
        ranks: For each part the place in ``words`` of each of its words, ascending.
    """

    def __init__(self, parts: Sequence[WrittenPart], name: str) -> None:
        found: set[bytes] = set()
        for part in parts:
            found.update(_encoded(part, name))
        self.words = sorted(found)
        place = {word: rank for rank, word in enumerate(self.words)}
        self.ranks = [np.array([place[word] for word in _encoded(part, name)], dtype=np.int64) for part in parts]


def write_strings(folder: Path, name: str, encoded: Sequence[bytes]) -> dict[str, Column]:
    """Write two columns for strings in UTF-8; return the manifest's entries."""
    packed = PackedStrings.of_encoded(encoded)
    return {
        f"{name}.offsets": write_column(folder, f"{name}.offsets", "<i8", (), [packed.offsets]),
        f"{name}.content": write_column(folder, f"{name}.content", "|u1", (), [packed.content]),
    }


def _encoded(part: WrittenPart, name: str) -> list[bytes]:
    content = part.array(f"{name}.content").tobytes()
    return [content[start:stop] for start, stop in pairwise(part.array(f"{name}.offsets").tolist())]


def write_tensor(folder: Path, name: str, dtype: str, tensor: Tensor, *, block_rows: int = 1 << 20) -> Column:
    """Write a tensor as a column."""
    blocks = (tensor[start : start + block_rows].cpu().numpy() for start in range(0, len(tensor), block_rows))
    return write_column(folder, name, dtype, tuple(tensor.shape[1:]), blocks)


def write_incidence(folder: Path, name: str, entities: EntityIncidence) -> dict[str, Column]:
    """Write which passage holds which entity, and the reverse; return the manifest's entries."""
    tensors = {
        "indptr": entities.indptr,
        "indices": entities.indices,
        "sizes": entities.sizes,
        "holder_ptr": entities.holder_ptr,
        "holders": entities.holders,
    }
    strings = write_strings(folder, f"{name}.names", encoded(entities.names))
    return strings | {f"{name}.{key}": write_tensor(folder, f"{name}.{key}", "<i8", t) for key, t in tensors.items()}


def encoded(strings: Sequence[str]) -> list[bytes]:
    """Encode strings in UTF-8, lone surrogates included."""
    return [string.encode("utf-8", "surrogatepass") for string in strings]
