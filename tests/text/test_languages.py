"""Words match by the language of the text, shown on a German and a Japanese corpus; English stays as it was."""

# ruff: noqa: RUF001 - texts of other scripts
from pathlib import Path

import bm25s
import pytest
import torch
from Stemmer import Stemmer

from graphrerank import GraphReranker
from graphrerank.data.dataset import Dataset
from graphrerank.features.text_match import TextMatch
from graphrerank.features.word_table import WordTable
from graphrerank.operators.bm25 import BM25, lexical_index
from graphrerank.text import split_sentences, words
from graphrerank.text.languages import detect_language, language_of
from graphrerank_papers.knowledge.keywords import find_keywords
from tests.support.folders import write_dataset

GERMAN = [
    "Die Häuser der Stadt stehen an dem Fluss, und die Brücken sind nicht alt.",
    "Ein Haus ist in dem Dorf, das an der Grenze liegt.",
    "Der Wald ist groß, und die Wege sind für alle, die gern zu Fuß gehen.",
    "Das Meer ist nicht weit von der Stadt, aber die Straße ist lang.",
]
JAPANESE = ["東京タワーは高い建物です。", "京都の寺は古いです。", "大阪の食べ物は美味しいです。"]
ENGLISH = ["The houses of the town stand at the river, and bridges are old.", "A house is in the village.", "A wood."]


FRENCH = "Les maisons de la ville sont près du fleuve, et le pont est vieux, mais il tient dans les crues."
RUSSIAN = "Дома города стоят на берегу реки, и мосты не так стары, как он сам, но это не всё, что в нём есть"


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (GERMAN, "german"),
        (JAPANESE, "characters"),
        (ENGLISH * 3, "english"),
        ([FRENCH], "french"),
        ([RUSSIAN], "russian"),
        (["SELECT name FROM die WHERE der = 1"] * 30, "english"),  # one word alone is no language
        (["Haus"], "english"),
        ([], "english"),
    ],
)
def test_the_language_is_that_of_the_texts_where_it_is_sure(texts: list[str], language: str) -> None:
    assert detect_language(texts) == language


def test_english_is_unchanged() -> None:
    expected = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    expected.index(bm25s.tokenize(ENGLISH, stopwords="en", return_ids=False, show_progress=False), show_progress=False)
    (query,) = bm25s.tokenize(["bridges of the town"], stopwords="en", return_ids=False, show_progress=False)
    assert torch.equal(
        BM25(ENGLISH).score_all(["bridges of the town"])[0], torch.from_numpy(expected.get_scores(query))
    )
    assert words("Which houses?") == ["hous"]
    assert find_keywords("the houses of Metz") == ["houses", "metz"]


@pytest.mark.parametrize(
    ("language", "texts", "query", "relevant"),
    [("german", GERMAN, "Wo steht das Haus der Städte?", [0, 1, 3]), ("characters", JAPANESE, "古い寺", [1])],
)
def test_bm25_of_texts_of_postings_and_of_requests_agree(
    language: str, texts: list[str], query: str, relevant: list[int]
) -> None:
    scores = BM25(texts, language=language).score_all([query])[0]
    assert sorted(scores.nonzero().flatten().tolist()) == relevant
    read, asked = (table := WordTable(language)).read(texts), table.read([query])
    held = {(text, table.token_words[token]) for text, token in zip(read.text_of_token, read.tokens, strict=True)}
    assert held == {(row, token) for row, text in enumerate(texts) for token in language_of(language).tokens(text)}
    assert [table.token_words[token] for token in asked.tokens] == language_of(language).tokens(query)
    assert [table.stem_words[stem] for stem in asked.stems] == words(query, language)


def test_german_stems_against_snowball() -> None:
    plain = ["häuser", "städte", "wege"]
    assert language_of("german").tokens(" ".join(plain)) == Stemmer("german").stemWords(plain)
    assert words("Die Häuser", "german") == ["haus"]
    assert words("talojen", "finnish") == Stemmer("finnish").stemWords(["talojen"])  # without a list of stop words
    assert words("talojen", "none") == ["talojen"]


def test_a_german_folder_is_searched_and_matched_in_german(tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "deutsch",
        corpus=[{"_id": f"p{row}", "title": "", "text": text} for row, text in enumerate(GERMAN)],
        queries=[{"_id": "q", "text": "Häusern"}],
        test=[("q", "p1")],
    )
    dataset = Dataset.from_folder(folder)
    assert dataset.graph.passages.language == "german"
    assert dataset.summary().endswith(", language german")
    assert lexical_index(dataset.graph).score_all(["Häusern"])[0].nonzero().flatten().tolist() == [0, 1]
    edges, ptr = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 4])
    matched = TextMatch.of(dataset.graph).score(["Häusern"], torch.arange(4), edges, ptr)[:, 0]
    assert matched.tolist() == [1.0, 1.0, 0.0, 0.0]
    plain = Dataset.from_folder(folder, language="none")
    assert not lexical_index(plain.graph).score_all(["Häusern"]).any()
    assert plain.fingerprint != dataset.fingerprint
    with pytest.raises(ValueError, match=r"`language` must be auto or one of .* got 'klingon'"):
        Dataset.from_folder(folder, language="klingon")


def test_requests_are_matched_in_the_language_of_their_passages() -> None:
    reranker = GraphReranker.from_pretrained("attack")
    found = reranker.rerank("Häusern", GERMAN)
    assert {found.ids[0], found.ids[1]} == {0, 1}
    assert torch.equal(found.scores, reranker.rerank("Häusern", GERMAN, language="german").scores)
    assert not reranker.rerank("Häusern", GERMAN, language="english").scores.any()  # no word is shared


def test_sentences_and_keywords() -> None:
    text = "Am 3. Oktober kam Hr. Weiß mit Fr. Roth. Sie blieben."
    assert [text[slice(*span)] for span in split_sentences(text, "german")] == [text[:-13], "Sie blieben."]
    assert find_keywords("die Häuser der Stadt und die Stadt", "german") == ["häuser", "stadt"]
    assert find_keywords("東京タワー", "characters") == ["東京", "京タ", "タワ", "ワー"]
