import pytest

from graphrerank.metrics.coverage import coverage, normalize_answer


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("", ""),
        ("The", ""),
        ("An apple, a day!", "apple day"),
        ("theatre and anthem", "theatre and anthem"),
        ("U.S.A.  \n 7,531", "usa 7531"),
        ("Bahrām", "bahrām"),
    ],
)
def test_normalize_answer(text: str, normalized: str) -> None:
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("context", "answers", "found"),
    [
        ("Its population was 7,531 in 1900.", ["7531"], 1.0),
        ("Its population was 7,531 in 1900.", ["7532"], 0.0),
        ("Its population was 7,531 in 1900.", ["7532", "1900"], 1.0),
        ("the Rio\n\n Linda", ["Rio Linda"], 1.0),
        ("anything", ["the"], 0.0),
        ("", ["Metz"], 0.0),
    ],
)
def test_coverage(context: str, answers: list[str], found: float) -> None:
    assert coverage(context, answers) == found
