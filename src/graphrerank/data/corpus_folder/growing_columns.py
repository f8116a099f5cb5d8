"""The columns of a corpus folder while rows are appended to them; they count when the manifest is written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Array, Column, Columns, append_rows, file_column
from graphrerank.data.corpus_folder.parts import read_words
from graphrerank.graphs import PackedStrings, WordIndex
from graphrerank.graphs.vector_index import StoredIndex

Integers = npt.NDArray[np.int64]


class GrowingColumns:
    """Columns that are appended to.

    Args:
        old: The columns as the manifest describes them.
        names: Of all of them.
        index: Of the vectors, if there is one.
    """

    def __init__(self, old: Columns, names: Sequence[str], index: StoredIndex | None = None) -> None:
        self.folder: Path = old.folder
        self.old = old
        self.index = index
        self.entries: dict[str, Column] = {name: old.entry(name) for name in names}

    def append(self, name: str, rows: Array) -> None:
        """Append rows to a column."""
        self.entries[name] = append_rows(self.folder, name, self.entries[name], rows)

    def append_strings(self, name: str, strings: PackedStrings) -> None:
        """Append strings to the two columns of a list of them."""
        self.append_running(f"{name}.offsets", strings.offsets)
        self.append(f"{name}.content", strings.content)

    def append_running(self, name: str, offsets: Integers) -> None:
        """Append offsets from 0, which go on from the last one."""
        last = self.old.array(name, "<i8")[-1]
        self.append(name, offsets[1:] + last)

    def append_vectors(self, vectors: Tensor) -> None:
        """Append vectors, and write the index of those that were added anew, under another name."""
        self.append("vectors", vectors.numpy())
        if self.index is None:
            return
        number = 0
        if (added := self.index.added) is not None:
            number = int(added.suffix[1:])
            del self.entries[added.name]
        path, last = (self.index.path.with_name(f"{self.index.path.name}.{of}") for of in (number + 1, number - 1))
        entry = self.entries["vectors"]
        columns = Columns(self.folder, {"vectors": entry.to_json()})
        self.index.write_added(path, columns.tensor("vectors", entry.dtype, entry.shape[1:]))
        self.entries[path.name] = file_column(path)
        last.unlink(missing_ok=True)  # who opens the folder now may still read the one between

    def append_texts(self, node_ids: Sequence[str], texts: Sequence[str], index: WordIndex, language: str) -> None:
        """Append ids, texts and their words, which follow those of an index."""
        if not node_ids:
            return
        words = read_words(texts, language)
        self.append_strings("node_ids", PackedStrings.of(node_ids))
        self.append_strings("texts", PackedStrings.of(texts))
        self._append_tokens(words, index)
        self._append_stems(words, index)

    def _append_tokens(self, words: Mapping[str, Array], index: WordIndex) -> None:
        tokens = _strings(words, "token.words")
        numbers, new = _numbered(tokens, index.tokens.words, range(len(tokens)))
        self.append_strings("token.words", PackedStrings.of(new))
        by_text = np.argsort(words["token.texts"], kind="stable")
        token = np.repeat(numbers, np.diff(words["token.ptr"]))[by_text]
        lengths = words["token.lengths"]
        ptr = np.searchsorted(words["token.texts"][by_text], np.arange(len(lengths) + 1))
        self.append_running("added.ptr", ptr)
        self.append("added.tokens", token)
        self.append("added.counts", words["token.counts"][by_text])
        self.append("token.lengths", lengths)

    def _append_stems(self, words: Mapping[str, Array], index: WordIndex) -> None:
        stems = _strings(words, "stem.words")
        numbers, new = _numbered(stems, index.stems.words, words["stem.seen"].tolist())
        count = len(index.stems.words)
        self.append_strings("stem.words", PackedStrings.of(new))
        self.append("stem.texts_with", np.zeros(len(new), dtype=np.int64))  # of prepared texts
        self.append("stem.order", np.arange(count, count + len(new)))
        self.append_running("stem.ptr", words["stem.ptr"])
        held = numbers[words["stem.stems"]]
        order = np.lexsort((held, np.repeat(np.arange(len(words["stem.ptr"]) - 1), np.diff(words["stem.ptr"]))))
        self.append("stem.stems", held[order])
        self.append("stem.in_lead", words["stem.in_lead"][order])


def _strings(words: Mapping[str, Array], name: str) -> PackedStrings:
    return PackedStrings(words[f"{name}.offsets"], words[f"{name}.content"])


def _numbered(words: Sequence[str], vocabulary: Any, order: Sequence[int]) -> tuple[Integers, list[str]]:
    """Number words, of which new ones follow those of the vocabulary in some order; return the new ones too."""
    numbers = np.empty(len(words), dtype=np.int64)
    new: list[str] = []
    for place in order:
        number = vocabulary.rank(words[place])
        if number < 0:
            number = len(vocabulary) + len(new)
            new.append(words[place])
        numbers[place] = number
    return numbers, new
