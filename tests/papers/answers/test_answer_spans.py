import pytest

from graphrerank_papers.answers.answer_spans import Question, answer_spans, linked_from, read_passages

PASSAGE = (
    "Piacenza. Piacenza (founded 12 May 1218) is a city in Emilia-Romagna, Italy, with 7,531 people and a Bishop of "
    "Piacenza."
)


def texts(question: str, *passages: str) -> set[str]:
    return {span.text for span in answer_spans(question, passages)}


def test_forms_of_spans() -> None:
    found = texts("Where is it?", PASSAGE)
    assert {"Piacenza", "12 May 1218", "Emilia-Romagna, Italy", "7,531", "Bishop of Piacenza"} <= found


def test_yes_and_no() -> None:
    assert texts("Is Piacenza in Italy?", PASSAGE) == {"yes", "no"}
    assert answer_spans("Is Piacenza in Italy?", []) != []
    assert answer_spans("Where is it?", []) == []


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
