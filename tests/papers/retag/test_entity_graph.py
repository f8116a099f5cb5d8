import pytest
import torch

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank_papers.retag.entity_graph import build_entity_graph, names_in


def told(*names: str, related: tuple[str, str] | None = None) -> Knowledge:
    relations = (Relation(related[0], "near", related[1], ""),) if related else ()
    return Knowledge(tuple(Entity(name, "", "") for name in names), relations)


PASSAGES = ["Metz fell. The King of Metz fled! So it was.", "Nancy rose. Trier rose.\n\nNancy saw the kings, and Metz."]
KNOWLEDGE = [told("Metz", "King of Metz"), told("Nancy", "Trier", "Metz", "the Kings men", related=("Trier", "Nancy"))]


def test_by_hand() -> None:
    graph = build_entity_graph(KNOWLEDGE, PASSAGES)
    assert graph.names == ["Metz", "King of Metz", "Nancy", "Trier", "the Kings men"]
    assert graph.normalized == ["metz", "king of metz", "nancy", "trier", "kings men"]
    assert graph.sentences == [
        "Metz fell.", "The King of Metz fled!", "Nancy rose.", "Trier rose.", "Nancy saw the kings, and Metz.",
    ]  # fmt: skip
    assert graph.passage.tolist() == [0, 0, 1, 1, 1]
    assert graph.named.tolist() == [[0], [0, 1], [2], [3], [0, 2, 4]]  # "kings" is most alike to "kings men"
    assert graph.edges.tolist() == [[0, 1], [0, 2], [0, 4], [2, 3], [2, 4]]
    assert graph.weight.tolist() == [1, 1, 1, 1, 1]
    assert graph.together.tolist() == [[1], [4], [4], [], [4]]  # of [2, 3] there is a statement alone
    assert graph.naming == [[0, 1, 4], [1], [2, 4], [3], [4]]


def test_a_statement_counts_beside_its_sentence() -> None:
    knowledge = told("Metz", "Nancy", related=("Metz", "Nancy"))
    graph = build_entity_graph([knowledge, knowledge], ["Metz is near Nancy."] * 2)
    assert (graph.edges.tolist(), graph.weight.tolist(), graph.together.tolist()) == ([[0, 1]], [4], [[0, 1]])


def test_vectors_and_scores_over_sentences() -> None:
    graph = build_entity_graph(KNOWLEDGE, PASSAGES)
    vectors = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    means = torch.stack([vectors[sentences].mean(dim=0) for sentences in graph.naming])
    found = graph.entity_vectors(vectors)
    assert torch.allclose(found, torch.nn.functional.normalize(means, dim=1), atol=1e-6)
    scores = torch.tensor([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0], [5.0, 5.0]])
    assert graph.entity_scores(scores).tolist() == [[5, 9], [2, 8], [5, 7], [4, 6], [5, 5]]
    assert graph.relation_scores(scores)[:3].tolist() == [[2, 8], [5, 5], [5, 5]]
    assert graph.relation_scores(scores)[3].tolist() == [-torch.inf, -torch.inf]


def test_an_entity_that_no_sentence_names_and_no_passage() -> None:
    graph = build_entity_graph([told("Paris")], ["Metz fell."])
    assert (graph.names, graph.sentences, graph.naming) == (["Paris"], [], [[]])
    assert graph.entity_vectors(torch.zeros(0, 3)).tolist() == [[0, 0, 0]]
    graph = build_entity_graph([], [])
    assert (graph.names, graph.sentences, graph.edges.shape) == ([], [], (0, 2))
    with pytest.raises(ValueError, match=r"`knowledge` must have one entry per passage \(2\), got 1"):
        build_entity_graph([told("Metz")], ["Metz.", "Nancy."])


def test_names_in() -> None:
    names = {"metz": 0, "king of metz": 1, "nancy": 2, "a b c d e f g h i": 3}
    assert names_in("The King of Metz's men, not NANCY.", names) == {0, 1, 2}
    assert names_in("Metzian kings", names) == set()
    assert names_in("", names) == set()
