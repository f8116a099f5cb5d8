from collections.abc import Iterator, Sequence

import pytest
import torch

from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import Price
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge
from graphrerank_papers.answers.packing import Packing
from graphrerank_papers.answers.prompted_writer import PromptedWriter
from graphrerank_papers.answers.stage import AnswerStage
from tests.papers.answers.test_prompted_writer import Scripted


def stage(model: Scripted, judge: Scripted | None = None) -> AnswerStage:
    prompt = Prompt("p", "{query}|{generated_answer}|{ground_truth_answer}")
    return AnswerStage(
        Packing(3),
        PromptedWriter(model, Prompt("short", "{context}?{question}")),
        price=Price(1.0, 1.0),
        judge=None if judge is None else CorrectnessJudge(judge, prompt),
    )


def test_each_system_is_answered_from_its_own_passages() -> None:
    model = Scripted({"x y?q": "Metz", "x y\n\nz?q": "Nancy", "?r": ""})
    ranked = {"one": [["x y", "three more words"], []], "two": [["x y", "z"], []]}
    answers = stage(model).answer(["q", "r"], ranked, [["Metz"], None])
    assert {name: part.said for name, part in answers.items()} == {"one": ["Metz", ""], "two": ["Nancy", ""]}
    assert [part.values["EM"].nan_to_num(-1).tolist() for part in answers.values()] == [[1.0, -1.0], [0.0, -1.0]]
    assert [part.counts.context_tokens for part in answers.values()] == [1.0, 1.5]
    assert len(model.asked) == 3  # the same question from the same context once


def test_a_price_is_checked_before_any_question() -> None:
    for name in ("price", "judge_price", "comparison_price"):
        with pytest.raises(ValueError, match=f"`{name}` must have `input` and `output`, USD per million"):
            AnswerStage(Packing(3), stage(Scripted({})).writer, **{name: 0.5})


class Lost(Scripted):
    """Loses some questions."""

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            yield index, LOST.get(question) or Reply(self.table[question], "answered", "m", 1, 1)


LOST = {
    "?failed": Reply("", "failed", attempts=3, problem="status 500"),
    "?rejected": Reply("", "rejected", problem="status 400: 'too long'"),
    "?refused": Reply("", "refused", "m", 1, 1),
    "?thought": Reply("", "cut", "m", 1, 1),  # about nothing but the answer, until the limit of tokens
}


def test_what_is_lost_is_no_abstention() -> None:
    questions = [*(key.removeprefix("?") for key in LOST), "abstains"]
    judged = stage(Lost({"?abstains": " "}), Scripted({}))
    (answers,) = judged.answer(questions, {"one": [[]] * 5}, [[]] * 5).values()  # none has an answer
    assert answers.said == [None, None, None, None, ""]
    for measure in ("EM", "F1", "Contain-Match", "Judged"):
        assert answers.values[measure].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert answers.counts.abstained == 1
    assert answers.counts.problems == {"status 500": 1, "status 400: 'too long'": 1}
    (answers,) = judged.answer(questions, {"one": [[]] * 5}, [["Metz"]] * 5).values()
    assert answers.values["EM"].tolist() == answers.values["Judged"].tolist() == [0.0] * 5


def test_verdicts_are_a_measure() -> None:
    judge = Scripted({"q|Metz|Nancy": "Decision: yes"})
    judged = stage(Scripted({"x?q": "Metz", "?r": ""}), judge)
    (answers,) = judged.answer(["q", "r"], {"one": [["x"], []]}, [["Nancy"], ["Metz"]]).values()
    assert judged.measures[-1] == "Judged"
    torch.testing.assert_close(answers.values["Judged"], torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert (answers.counts.verdicts, answers.counts.verdicts_unusable) == (1, 0)
    assert answers.verdicts[0] == Reply("Decision: yes", "answered", "m")
