import pytest

from graphrerank_papers.answers.measures import answer_f1, coverage, exact_match


@pytest.mark.parametrize(
    ("prediction", "answers", "em", "f1"),
    [
        ("Metz", ["metz"], 1.0, 1.0),
        ("Metz", ["Nancy", "the Metz."], 1.0, 1.0),
        ("Metz", ["Nancy"], 0.0, 0.0),
        ("", ["Nancy"], 0.0, 0.0),
        ("the", ["a"], 1.0, 1.0),
        ("new new york", ["New York"], 0.0, 2 * 2 / (3 + 2)),
        ("yes, the city", ["yes"], 0.0, 0.0),  # HotpotQA's rule
        ("Yes", ["yes"], 1.0, 1.0),
        ("york city hall", ["New York", "City Hall in York"], 0.0, 2 * 3 / (3 + 4)),
    ],
)
def test_exact_match_and_f1(prediction: str, answers: list[str], em: float, f1: float) -> None:
    assert exact_match(prediction, answers) == em
    assert answer_f1(prediction, answers) == pytest.approx(f1)


@pytest.mark.parametrize("measure", [coverage, exact_match, answer_f1])
@pytest.mark.parametrize("answers", [[], "Metz"])
def test_no_right_answer(measure, answers) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="`answers` must be a list of one or more right answers, got "):
        measure("Metz", answers)
