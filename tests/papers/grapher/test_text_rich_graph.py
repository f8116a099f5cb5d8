from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank_papers.grapher.text_rich_graph import load_text_rich_graph


def source(num_passages: int, judged: Sequence[tuple[int, int, float]]) -> Dataset:
    ids, texts = [f"p{i}" for i in range(num_passages)], [f"Passage {i}." for i in range(num_passages)]
    graph = CorpusGraph.from_edges(ids, texts, torch.tensor([[0, 1]]))
    queries = sorted({query for query, _, _ in judged})
    query, node, gain = (torch.tensor(column) for column in zip(*judged, strict=True))
    names = [f"q{i}" for i in range(max(queries) + 1)]
    return Dataset("small", graph, names, names, {"test": Qrels(query, node, gain.float())}, knn=3)


def knowledge(entities: Sequence[str], relations: Sequence[tuple[str, str]] = (), about: str = "") -> Knowledge:
    return Knowledge(
        tuple(Entity(name, "", f"{about}{name.lower()}.") for name in entities),
        tuple(Relation(head, "with", tail, f"{about}{head}-{tail}.") for head, tail in relations),
    )


class Given:
    """An extractor of given knowledge."""

    fingerprint = "given"

    def __init__(self, entries: Sequence[Knowledge]) -> None:
        self.entries, self.calls = entries, 0

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        self.calls += 1
        return [self.entries[int(text.split()[1][:-1])] for text in texts]


def build(data: Dataset, entries: Sequence[Knowledge], **settings: Any) -> Dataset:
    return load_text_rich_graph(data, extractor=Given(entries), **settings)


PASSAGES = [
    knowledge(["The Cat", "Dog", "Lonely"], [("The Cat", "Dog"), ("Dog", "The Cat")], "One: "),
    knowledge(["dog", "cat", "Ant"], [("dog", "cat"), ("dog", "Ant")], "Two: "),
    knowledge(["CAT", "Bee"], [], "Three: "),
    Knowledge(),
    knowledge(["cat"], [], "One: "),
]
JUDGED = [(0, 0, 1.0), (0, 1, 2.0), (1, 3, 1.0), (2, 2, 3.0)]


def test_a_small_corpus_by_hand() -> None:
    data = build(source(5, JUDGED), PASSAGES)
    assert data.name == "small-G"
    assert data.graph.node_ids == ["cat", "dog", "ant", "bee", "passage:p3"]
    assert data.graph.texts == [
        "cat. One: the cat. Two: cat. Three: cat. One: cat.",
        "Dog. One: dog. Two: dog.",
        "Ant. Two: ant.",
        "Bee. Three: bee.",
        "Passage 3.",
    ]
    assert data.graph.indices.tolist() == [1, 0, 2, 1]
    assert data.graph.weight.tolist() == [3.0, 3.0, 1.0, 1.0]
    assert judgements(data.splits["test"]) == {
        ("q0", "cat", 2.0),
        ("q0", "dog", 2.0),
        ("q0", "ant", 2.0),
        ("q1", "passage:p3", 1.0),
        ("q2", "cat", 3.0),
        ("q2", "bee", 3.0),
    }
    assert (data.knn, data.edge_counts) == (0, {"relations": 2})
    assert data.summary() == "small-G: 5 nodes, 2 edges (relations 2), queries: test 3"


def judgements(qrels: Qrels) -> set[tuple[str, str, float]]:
    ids = ["cat", "dog", "ant", "bee", "passage:p3"]
    return {
        (f"q{query}", ids[node], gain)
        for query, node, gain in zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True)
    }


def test_ids_stay_when_passages_come() -> None:
    few = build(source(2, [(0, 0, 1.0)]), PASSAGES[:2]).graph
    assert set(few.node_ids) < set(build(source(5, JUDGED), PASSAGES).graph.node_ids)


def test_limits() -> None:
    said = [knowledge(["A", "Bb", "Cc", "Dd"], [("Bb", "Cc"), ("Dd", "Cc"), ("A", "Dd")]), Knowledge()]
    most_related = build(source(2, [(0, 0, 1.0)]), said, max_entities=2)
    assert most_related.graph.node_ids == ["cc", "dd", "passage:p1"]
    texts = build(source(5, JUDGED), PASSAGES, max_characters=20).graph.texts
    assert texts[:2] == ["cat. One: the cat.", "Dog. One: dog. Two: dog."]
    assert build(source(5, JUDGED), PASSAGES, max_characters=1).graph.texts[1] == "Dog. One: dog."


def test_what_was_extracted_is_kept(tmp_path: Path) -> None:
    extractor = Given(PASSAGES)
    for _ in range(2):
        data = load_text_rich_graph(source(5, JUDGED), extractor=extractor, cache=tmp_path, name="other")
        assert (data.name, data.graph.num_nodes, extractor.calls) == ("other", 5, 1)
