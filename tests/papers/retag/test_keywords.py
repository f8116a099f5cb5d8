import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.keywords import ExtractiveKeywords, GeneratedKeywords, SummarySentences

GENERAL, PLACES, PEOPLE, BOTH = ([True, False, False], [False, True, False], [False, False, True], [False, True, True])


def naive(index: ReTAGIndex, encoder: Any, question: str, *, num_sentences: int) -> list[str]:
    """Weigh the words of the nearest sentences, one after the other."""
    texts = list(index.sentences.texts)
    cosines = (encoder.encode(texts) @ encoder.encode([question])[0]).tolist()
    nearest = sorted(range(len(texts)), key=lambda i: -cosines[i])[:num_sentences]
    order = list(dict.fromkeys(word for text in texts for word in find_keywords(text)))
    weights = {}
    for word in order:
        holders = sum(word in find_keywords(text) for text in texts)
        idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
        shares = [max(0.0, cosines[i]) for i in nearest if word in find_keywords(texts[i])]
        if sum(shares) and word not in find_keywords(question):
            weights[word] = idf * sum(shares)
    return sorted(weights, key=lambda word: (-round(weights[word], 5), order.index(word)))


@pytest.mark.parametrize("question", ["Who loved Lothair?", "Which cities lie at rivers?", "Trier"])
def test_against_naive_loop(question: str, retag_index: ReTAGIndex, word_encoder: Any) -> None:
    sentences = SummarySentences(retag_index, word_encoder)
    finder = ExtractiveKeywords(sentences, retag_index.topics, num_keywords=100, num_sentences=3, num_terms=0)
    (found,) = finder.find(word_encoder.queries([question]), torch.tensor([GENERAL]))
    expected = naive(retag_index, word_encoder, question, num_sentences=3)
    assert found == expected
    short = ExtractiveKeywords(sentences, retag_index.topics, num_keywords=2, num_sentences=3, num_terms=0)
    assert short.find(word_encoder.queries([question]), torch.tensor([GENERAL])) == [expected[:2]]


def test_terms_of_the_topics_come_first_and_in_turns(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    finder = ExtractiveKeywords(
        SummarySentences(retag_index, word_encoder), retag_index.topics, num_keywords=5, num_terms=3
    )
    queries = word_encoder.queries(["Trier"] * 4 + ["The river Rhine"])
    found = finder.find(queries, torch.tensor([GENERAL, PLACES, PEOPLE, BOTH, PLACES]))
    assert found[0][0] == "verdun"
    assert found[1][:2] == ["city", "river"]
    assert found[2][:2] == ["king", "loved"]
    assert found[3][:3] == ["city", "king", "river"]
    assert found[4][0] == "city"
    assert "river" not in found[4]
    assert all(len(words) == len(set(words)) <= 5 for words in found)


def test_a_batch_equals_single_questions(retag_index: ReTAGIndex, word_encoder: Any) -> None:
    finder = ExtractiveKeywords(SummarySentences(retag_index, word_encoder), retag_index.topics)
    texts, graphs = ["Who loved Lothair?", "Trier", " "], torch.tensor([PEOPLE, GENERAL, PLACES])
    together = finder.find(word_encoder.queries(texts), graphs)
    alone = [finder.find(word_encoder.queries([text]), graphs[i : i + 1])[0] for i, text in enumerate(texts)]
    assert together == alone
    assert together[2] == []


def test_an_empty_index_has_terms_alone(empty_retag_index: ReTAGIndex, word_encoder: Any) -> None:
    finder = ExtractiveKeywords(SummarySentences(empty_retag_index, word_encoder), empty_retag_index.topics)
    queries = word_encoder.queries(["Trier", "Trier"])
    assert finder.find(queries, torch.tensor([GENERAL, PLACES])) == [[], ["city", "river"]]


def test_a_language_model_is_told_the_topics(
    retag_index: ReTAGIndex, word_encoder: Any, scripted_model: Callable[..., Any]
) -> None:
    model = scripted_model(lambda system, question: {"keywords": ["a", "b"]})
    finder = GeneratedKeywords(model, retag_index.topics, description="Old stories.")
    found = finder.find(word_encoder.queries(["Who?", "", "Where?"]), torch.tensor([BOTH, PLACES, GENERAL]))
    assert found == [["a", "b"], [], ["a", "b"]]
    assert [question for _, question in model.asked] == [
        "Collection: Old stories. Searched in: cities and rivers (city, river); kings who loved (king, loved)\n"
        "Question: Who?",
        "Collection: Old stories. Searched in: the whole collection\nQuestion: Where?",
    ]


@pytest.mark.parametrize("settings", [{"num_keywords": 0}, {"num_sentences": 0}, {"num_terms": -1}])
def test_settings_out_of_range(settings: dict[str, int], retag_index: ReTAGIndex, word_encoder: Any) -> None:
    with pytest.raises(ValueError, match=rf"`{next(iter(settings))}` must (be a positive|not be negative)"):
        ExtractiveKeywords(SummarySentences(retag_index, word_encoder), retag_index.topics, **settings)
