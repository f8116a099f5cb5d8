"""The parts of a corpus in preparation: what is read and encoded of some thousand passages, one file each.

A part's name holds the hash of its passages and settings, so that a stopped preparation finds the parts that it wrote.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.features.text_match import distinct_keys
from graphrerank.features.word_table import WordTable, first_of_equals
from graphrerank.files import load_tensors, save_tensors
from graphrerank.graphs import PackedStrings
from graphrerank.text.languages import ENGLISH

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


class PartWriter:
    """Writes parts of a corpus, as the work of an engine.

    Args:
        folder: Folder of the parts.
        encoder: Encodes the passages; None for no vectors.
        dtype: Type of the vectors' numbers.
        language: Of the passages' words.
    """

    def __init__(self, folder: Path, *, encoder: Encoder | None, dtype: torch.dtype, language: str = ENGLISH) -> None:
        self.folder = folder
        self.encoder = encoder
        self.dtype = dtype
        self.language = language

    def part(self, number: int, node_ids: Sequence[str], texts: Sequence[str]) -> Part:
        """Name the part of some passages and its number among the parts."""
        settings = [str(FORMAT), "" if self.encoder is None else self.encoder.fingerprint, str(self.dtype)]
        settings += [] if self.language == ENGLISH else [self.language]
        key = hash_texts(settings) + hash_texts(node_ids) + hash_texts(texts)
        names = (*STRINGS, *WORDS, *(() if self.encoder is None else ("vectors",)))
        return Part(self.folder / f"{number:06d}-{short_hash(key)}.safetensors", names)

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


def write_parts(
    writer: PartWriter,
    node_ids: Sequence[str],
    texts: Sequence[str],
    *,
    part_size: int,
    engine: Engine = LOCAL,
    progress: Callable[[int], None] = lambda passages: None,
) -> list[Part]:
    """Write the parts of a corpus that are not there; return all in order."""
    parts: list[Part] = []

    def missing() -> Iterator[Block]:
        for number, start in enumerate(range(0, max(1, len(node_ids)), part_size)):
            ids, part_texts = list(node_ids[start : start + part_size]), list(texts[start : start + part_size])
            part = writer.part(number, ids, part_texts)
            parts.append(part)
            if part.path.is_file():
                progress(len(ids))
            else:
                yield {"path": [part.path.name], "ids": ids, "texts": part_texts}

    for done in engine.map(writer, missing()):
        progress(int(np.asarray(done["count"])[0]))
    return parts


class WrittenPart:
    """A part on disk; each array is mapped for as long as it is held, so that few pages are resident.

    Raises:
        ValueError: If its file is damaged, naming it.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._num_texts = len(self.array("token.lengths"))

    def array(self, name: str) -> npt.NDArray[Any]:
        """Map one of its arrays."""
        return load_tensors(self._part.path, self._part.names)[name].numpy()

    def strings(self, name: str) -> PackedStrings:
        """Return one of its lists of strings."""
        return PackedStrings(self.array(f"{name}.offsets"), self.array(f"{name}.content"))

    def __len__(self) -> int:
        return self._num_texts


class EncodedParts:
    """An encoder that knows the texts of a corpus, in their order: its vectors lie in the parts."""

    def __init__(self, encoder: Encoder, parts: Sequence[Part]) -> None:
        self.name = encoder.name
        self.fingerprint = encoder.fingerprint
        self._parts = parts

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Read the vectors of all texts, ``[N, d]`` float32."""
        vectors = torch.cat([torch.from_numpy(WrittenPart(part).array("vectors")) for part in self._parts]).float()
        return check_vectors(vectors, len(texts), self.name)


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
