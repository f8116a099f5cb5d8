from graphrerank_papers.answers.answer_spans import answer_spans

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
