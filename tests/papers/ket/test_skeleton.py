import torch

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.text import WordTokenizer
from graphrerank_papers.ket.chunks import Chunks
from graphrerank_papers.ket.skeleton import build_skeleton, rewire


def test_links_go_to_the_sub_chunks_with_the_most_of_the_names() -> None:
    entities = (Entity("Metz", "CITY", ""), Entity("Trier", "CITY", ""))
    knowledge = Knowledge(entities, (Relation("Metz", "near", "Trier", "Metz lies near Trier."),))
    skeleton = build_skeleton([knowledge], [0], WordTokenizer(), description_tokens=8)
    assert skeleton.entity_links.tolist() == [[0, 0], [1, 0]]
    sub_chunks = Chunks(
        ["Metz lies on the Moselle", "as Trier does", "Metz and Trier"],
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([0, 0, 0]),
        torch.tensor([0, 0, 0]),
    )
    halved = rewire(skeleton, sub_chunks)
    assert halved.entity_links.tolist() == [[0, 0], [0, 2], [1, 1], [1, 2]]
    assert halved.relation_links.tolist() == [[0, 2]]
