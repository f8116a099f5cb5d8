"""Words of texts that are read in parts, against those of all texts read at once."""

from pathlib import Path

import numpy as np
import torch

from graphrerank.corpus import PackedStrings
from graphrerank.corpus_store.graph_columns import string_columns
from graphrerank.corpus_store.opening import Columns, ColumnWriter
from graphrerank.corpus_store.word_columns import hash_strings, merge_vocabularies, read_words, write_texts
from graphrerank.utils.tensor_files import save_tensors

TEXTS = ["The red car.", "", "A car, a bus and a car!", "Red buses run.", "écluse"]


def write_part(path: Path, texts: list[str], first: int) -> Path:
    ids = [f"d{number}" for number in range(first, first + len(texts))]
    arrays = string_columns("id", PackedStrings.of(ids)) | string_columns("text", PackedStrings.of(texts))
    arrays |= read_words(texts, "english")
    save_tensors(path, {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return path


def test_vocabularies_are_merged_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    parts = [write_part(tmp_path / "0", ["bus dog"], 0), write_part(tmp_path / "1", ["cat bus"], 1)]
    vocabulary = merge_vocabularies(parts, "token.words")
    assert vocabulary.words == sorted(vocabulary.words)
    texts = [[vocabulary.words[number].decode() for number in numbers] for numbers in vocabulary.numbers]
    assert texts == [["bus", "dog"], ["bus", "cat"]]


def test_parts_give_the_columns_of_the_whole(tmp_path: Path) -> None:
    whole, divided = (ColumnWriter(tmp_path / name, {}) for name in ("whole", "divided"))
    parts = [write_part(tmp_path / f"part{start}", TEXTS[start : start + 2], start) for start in (0, 2, 4)]
    num_tokens = write_texts(whole, [write_part(tmp_path / "all", TEXTS, 0)])
    assert write_texts(divided, parts) == num_tokens
    assert whole.entries == divided.entries  # names, sizes and hashes
    columns = Columns(whole.folder, whole.entries)
    assert columns.array("token.lengths", "<i4").sum() == num_tokens
    assert columns.array("node_ids.hashes", "<i8").tolist() == hash_strings([f"d{n}" for n in range(5)]).tolist()
