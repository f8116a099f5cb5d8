"""Columns of a corpus folder for ids, texts and words.

The columns are merged from the shards of a preparation in bounded memory, with one pass over all shards per column.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphrerank.corpus import CorpusGraph, PackedStrings, Postings, TextStems, Vocabulary, WordIndex
from graphrerank.corpus_store.graph_columns import string_columns
from graphrerank.corpus_store.opening import Array, ColumnWriter
from graphrerank.features.text_match import distinct_keys
from graphrerank.features.word_table import WordTable, first_of_equals
from graphrerank.utils.tensor_files import map_tensors

BLOCK_POSTINGS = 1 << 23  # Number of postings sorted at once, 64 MiB of keys.
Integers = npt.NDArray[np.int64]


def part_array(folder: Path, name: str) -> Array:
    """Map an array of a shard.

    The array is mapped only while it is referenced, so that few pages are resident.

    Args:
        folder: File of the shard.
        name: Name of the array.

    Returns:
        The array.
    """
    return map_tensors(folder)[0][name].numpy()


def read_words(texts: Sequence[str], language: str) -> dict[str, npt.NDArray[Any]]:
    """Tokenise and stem texts.

    Args:
        texts: ``n`` texts.
        language: Language in which words are matched, a name in :mod:`~graphrerank.text.languages`.

    Returns:
        Arrays of :class:`~graphrerank.corpus.WordIndex` by the name of the column.
    """
    table, size = WordTable(language), max(1, len(texts))
    read = table.read(texts)
    tokens, rank = _ascending(table.token_words)
    key = np.sort(rank[read.tokens] * size + read.text_of_token)
    first = np.flatnonzero(first_of_equals(key))
    token, text = np.divmod(key[first], size)
    stems, rank = _ascending(table.stem_words)
    num_stems = max(1, len(stems))
    stem_keys, in_lead = distinct_keys(read.text_of_stem * num_stems + rank[read.stems], read.in_lead)
    holder, stem = np.divmod(stem_keys, num_stems)
    return {
        **string_columns("token.words", PackedStrings.of_encoded(tokens)),
        "token.ptr": np.searchsorted(token, np.arange(len(tokens) + 1)),
        "token.texts": text.astype(np.int32),
        "token.counts": np.diff(first, append=len(key)).astype(np.int32),
        "token.lengths": np.bincount(read.text_of_token, minlength=len(texts)).astype(np.int32),
        **string_columns("stem.words", PackedStrings.of_encoded(stems)),
        "stem.ptr": np.searchsorted(holder, np.arange(len(texts) + 1)),
        "stem.stems": stem.astype(np.int32),
        "stem.in_lead": in_lead,
    }


def with_words(graph: CorpusGraph) -> CorpusGraph:
    """Return a graph with the words of its texts, so that subgraphs do not have to tokenise them.

    Args:
        graph: Corpus graph. If it has words, it is returned unchanged.

    Returns:
        Graph with words.
    """
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
    """Return the encoded words sorted by their bytes, and the rank of each word."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    order = sorted(range(len(words)), key=encoded.__getitem__)
    rank = np.empty(len(words), dtype=np.int64)
    rank[order] = np.arange(len(words))
    return [encoded[index] for index in order], rank


def hash_strings(strings: Sequence[str]) -> Integers:
    """Hash strings to 64 bits.

    Args:
        strings: ``n`` strings.

    Returns:
        Hashes ``[n]`` int64.
    """
    digests = (blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest() for string in strings)
    return np.frombuffer(b"".join(digests), dtype="<i8")


def write_texts(writer: ColumnWriter, parts: Sequence[Path]) -> int:
    """Write the columns of ids, texts and words.

    Args:
        writer: Writer of the columns.
        parts: Files of all shards, in order.

    Returns:
        Number of tokens in all texts.
    """
    write_strings(writer, parts)
    write_tokens(writer, parts)
    write_stems(writer, parts)
    return sum(int(lengths.sum(dtype=np.int64)) for lengths in _arrays(parts, "token.lengths"))


def write_strings(writer: ColumnWriter, parts: Sequence[Path]) -> None:
    """Write ids, texts, and the hashes by which updates look up ids.

    Args:
        writer: Writer of the columns.
        parts: Files of all shards, in order.
    """
    for name, column in (("id", "node_ids"), ("text", "texts")):
        writer.write(f"{column}.content", "|u1", _arrays(parts, f"{name}.content"))
        writer.write(f"{column}.offsets", "<i8", _running(_arrays(parts, f"{name}.offsets")))
    ids = (PackedStrings(part_array(part, "id.offsets"), part_array(part, "id.content")) for part in parts)
    writer.write("node_ids.hashes", "<i8", map(hash_strings, ids))


def write_tokens(writer: ColumnWriter, parts: Sequence[Path]) -> None:
    """Write the postings of tokens, for BM25.

    Args:
        writer: Writer of the columns.
        parts: Files of all shards, in order.
    """
    vocabulary = merge_vocabularies(parts, "token.words")
    writer.write_arrays(string_columns("token.words", PackedStrings.of_encoded(vocabulary.words)))
    num_postings = np.zeros(len(vocabulary.words), dtype=np.int64)
    for part, numbers in zip(parts, vocabulary.numbers, strict=True):
        num_postings[numbers] += np.diff(part_array(part, "token.ptr"))
    ptr = np.cumsum([0, *num_postings])
    writer.write("token.ptr", "<i8", [ptr])
    writer.write("token.postings", "<i4", _postings(parts, vocabulary.numbers, ptr), (2,))
    writer.write("token.lengths", "<i4", _arrays(parts, "token.lengths"))


def write_stems(writer: ColumnWriter, parts: Sequence[Path]) -> None:
    """Write the stems of each text, and the number of texts that contain each stem.

    Args:
        writer: Writer of the columns.
        parts: Files of all shards, in order.
    """
    vocabulary = merge_vocabularies(parts, "stem.words")
    writer.write_arrays(string_columns("stem.words", PackedStrings.of_encoded(vocabulary.words)))
    writer.write("stem.ptr", "<i8", _running(_arrays(parts, "stem.ptr")))
    numbered_parts = list(zip(parts, vocabulary.numbers, strict=True))
    writer.write("stem.stems", "<i4", (numbers[part_array(part, "stem.stems")] for part, numbers in numbered_parts))
    writer.write("stem.in_lead", "|b1", _arrays(parts, "stem.in_lead"))
    texts_with = np.zeros(len(vocabulary.words), dtype=np.int64)
    for part, numbers in numbered_parts:
        texts_with += np.bincount(numbers[part_array(part, "stem.stems")], minlength=len(texts_with))
    writer.write("stem.texts_with", "<i8", [texts_with])


def _arrays(parts: Sequence[Path], name: str) -> Iterator[Array]:
    """Map an array of each shard in turn."""
    return (part_array(part, name) for part in parts)


def _running(parts: Iterable[Array]) -> Iterator[Integers]:
    """Concatenate the offsets of the shards."""
    total = 0
    yield np.zeros(1, dtype=np.int64)
    for offsets in parts:
        yield offsets[1:] + total
        total += int(offsets[-1])


def _postings(parts: Sequence[Path], ranks: Sequence[Integers], ptr: Integers) -> Iterator[Array]:
    """Merge the postings (text, count) of the shards by token, and yield them in blocks of tokens."""
    starts = np.cumsum([0, *(len(part_array(part, "token.lengths")) for part in parts)])
    limits = np.searchsorted(ptr, np.arange(0, ptr[-1] + BLOCK_POSTINGS, BLOCK_POSTINGS))
    for start, stop in pairwise(np.unique(np.append(limits, len(ptr) - 1)).tolist()):
        tokens, rows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.int32)]
        for part, rank, first in zip(parts, ranks, starts, strict=False):
            low, high = np.searchsorted(rank, (start, stop))
            ptr_of_part = part_array(part, "token.ptr")[low : high + 1]
            postings = slice(int(ptr_of_part[0]), int(ptr_of_part[-1]))
            tokens.append(np.repeat(rank[low:high], np.diff(ptr_of_part)))
            texts = part_array(part, "token.texts")[postings] + first
            rows.append(np.stack([texts, part_array(part, "token.counts")[postings]], 1))
        yield np.concatenate(rows)[np.argsort(np.concatenate(tokens), kind="stable")]


class MergedVocabulary(NamedTuple):
    """Words of all shards.

    Attributes:
        words: Distinct words, encoded and sorted by their bytes.
        numbers: For each shard, the index of each of its words in ``words``.
    """

    words: list[bytes]
    numbers: list[Integers]


def merge_vocabularies(parts: Sequence[Path], name: str) -> MergedVocabulary:
    """Merge the sorted words of all shards.

    Args:
        parts: Files of all shards, in order.
        name: ``token.words`` or ``stem.words``.

    Returns:
        Vocabulary of all shards.
    """
    words = sorted(set[bytes]().union(*(_part_words(part, name) for part in parts)))
    number_of = {word: number for number, word in enumerate(words)}
    numbers = [np.array([number_of[word] for word in _part_words(part, name)], dtype=np.int64) for part in parts]
    return MergedVocabulary(words, numbers)


def _part_words(part: Path, name: str) -> Iterator[bytes]:
    content = part_array(part, f"{name}.content").tobytes()
    return (content[start:stop] for start, stop in pairwise(part_array(part, f"{name}.offsets").tolist()))
