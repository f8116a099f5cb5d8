import random
import re
import string
from collections import Counter

import pytest
import torch

from graphrerank_papers.answers.scoring import answer_f1, exact_match, question_kinds, score_answers


def normalized(text: str) -> str:
    """SQuAD's, HotpotQA's and 2WikiMultihopQA's rule, step by step."""
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def naive_f1(said: str, right: str) -> float:
    said, right = normalized(said), normalized(right)
    for word in ("yes", "no", "noanswer"):
        if word in (said, right) and said != right:
            return 0.0
    if not said or not right:
        return float(said == right)
    common = sum((Counter(said.split()) & Counter(right.split())).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(said.split()), common / len(right.split())
    return 2 * precision * recall / (precision + recall)


def test_against_naive_transcriptions_of_the_official_rules() -> None:
    draw = random.Random(0)
    words = ["Metz", "metz.", "the", "a", "New", "York", "yes", "no", "Yes!", "12", "1,200", "noanswer", "—", "U.S."]

    def text() -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(0, 4)))

    said, contexts = ([text() for _ in range(500)] for _ in range(2))
    right = [[text() for _ in range(draw.randint(1, 3))] for _ in range(500)]
    scores = score_answers(said, contexts, right)
    for row in range(500):
        forms = [normalized(answer) for answer in right[row]]
        assert scores["EM"][row] == float(normalized(said[row]) in forms)
        torch.testing.assert_close(float(scores["F1"][row]), max(naive_f1(said[row], answer) for answer in right[row]))
        for name, where in (("Contain-Match", said), ("Context-Coverage", contexts)):
            assert scores[name][row] == float(any(form and form in normalized(where[row]) for form in forms))


def test_questions_without_an_answer() -> None:
    scores = score_answers(["", "Metz", "", "Metz"], ["c"] * 4, [[], [], ["Metz"], None])
    assert scores["EM"].tolist()[:3] == scores["F1"].tolist()[:3] == [1.0, 0.0, 0.0]
    assert scores["Contain-Match"].tolist()[:3] == [1.0, 0.0, 0.0]
    assert scores["Context-Coverage"].isnan().tolist() == [True, True, False, True]
    assert all(bool(row[3].isnan()) for row in scores.values())


def test_kinds_of_questions() -> None:
    kinds = question_kinds([2, 1, 3, 1], score_answers([""] * 4, [""] * 4, [["a"], None, [], ["b"]]))
    assert {name: inside.int().tolist() for name, inside in kinds.items()} == {
        "multi-hop": [1, 0, 0, 0],
        "single-hop": [0, 1, 0, 1],
        "unanswerable": [0, 0, 1, 0],
    }
    assert list(question_kinds([2], score_answers([""], [""], [["a"]]))) == ["multi-hop"]


@pytest.mark.parametrize("measure", [exact_match, answer_f1])
@pytest.mark.parametrize("answers", [[], "Metz"])
def test_no_right_answer(measure, answers) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="`answers` must be a list of at least one correct answer, got "):
        measure("Metz", answers)
