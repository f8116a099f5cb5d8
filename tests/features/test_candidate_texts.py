import torch

from graphrerank.features.candidate_texts import CandidateTexts, matched_language
from graphrerank.features.text_match import TextMatch
from graphrerank.operators.bm25 import BM25

QUERY, FILMS = "director of Solaris born in", ["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome"]
BOTH_WAYS = torch.tensor([[0, 1], [1, 0]])


def test_against_bm25_and_text_match_of_a_corpus() -> None:
    texts = CandidateTexts(QUERY, FILMS)
    scores = BM25(FILMS).score_all([QUERY])[0]
    assert torch.equal(texts.bm25(), scores / scores.max())
    for with_words in (False, True):
        expected = TextMatch(FILMS).score(
            [QUERY], torch.arange(3), BOTH_WAYS, torch.tensor([0, 3]), with_words=with_words
        )
        assert torch.equal(texts.match(BOTH_WAYS, with_words=with_words), expected)


def test_no_passage_holds_a_word_of_the_query() -> None:
    texts = CandidateTexts("xyz", FILMS)
    assert texts.bm25().tolist() == [0, 0, 0]
    assert not texts.match(BOTH_WAYS, with_words=True).any()


def test_the_language_is_detected_unless_it_is_named() -> None:
    german = ["Der Hund und die Katze sind nicht im Haus, aber sie haben auch keinen Garten mit dem Nachbarn."] * 3
    assert matched_language(german, "auto") == "german"
    assert matched_language(german, "english") == "english"
    assert CandidateTexts("Häuser", german).match(BOTH_WAYS, with_words=False)[0, 0] == 1
    assert CandidateTexts("Häuser", german, "english").match(BOTH_WAYS, with_words=False)[0, 0] == 0
