import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank_papers.hipporag.facts import merge_knowledge


def test_by_hand(statement_extractor, fact_passages: tuple[str, ...]) -> None:
    facts = merge_knowledge(statement_extractor.extract(fact_passages))
    assert facts.names == ["lothair ii", "metz", "moselle", "nancy", "waldrada", "lotharingia", "trier"]
    assert facts.spellings == ["Lothair II", "Metz", "Moselle", "Nancy", "Waldrada", "Lotharingia", "Trier"]
    assert facts.texts == [
        "Lothair II died in Metz",
        "Metz lies on Moselle",
        "Waldrada loved Lothair II",
        "Lothair II ruled Lotharingia",
        "the Metz is in Lotharingia",
    ]
    assert facts.ends.tolist() == [[0, 1], [1, 2], [4, 0], [0, 5], [1, 5]]
    assert facts.occurrences.tolist() == [
        [0, 0], [0, 1], [1, 1], [1, 2], [1, 3], [2, 0], [2, 4], [2, 5], [3, 1], [3, 5], [5, 6],
    ]  # fmt: skip
    assert facts.related.tolist() == [[0, 1], [0, 4], [0, 5], [1, 2], [1, 5]]
    assert facts.num_statements.tolist() == [1] * 5


def test_facts_that_are_stated_again_count() -> None:
    a, b, again = Entity("A. One", "", ""), Entity("Two", "", ""), Entity("the TWO", "", "")
    one = Knowledge((a, b), (Relation("A. One", "met", "Two", ""), Relation("Two", "saw", "A. One", "")))
    two = Knowledge((a, again), (Relation("A. One", "Met", "the TWO", ""),))
    facts = merge_knowledge([one, two])
    assert facts.texts == ["A. One met Two", "Two saw A. One"]
    assert facts.related.tolist() == [[0, 1]]
    assert facts.num_statements.tolist() == [3]


def test_names_that_are_equal_within_a_passage() -> None:
    one, same, blank = Entity("Metz", "", ""), Entity("the Metz", "", ""), Entity("!", "", "")
    said = (Relation("Metz", "is", "the Metz", ""), Relation("Metz", "is", "!", ""))
    facts = merge_knowledge([Knowledge((one, same, blank), said)])
    assert facts.names == ["metz"]
    assert facts.texts == []  # of itself, and of what has no name
    assert facts.occurrences.tolist() == [[0, 0]]


@pytest.mark.parametrize("passages", [0, 3])
def test_nothing_said(passages: int) -> None:
    facts = merge_knowledge([Knowledge()] * passages)
    assert facts.names == facts.texts == []
    assert facts.ends.shape == facts.occurrences.shape == facts.related.shape == (0, 2)
