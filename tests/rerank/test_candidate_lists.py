from typing import Any

import numpy as np
import pytest
import torch

from graphrerank import GraphReranker, RerankInput
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER
from graphrerank.features import candidate_texts
from graphrerank.features.text_match import MATCH_FEATURES
from graphrerank.operators.bm25 import BM25
from graphrerank.rerank.candidate_lists import candidate_list

PASSAGES = ["one", "two", "three", "four"]


def weights(given: RerankInput) -> dict[tuple[int, int], float]:
    """Weight by (source, target), the larger of parallel edges."""
    graphs = GraphReranker.from_pretrained("attack").candidate_graphs([given])
    pairs = [tuple(pair) for pair in graphs.edge_index.T.tolist()]
    assert pairs == sorted(set(pairs), key=lambda pair: (pair[1], pair[0]))
    return dict(zip(pairs, graphs.edge_attr.tolist(), strict=True))


def test_no_edges() -> None:
    for none in (None, [], np.zeros((0, 2)), torch.zeros(0, 2, dtype=torch.int64)):
        assert weights(RerankInput("q", PASSAGES, edges=none)) == {}
    assert weights(RerankInput("q", PASSAGES, entities=[[], [], [], []], edges=[], edge_weights=[])) == {}


def test_the_union_of_all_kinds() -> None:
    given = RerankInput(
        "q",
        PASSAGES,
        edges=[(1, 2)],
        edge_weights=[0.25],
        entities=[["x", "y"], ["x"], ["x", "z"], []],
        doc_ids=["d", "e", "e", "d"],
        chunk_ids=[0, 7, 9, 1],
    )
    assert weights(given) == {
        **{(0, 3): 1.0, (3, 0): 1.0},  # chunks
        **{(0, 1): 0.5, (0, 2): 0.5, (1, 0): 1.0, (2, 0): 0.5},  # entities: z and y are of one passage each, and count
        **{(1, 2): 1.0, (2, 1): 0.5},  # the larger of 0.25 and the entities' weight
    }


def test_an_edge_of_each_type_for_a_model_that_reads_types(make_checkpoint) -> None:
    given = RerankInput(
        "q",
        PASSAGES,
        edges=[(0, 1), (1, 0), (0, 1), (2, 3), (1, 2)],
        edge_weights=[1, 2, 3, 0.5, 1],
        edge_types=np.array(["citation", "reference", "knn", "likes", "other"]),
        entities=[["x"], ["x"], [], []],
        doc_ids=["d", "e", "e", "f"],
        chunk_ids=[0, 1, 2, 0],
    )
    typed = GraphReranker(make_checkpoint(num_edge_types=5))
    lonely = RerankInput("q", PASSAGES[:1])
    graphs = typed.candidate_graphs([lonely, given])
    found = zip(*graphs.edge_index.tolist(), graphs.edge_type.tolist(), graphs.edge_attr.tolist(), strict=True)
    one_way = {
        (1, 2, "reference"): 2.0,  # of two of this type the larger weight
        (1, 2, "entity"): 1.0,
        (1, 2, "similarity"): 3.0,
        (2, 3, "adjacency"): 1.0,
        (2, 3, "other"): 1.0,
        (3, 4, "other"): 0.5,
    }
    both_ways = one_way | {(j, i, name): weight for (i, j, name), weight in one_way.items()}
    numbered = [(j, i, EDGE_TYPES.index(name), weight) for (i, j, name), weight in both_ways.items()]
    assert list(found) == sorted(numbered, key=lambda edge: (edge[1], edge[0], edge[2]))
    untyped = typed.candidate_graphs([RerankInput("q", PASSAGES, edges=[(0, 1), (2, 1)])])
    assert untyped.edge_type.tolist() == [OTHER] * 4
    merged = GraphReranker(make_checkpoint()).candidate_graphs([given])
    assert merged.edge_type is None
    assert weights(given) == {(0, 1): 3, (1, 0): 3, (1, 2): 1, (2, 1): 1, (2, 3): 0.5, (3, 2): 0.5}


def test_against_the_edges_of_a_corpus(make_checkpoint) -> None:
    pairs, types = torch.tensor([[0, 1], [3, 2], [0, 1], [0, 2]]), torch.tensor([3, 0, 1, 2])
    graph = CorpusGraph.from_edges(list("abcd"), PASSAGES, pairs, torch.arange(1.0, 5), edge_type=types)
    edge_index, weight, _, edge_type = candidate_edges(graph, torch.arange(4)[None], keep_types=True)
    given = RerankInput(
        "q", PASSAGES, edges=pairs, edge_weights=[1, 2, 3, 4], edge_types=[EDGE_TYPES[t] for t in types]
    )
    found = GraphReranker(make_checkpoint(num_edge_types=5)).candidate_graphs([given])
    assert torch.equal(found.edge_index, edge_index)
    assert torch.equal(found.edge_attr, weight)
    assert torch.equal(found.edge_type, edge_type)


QUERY, FILMS = "director of Solaris born in", ["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome"]


def scores_of(given: RerankInput, *names: str) -> dict[str, torch.Tensor]:
    return dict(candidate_list(given, ["base_score", *names], None, {"bm25_weight": 0.5, "dense_weight": 0.5}).scores)


def test_scores_are_those_given_or_bm25() -> None:
    bm25 = BM25(FILMS).score_all([QUERY])[0]
    bm25 = bm25 / bm25.max()
    found = scores_of(RerankInput(QUERY, FILMS), "bm25_score")
    assert list(found) == ["base_score", "bm25_score"]
    assert torch.equal(found["base_score"], bm25)
    assert torch.equal(found["bm25_score"], bm25)
    given = RerankInput(QUERY, FILMS, scores=[3, 2, 1], features={"hops": [0, 1, 2]})
    found = scores_of(given, "bm25_score", "hops", "query_coverage")
    assert {name: tensor.tolist() for name, tensor in found.items() if name != "bm25_score"} == {
        "base_score": [3, 2, 1],
        "hops": [0, 1, 2],
    }
    with pytest.raises(ValueError, match=r"`features` must be features of the model, \['hops'\], got 'bm25_score'"):
        scores_of(RerankInput(QUERY, FILMS, scores=[3, 2, 1], features={"bm25_score": [1, 1, 1]}), "hops")


@pytest.mark.parametrize(
    ("names", "given"),
    [
        (("base_score", "hops"), {}),
        (("base_score", "bm25_score"), {"features": {"bm25_score": [1, 2, 3]}}),
        (("base_score", *MATCH_FEATURES), {"features": {name: [1, 2, 3] for name in MATCH_FEATURES}}),
    ],
)
def test_words_are_read_only_where_they_are_needed(
    names: tuple[str, ...], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, make_checkpoint
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("was not needed")

    monkeypatch.setattr(candidate_texts, "words_of", refuse)
    monkeypatch.setattr(candidate_texts, "detect_language", refuse)
    reranker = GraphReranker(make_checkpoint(names))
    graphs = reranker.candidate_graphs([RerankInput(QUERY, FILMS, scores=[3, 2, 1], **given)])
    assert graphs.x[:, 0].tolist() == [3, 2, 1]
    with pytest.raises(AssertionError, match="was not needed"):
        reranker.candidate_graphs([RerankInput(QUERY, FILMS)])
