"""The parts of a corpus in preparation: what is read and encoded of some thousand passages, one file each.

A part's name holds the hash of its passages and settings, so that a stopped preparation finds the parts that it wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.data.text_match import distinct_keys
from graphrerank.files import load_tensors, save_tensors
from graphrerank.graphs import PackedStrings
from graphrerank.text import WordTable
from graphrerank.text.word_table import first_of_equals

FORMAT = 1  # raise it when the same passages would give other parts
WORDS = (
    *("token.words.offsets", "token.words.content", "token.ptr", "token.texts", "token.counts", "token.lengths"),
    *("stem.words.offsets", "stem.words.content", "stem.seen", "stem.ptr", "stem.stems", "stem.in_lead"),
)
STRINGS = ("id.offsets", "id.content", "text.offsets", "text.content")

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A part on disk: its file, and the names of the arrays in it."""

    path: Path
    names: tuple[str, ...]


def write_part(
    folder: Path,
    number: int,
    node_ids: Sequence[str],
    texts: Sequence[str],
    *,
    encoder: Encoder | None,
    dtype: torch.dtype,
) -> Part:
    """Write a part of a corpus, unless it is there.

    Args:
        folder: Folder of the parts.
        number: Its number.
        node_ids: Ids of its passages.
        texts: Their texts.
        encoder: Encodes them; None for no vectors.
        dtype: Type of the vectors' numbers.
    """
    settings = [str(FORMAT), "" if encoder is None else encoder.fingerprint, str(dtype)]
    key = hash_texts(settings) + hash_texts(node_ids) + hash_texts(texts)
    names = (*STRINGS, *WORDS, *(() if encoder is None else ("vectors",)))
    part = Part(folder / f"{number:06d}-{short_hash(key)}.safetensors", names)
    if part.path.is_file():
        return part
    arrays = {
        **_columns("id", PackedStrings.of(node_ids)),
        **_columns("text", PackedStrings.of(texts)),
        **read_words(texts),
    }
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    if encoder is not None:
        tensors["vectors"] = check_vectors(encoder.encode(texts), len(texts), encoder.name).to(dtype)
    save_tensors(part.path, tensors)
    return part


class WrittenPart:
    """A part on disk, mapped.

    Raises:
        ValueError: If its file is damaged, naming it.
    """

    def __init__(self, part: Part) -> None:
        self._tensors = load_tensors(part.path, part.names)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return one of its arrays."""
        return self._tensors[name].numpy()

    def strings(self, name: str) -> PackedStrings:
        """Return one of its lists of strings."""
        return PackedStrings(self.array(f"{name}.offsets"), self.array(f"{name}.content"))

    def __len__(self) -> int:
        return len(self._tensors["token.lengths"])


def read_words(texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Read the words of ``n`` texts: arrays as in :class:`~graphrerank.graphs.WordIndex`, named by :data:`WORDS`.

    ``stem.seen [V]`` are the stems in the order in which they first occur.
    """
    table, size = WordTable(), max(1, len(texts))
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
