from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank_papers.indexing.knowledge_graph import build_knowledge_graph
from tests.support.encoders import HashEncoder

PASSAGES = ["Lothair died in Metz. Lothair ruled.", "Metz lies on Moselle. the Metz.", "nothing"]


def test_the_graph_by_hand(tmp_path: Path, name_extractor: Any) -> None:
    encoder = HashEncoder()
    graph = build_knowledge_graph(PASSAGES, folder=tmp_path, extractor=name_extractor, encoder=encoder)
    assert graph.skeleton.names == ["lothair", "metz", "moselle"]
    assert graph.skeleton.entity_texts[1] == "Metz (NAME): Lothair died in Metz. Metz lies on Moselle."
    assert graph.skeleton.relation_texts == [
        "Lothair | before | Metz: Lothair stands before Metz.",
        "Metz | before | Moselle: Metz stands before Moselle.",
    ]
    assert graph.passages_of_entity == [[0], [0, 1], [1]]
    assert graph.passages_of_relation == [[0], [1]]
    assert graph.neighbours == [[1], [0, 2], [1]]
    assert torch.equal(graph.entity_vectors, encoder.encode(graph.skeleton.entity_texts))
    assert torch.equal(graph.relation_vectors, encoder.encode(graph.skeleton.relation_texts))
    assert graph.report() == "knowledge graph: 3 entities in 4 places, 2 relations in 2 places"


def test_a_built_graph_is_read(tmp_path: Path, name_extractor: Any) -> None:
    encoder = HashEncoder()
    built = build_knowledge_graph(PASSAGES, folder=tmp_path, extractor=name_extractor, encoder=encoder)
    num_asked, num_read = len(encoder.asked), len(name_extractor.asked)
    again = build_knowledge_graph(PASSAGES, folder=tmp_path, extractor=name_extractor, encoder=encoder)
    assert (len(encoder.asked), len(name_extractor.asked)) == (num_asked, num_read)
    assert again.passages_of_entity == built.passages_of_entity
    assert torch.equal(again.relation_vectors, built.relation_vectors)
    models = {"extractor": name_extractor, "encoder": encoder}
    shorter = build_knowledge_graph(PASSAGES, folder=tmp_path, **models, description_tokens=3)
    assert shorter.skeleton.entity_texts[0] == "Lothair (NAME): Lothair died in"


def test_no_passages(tmp_path: Path, name_extractor: Any) -> None:
    graph = build_knowledge_graph([], folder=tmp_path, extractor=name_extractor, encoder=HashEncoder())
    assert (graph.neighbours, graph.passages_of_relation, len(graph.entity_vectors)) == ([], [], 0)


def test_a_setting_out_of_range_is_refused(tmp_path: Path, name_extractor: Any) -> None:
    models = {"extractor": name_extractor, "encoder": HashEncoder()}
    with pytest.raises(ValueError, match="`description_tokens` must be a positive integer, got 0"):
        build_knowledge_graph(PASSAGES, folder=tmp_path, **models, description_tokens=0)
