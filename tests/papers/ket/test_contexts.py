from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from graphrerank.graphs import Queries, Ranking
from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import Price
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.prompted_writer import PromptedWriter
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.ket.contexts import BATCH, Questions, judge_contexts
from graphrerank_papers.ket.retrieval import Contexts


class Parrot:
    """A language model that says the first word of what it is asked."""

    fingerprint = "parrot"

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            yield index, Reply(f" {question.split()[0]}\n", "answered", "parrot", 10, 1)


def contexts(queries: Queries) -> Contexts:
    assert len(queries) <= BATCH
    nothing = Ranking(torch.zeros(len(queries), 0, dtype=torch.int64), torch.zeros(len(queries), 0))
    return Contexts(nothing, [(f"{text} Metz", "Nice") for text in queries.texts], torch.arange(len(queries)), {})


@pytest.fixture
def questions() -> Questions:
    texts = [f"city{number}" for number in range(20)]
    answers = [["Nancy"], ["nowhere", "The METZ!"], *[["city9"]] * 18]
    return Questions(Queries(texts, texts, torch.zeros(20, 2)), answers)


def test_coverage_needs_no_model(questions: Questions) -> None:
    found = judge_contexts(contexts, questions, settings={"solution": "text_rag"})
    assert found.values["Coverage"].tolist() == [0.0, 1.0, *[float(n == 9) for n in range(2, 20)]]
    assert set(found.values) == {"Coverage"}
    assert found.mean("Coverage") == 10.0
    assert found.context_tokens == (sum(range(16)) + sum(range(4))) / 20
    assert found.milliseconds > 0
    written = found.to_json()
    assert written["solution"] == "text_rag"
    assert written["questions"] == 20
    assert written["Coverage"] == 0.1
    assert written["interval"]["Coverage"][0] <= 0.1 <= written["interval"]["Coverage"][1]


def test_answers_are_those_of_the_model_from_the_context(questions: Questions) -> None:
    writer = PromptedWriter(Parrot(), Prompt("p", "{context} {question}"))
    found = judge_contexts(contexts, questions, answers=AnswerStage(Packing(1), writer, price=Price(1.0, 1.0)))
    assert found.values["EM"].tolist() == [float(n == 9) for n in range(20)]
    assert found.values["F1"].tolist() == found.values["EM"].tolist()
    assert found.answers is not None
    assert found.answers.context_tokens == found.context_tokens
    assert found.to_json()["answers"]["usd"] == pytest.approx(20 * 11 / 1e6)


def test_a_writer_reads_the_passages_one_by_one(questions: Questions) -> None:
    class Second:
        """Says a context's second passage."""

        name = "second"

        def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
            return [Reply(context.passages[1], "answered", "second", 0, 0) for context in contexts]

    found = judge_contexts(
        contexts, replace(questions, answers=[["nice"]] * 20), answers=AnswerStage(Packing(1), Second())
    )
    assert found.mean("EM") == 100.0


def test_the_first_questions(questions: Questions) -> None:
    assert len(questions.first(3).answers) == 3
    assert questions.first(None) is questions
