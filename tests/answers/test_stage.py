import torch

from graphrerank.answers import AnswerStage, CorrectnessJudge, Packing, Price, PromptedWriter
from graphrerank.language_models import Prompt, Reply
from tests.answers.test_prompted_writer import Scripted


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
    assert {name: part.texts for name, part in answers.items()} == {"one": ["Metz", ""], "two": ["Nancy", ""]}
    assert [part.values["EM"].nan_to_num(-1).tolist() for part in answers.values()] == [[1.0, -1.0], [0.0, -1.0]]
    assert [part.counts.context_tokens for part in answers.values()] == [1.0, 1.5]
    assert len(model.asked) == 3  # the same question from the same context once


def test_verdicts_are_a_measure() -> None:
    judge = Scripted({"q|Metz|Nancy": "Decision: yes"})
    judged = stage(Scripted({"x?q": "Metz", "?r": ""}), judge)
    (answers,) = judged.answer(["q", "r"], {"one": [["x"], []]}, [["Nancy"], ["Metz"]]).values()
    assert judged.measures[-1] == "Judged"
    torch.testing.assert_close(answers.values["Judged"], torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert (answers.counts.verdicts, answers.counts.verdicts_unusable) == (1, 0)
    assert answers.verdicts[0] == Reply("Decision: yes", "answered", "m")
