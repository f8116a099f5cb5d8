import pytest

from graphrerank.language_models.prompt import Prompt
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge, parse_decision
from tests.papers.answers.test_prompted_writer import Scripted

PROMPT = Prompt("p", "{query}|{generated_answer}|{ground_truth_answer}")


def test_verdicts() -> None:
    model = Scripted({"a|Metz|Metz or Nancy": "Explanation: x\nDecision: yes", "b|Paris|Metz": "who knows"})
    scores, verdicts = CorrectnessJudge(model, PROMPT).judge(
        ["a", "b", "c", "d", "e", "f", "g", "h"],
        ["Metz", "Paris", " ", "x", "", "x", None, None],
        [["Metz", "Nancy"], ["Metz"], ["Metz"], [], [], None, ["Metz"], []],
    )
    assert scores.nan_to_num(-1.0).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
    assert [verdict is None for verdict in verdicts] == [False, False, *[True] * 6]
    assert len(model.asked) == 2


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("Decision: yes", True),
        ("decision - **No**", False),
        ("Decision: yes\nOn reflection, Decision: no", False),
        ("Decision: yesterday", None),
        ("yes", None),
    ],
)
def test_parse_decision(text: str, decision: bool | None) -> None:
    assert parse_decision(text) is decision
