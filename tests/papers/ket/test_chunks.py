import itertools
import random

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from graphrerank.text import TransformersTokenizer, WordTokenizer, count_tokens
from graphrerank_papers.ket.chunks import Chunks, TokenStream


def words_of(rng: random.Random, lengths: list[int]) -> list[str]:
    count = itertools.count()
    return [" ".join(f"w{next(count)}" for _ in range(length)) for length in lengths]


def documents_of(chunks: Chunks) -> list[list[int]]:
    return [chunks.documents[chunks.indptr[i] : chunks.indptr[i + 1]].tolist() for i in range(len(chunks))]


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("num_splits", [0, 1, 3])
def test_against_naive_loop(join: bool, num_splits: int) -> None:
    rng = random.Random(0)
    texts = words_of(rng, [7, 0, 1, 30, 12, 0, 3])
    chunks = TokenStream(texts, WordTokenizer()).cut(10, join=join, num_splits=num_splits)
    where = {word: number for number, text in enumerate(texts) for word in text.split()}
    regions = [[word for text in texts for word in text.split()]] if join else [text.split() for text in texts]
    parents = [region[i : i + 10] for region in regions for i in range(0, len(region), 10)]
    pieces = [(number, words) for number, words in enumerate(parents)]
    for _ in range(num_splits):
        pieces = [
            (number, half)
            for number, words in pieces
            for half in (words[: (len(words) + 1) // 2], words[(len(words) + 1) // 2 :])
            if half
        ]
    assert [text.split() for text in chunks.texts] == [words for _, words in pieces]
    assert chunks.parent.tolist() == [number for number, _ in pieces]
    assert documents_of(chunks) == [sorted({where[word] for word in words}) for _, words in pieces]


def test_equal_halves() -> None:
    chunks = TokenStream(words_of(random.Random(0), [64, 64]), WordTokenizer()).cut(32, num_splits=3)
    assert len(chunks) == 8 * 4
    assert set(count_tokens(WordTokenizer(), chunks.texts)) == {4}


@pytest.mark.parametrize("texts", [[], [""], ["", "  "]])
@pytest.mark.parametrize("join", [True, False])
def test_nothing_to_cut(texts: list[str], join: bool) -> None:
    chunks = TokenStream(texts, WordTokenizer()).cut(5, join=join)
    assert (list(chunks.texts), chunks.indptr.tolist(), chunks.documents.tolist()) == ([], [0], [])


def test_a_character_of_several_tokens_stays_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    backend = Backend(BPE({character: number for number, character in enumerate(ByteLevel.alphabet())}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    chunks = TokenStream(["aéüz", "ö"], TransformersTokenizer(folder)).cut(1)
    assert "".join(text for text in chunks.texts).replace("\n", "") == "aéüzö"
    assert documents_of(chunks) == [[0], [0], [0], [0], [1]]
