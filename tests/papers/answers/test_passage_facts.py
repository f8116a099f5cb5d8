import pytest

from graphrerank_papers.answers.passage_facts import Question, linked_from, order_of, read_passages

TEXTS = [
    "Solaris (film). A film of 1972 by Andrei Tarkovsky, released in 1972.",
    "Andrei Tarkovsky. A director (1932 - 1986).",
    "A text without a title, whose first sentence is much too long to be one of them, as it goes on and on. End.",
]


def test_roles_of_passages() -> None:
    passages = read_passages(Question("When did the director of Solaris die?"), TEXTS)
    assert [(passage.title, passage.role) for passage in passages] == [
        ("Solaris (film)", "asked"),
        ("Andrei Tarkovsky", "linked"),
        ("", "other"),
    ]
    assert passages[1].years == (1932, 1986)
    assert linked_from(passages[0], passages) is passages[1]
    assert linked_from(passages[1], passages) is None


@pytest.mark.parametrize(
    ("text", "kind", "wanted", "relations"),
    [
        ("When did the director of Solaris die?", "when", "when did", ("director", "die")),
        ("Are Solaris and Stalker from one country?", "yes/no", "yes/no ", ("one", "countri")),
        ("Which film came first, Solaris or Stalker?", "which", "which film", ("film", "came", "first")),
    ],
)
def test_questions(text: str, kind: str, wanted: str, relations: tuple[str, ...]) -> None:
    question = Question(text)
    assert (question.kind, question.wanted, question.relations) == (kind, wanted, relations)


def test_order_of() -> None:
    assert [order_of(*pair) for pair in ((1, 2), (2, 1), (1, 1), (None, 1))] == ["less", "more", "same", "unknown"]
