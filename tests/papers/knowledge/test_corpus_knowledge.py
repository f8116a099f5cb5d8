from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank_papers.knowledge.corpus_knowledge import build_knowledge_graph, merge_knowledge
from tests.support.encoders import HashEncoder

PASSAGES = ["Lothair died in Metz. Lothair ruled.", "Metz lies on Moselle. the Metz.", "nothing"]


def test_by_hand(statement_extractor, fact_passages: tuple[str, ...]) -> None:
    facts = merge_knowledge(statement_extractor.extract(fact_passages))
    assert facts.names == ["lothair ii", "metz", "moselle", "nancy", "waldrada", "lotharingia", "trier"]
    assert facts.spellings == ["Lothair II", "Metz", "Moselle", "Nancy", "Waldrada", "Lotharingia", "Trier"]
    assert facts.facts == [
        "Lothair II died in Metz",
        "Metz lies on Moselle",
        "Waldrada loved Lothair II",
        "Lothair II ruled Lotharingia",
        "the Metz is in Lotharingia",
    ]
    assert facts.ends.tolist() == [[0, 1], [1, 2], [4, 0], [0, 5], [1, 5]]
    assert facts.entity_links.tolist() == [
        [0, 0], [0, 2], [1, 0], [1, 1], [1, 3], [2, 1], [3, 1], [4, 2], [5, 2], [5, 3], [6, 5],
    ]  # fmt: skip
    assert facts.related.tolist() == [[0, 1], [0, 4], [0, 5], [1, 2], [1, 5]]
    assert facts.num_statements.tolist() == [1] * 5


def test_facts_that_are_stated_again_count() -> None:
    a, b, again = Entity("A. One", "", ""), Entity("Two", "", ""), Entity("the TWO", "", "")
    one = Knowledge((a, b), (Relation("A. One", "met", "Two", ""), Relation("Two", "saw", "A. One", "")))
    two = Knowledge((a, again), (Relation("A. One", "Met", "the TWO", ""),))
    facts = merge_knowledge([one, two])
    assert facts.facts == ["A. One met Two", "Two saw A. One"]
    assert facts.related.tolist() == [[0, 1]]
    assert facts.num_statements.tolist() == [3]


def test_names_that_are_equal_within_a_passage_and_nothing_said() -> None:
    one, same, blank = Entity("Metz", "", ""), Entity("the Metz", "", ""), Entity("!", "", "")
    said = (Relation("Metz", "is", "the Metz", ""), Relation("Metz", "is", "!", ""))
    facts = merge_knowledge([Knowledge((one, same, blank), said)])
    assert facts.names == ["metz"]
    assert facts.facts == []  # of itself, and of what has no name
    assert facts.entity_links.tolist() == [[0, 0]]
    nothing = merge_knowledge([Knowledge()] * 3)
    assert nothing.names == nothing.facts == nothing.entity_texts == []
    assert nothing.ends.shape == nothing.entity_links.shape == nothing.related.shape == (0, 2)


def test_a_graph_by_hand(tmp_path: Path, name_extractor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = HashEncoder()
    graph = build_knowledge_graph(PASSAGES, folder=tmp_path, extractor=name_extractor, encoder=encoder)
    assert graph.merged.names == ["lothair", "metz", "moselle"]
    assert graph.merged.entity_texts[1] == "Metz (NAME): Lothair died in Metz. Metz lies on Moselle."
    assert graph.merged.relation_texts == [
        "Lothair | before | Metz: Lothair stands before Metz.",
        "Metz | before | Moselle: Metz stands before Moselle.",
    ]
    assert graph.passages_of_entity == [[0], [0, 1], [1]]
    assert graph.passages_of_relation == [[0], [1]]
    assert graph.neighbours == [[1], [0, 2], [1]]
    assert torch.equal(graph.entity_vectors, encoder.encode(graph.merged.entity_texts))
    assert torch.equal(graph.relation_vectors, encoder.encode(graph.merged.relation_texts))
    assert capsys.readouterr().out == "knowledge graph: 3 entities in 4 passages, 2 relations in 2 passages\n"


def test_no_passages_and_short_descriptions(tmp_path: Path, name_extractor: Any) -> None:
    models = {"folder": tmp_path, "extractor": name_extractor, "encoder": HashEncoder()}
    graph = build_knowledge_graph([], **models)
    assert (graph.neighbours, graph.passages_of_relation, len(graph.entity_vectors)) == ([], [], 0)
    shorter = build_knowledge_graph(PASSAGES, **models, description_tokens=3)
    assert shorter.merged.entity_texts[0] == "Lothair (NAME): Lothair died in"
