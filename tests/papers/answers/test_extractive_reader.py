from pathlib import Path

import pytest
import torch

from graphrerank.metrics.coverage import normalize_answer
from graphrerank.utils.tensor_files import save_tensors
from graphrerank_papers.answers.extractive_reader import (
    NUM_WEIGHTS,
    ExtractiveReader,
    Question,
    answer_spans,
    best_text,
    feature_rows,
    linked_from,
    read_passages,
)
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.scoring import score_answers

PASSAGES = (
    "Solaris (1972 film). Solaris is a 1972 Soviet film directed by Andrei Tarkovsky.",
    "Andrei Tarkovsky. Andrei Tarkovsky (4 April 1932 - 29 December 1986) was a Soviet director. He died in Paris.",
)


def test_against_a_naive_sum_of_weights() -> None:
    weights = torch.randn(NUM_WEIGHTS, generator=torch.Generator().manual_seed(0))
    spans = answer_spans("Where did the director of Solaris die?", PASSAGES)
    indices, starts = feature_rows(spans)
    ends = [*starts.tolist()[1:], len(indices)]
    scores = torch.stack([weights[indices[start:end]].sum() for start, end in zip(starts.tolist(), ends, strict=True)])
    shares: dict[str, float] = {}
    for span, share in zip(spans, torch.softmax(scores, 0).tolist(), strict=True):
        shares[normalize_answer(span.text)] = shares.get(normalize_answer(span.text), 0.0) + share
    assert normalize_answer(best_text(spans, weights)) == max(shares, key=lambda text: shares[text])


def test_the_reader_that_ships() -> None:
    questions = [
        "When did the director of film Solaris die?",
        "Who is the director of film Solaris?",
        "Where did the director of film Solaris die?",
        "Which film?",
    ]
    contexts = [Context(PASSAGES, 30)] * 3 + [Context((), 0)]
    replies = ExtractiveReader().write(questions, contexts)
    right = [["29 December 1986"], ["Andrei Tarkovsky"], ["Paris"], []]
    scores = score_answers([reply.text for reply in replies], [context.text for context in contexts], right)
    assert float(scores["F1"].mean()) >= 0.5  # two of the four at least, and the last is one
    assert replies[3].text == ""
    assert {(reply.outcome, reply.model, reply.input_tokens) for reply in replies} == {
        ("answered", "extractive_reader", 0)
    }


def test_weights_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"weights": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"`weights` must have shape \[32768\], got \[3\]"):
        ExtractiveReader(path).write(["Who?"], [Context(PASSAGES, 1)])


@pytest.mark.slow
def test_on_2wikimultihopqa(datasets: Path) -> None:
    """The number of docs/papers/answers.md, on the relevant passages of the first questions."""
    from graphrerank.data.dataset import Dataset

    data = Dataset.from_folder(datasets / "2wikimultihopqa")
    qrels, texts = data.split("test"), data.graph.texts
    rows = qrels.queries.tolist()[:200]
    contexts = [Context(tuple(texts[n] for n in qrels.node[qrels.query == row].tolist()), 0) for row in rows]
    said = ExtractiveReader().write([data.query_texts[row] for row in rows], contexts)
    right = [data.answers[data.query_ids[row]] for row in rows]
    scores = score_answers([reply.text for reply in said], [context.text for context in contexts], right)
    assert float(scores["F1"].mean()) > 0.4


PASSAGE = (
    "Piacenza. Piacenza (founded 12 May 1218) is a city in Emilia-Romagna, Italy, with 7,531 people and a Bishop of "
    "Piacenza."
)


def texts(question: str, *passages: str) -> set[str]:
    return {span.text for span in answer_spans(question, passages)}


def test_spans_of_a_question() -> None:
    found = texts("Where is it?", PASSAGE)
    assert {"Piacenza", "12 May 1218", "Emilia-Romagna, Italy", "7,531", "Bishop of Piacenza"} <= found
    assert texts("Is Piacenza in Italy?", PASSAGE) == texts("Is Piacenza in Italy?") == {"yes", "no"}
    assert texts("Where is it?") == set()


def test_options_know_the_order_of_their_years() -> None:
    passages = ["Solaris. A film of 1972.", "Stalker. A film of 1979."]
    spans = answer_spans("Which film came first, Solaris or Stalker?", passages)
    options = {span.text: span.features for span in spans if "option" in span.features}
    assert "option own first less first" in options["Solaris"]
    assert "option own first more first" in options["Stalker"]


FILMS = [
    "Solaris (film). A film of 1972 by Andrei Tarkovsky, released in 1972.",
    "Andrei Tarkovsky. A director (1932 - 1986).",
    "A text without a title, whose first sentence is much too long to be one of them, as it goes on and on. End.",
]


def test_roles_of_passages() -> None:
    passages = read_passages(Question("When did the director of Solaris die?"), FILMS)
    assert [(passage.title, passage.role) for passage in passages] == [
        ("Solaris (film)", "asked"),
        ("Andrei Tarkovsky", "linked"),
        ("", "other"),
    ]
    assert passages[1].years == (1932, 1986)
    assert linked_from(passages[0], passages) is passages[1]
    assert linked_from(passages[1], passages) is None
