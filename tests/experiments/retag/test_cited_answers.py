import math

from graphrerank.experiments.retag.cited_answers import answers_table, count_answers
from graphrerank.language_models import CitedAnswer

SOME = [
    CitedAnswer("Metz fell.", ("0.0.1", "0.0.4"), (70, 0, None), 300),
    CitedAnswer("", (), (None,), 100),
    CitedAnswer("It rose.", ("0.0.1",), (10,), 200),
    CitedAnswer(""),  # nothing to read
]


def test_by_hand() -> None:
    found = count_answers("ReTAG", SOME)
    assert (found.questions, found.answered, found.parts, found.skipped) == (4, 2, 5, 2)
    assert (found.citations, found.tokens_read) == (1.5, 150.0)


def test_empty_answers_and_no_question() -> None:
    found = count_answers("ReTAG", SOME[1::2])
    assert (found.answered, found.tokens_read) == (0, 50.0)
    assert math.isnan(found.citations)
    none = count_answers("ReTAG", [])
    assert (none.questions, none.answered, none.parts) == (0, 0, 0)
    assert math.isnan(none.citations)
    assert math.isnan(none.tokens_read)


def test_table() -> None:
    table = answers_table([count_answers("ReTAG", SOME), count_answers("GraphRAG", SOME[1:2])])
    assert "| ReTAG | 4 | 2 | 1.5 | 150 | 5 | 2 |" in table
    assert "| GraphRAG | 1 | 0 |  | 100 | 1 | 1 |" in table
