from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from graphrerank.text import TransformersTokenizer, WordTokenizer, count_tokens


@pytest.fixture
def word_pieces(tmp_path: Path) -> Path:
    """A tokenizer's folder, which cuts at 3 tokens if it is let."""
    backend = Backend(WordPiece({"[UNK]": 0, "me": 1, "##tz": 2, "fell": 3, ".": 4}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.enable_truncation(3)
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]").save_pretrained(tmp_path)
    return tmp_path


def test_tokens_of_a_local_folder_are_never_cut(word_pieces: Path) -> None:
    tokenizer = TransformersTokenizer(word_pieces)
    text = "metz fell. metz"
    spans = tokenizer.spans([text, ""])
    assert [[text[start:stop] for start, stop in row] for row in spans] == [["me", "tz", "fell", ".", "me", "tz"], []]
    assert count_tokens(tokenizer, [text, ""]) == [6, 0]
    assert tokenizer.spans([]) == []


def test_fingerprint_follows_the_files(word_pieces: Path) -> None:
    before = TransformersTokenizer(word_pieces).fingerprint
    assert TransformersTokenizer(word_pieces).fingerprint == before != WordTokenizer().fingerprint
    file = word_pieces / "tokenizer.json"
    file.write_text(file.read_text().replace('"fell"', '"rose"'))
    assert TransformersTokenizer(word_pieces).fingerprint != before


def test_no_such_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer `model` must be a local folder or a reachable hub id, got "):
        TransformersTokenizer(tmp_path / "none").spans(["a"])
