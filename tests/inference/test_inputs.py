from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from graphrerank import GraphReranker, RerankInput
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.graphs import CorpusGraph, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER
from graphrerank.inference import inputs
from graphrerank.inference.inputs import input_edges, text_features, to_floats, to_integers
from graphrerank.operators.bm25 import BM25


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        [np.float32(1), 2],
        [torch.tensor(1.0), torch.tensor(2.0)],
        np.array([1, 2], dtype=np.uint8),
        torch.tensor([1, 2], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0], requires_grad=True),
        np.array([1.0, 9.0, 2.0])[::2],
    ],
)
def test_numbers_of_any_kind_are_copied(given) -> None:
    found = to_floats("scores", given, (2,))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 2.0]
    found[0] = 7
    assert torch.as_tensor(given[0]).item() == 1


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (to_floats, [[1, 2], [3]], "`v` must be an array of numbers"),
        (to_floats, ["1", "2"], "`v` must hold numbers"),
        (to_floats, [True, False], "`v` must hold numbers, got the type bool"),
        (to_floats, [1j, 2], "`v` must hold numbers, got the type complex128"),
        (to_floats, np.zeros(3), r"`v` must be of shape \[2\], got \[3\]"),
        (to_floats, [0, float("-inf")], "`v` must be finite .* got -inf at place 1"),
        (to_integers, torch.ones(2), "`v` must hold integers, got the type float32"),
    ],
)
def test_what_is_no_such_array_is_refused(read, given, message) -> None:
    with pytest.raises(ValueError, match=message):
        read("v", given, (2,))


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


IDS = ["a", "b", "c", "d"]
PAIRS = [(0, 1), (1, 2), (0, 3)]


def edges_of(**given: Any) -> set[tuple[int, int, float, int]]:
    pairs, weight, types = input_edges(RerankInput("q", ["one", "two", "three", "four"], **given))
    return set(zip(*pairs.T.tolist(), weight.tolist(), types.tolist(), strict=True))


def test_against_numbered_pairs() -> None:
    graph = nx.Graph([(IDS[i], IDS[j]) for i, j in PAIRS])
    graph.add_edge("a", "elsewhere")  # of the corpus, but no candidate
    graph.add_edge("c", "c")
    directed = torch.tensor(PAIRS + [(j, i) for i, j in PAIRS] + [(2, 2)]).T
    expected = edges_of(edges=PAIRS)
    for same in (
        {"edges": np.array(PAIRS)},
        {"edges": torch.tensor(PAIRS)},
        {"edges": iter(PAIRS)},
        {"edges": [(IDS[i], IDS[j]) for i, j in PAIRS], "ids": IDS},
        {"edges": [*graph.subgraph("abd").edges, ("b", "c")], "ids": IDS},
        {"edges": graph, "ids": IDS},
        {"edge_index": directed},
        {"edge_index": directed.tolist()},
    ):
        assert edges_of(**same) == expected


def test_two_edges_are_never_guessed() -> None:
    pairs = torch.tensor([[0, 1], [2, 3]])
    assert edges_of(edge_index=pairs) == edges_of(edges=[(0, 2), (1, 3)])
    assert edges_of(edges=pairs.tolist()) == edges_of(edges=[(0, 1), (2, 3)])
    with pytest.raises(ValueError, match=r"`edges` must not be a tensor of shape \[2, 2\].*`edge_index=edges`"):
        edges_of(edges=pairs)
    with pytest.raises(ValueError, match=r"of shape \[2, 3\], PyG's form: give `edge_index"):
        edges_of(edges=torch.tensor(PAIRS).T)


def test_a_graphs_weights_and_types() -> None:
    graph = nx.Graph()
    graph.add_edge(10, 20, weight=2.0, type="citation")
    expected = edges_of(edges=[(0, 1)], edge_weights=[2.0], edge_types=["citation"])
    assert edges_of(edges=graph, ids=[10, 20, 30, 40]) == expected
    graph.add_edge(30, 40)  # one edge without them takes them from no other
    expected = edges_of(edges=[(0, 1), (2, 3)], edge_weights=[2.0, 1.0], edge_types=["citation", "other"])
    assert edges_of(edges=graph, ids=[10, 20, 30, 40]) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edges": [("a", "b")]}, "need `ids`"),
        ({"edges": [("a", "x")], "ids": IDS}, "must join passages of `ids`, got 'x' at place 0"),
        ({"edges": [("a", "b", "c")], "ids": IDS}, "must be pairs"),
        ({"edges": [(10, 20)], "ids": [10, 20, 30, 40]}, "join passages 0 to 3"),  # integers are numbers
        ({"edges": nx.Graph()}, "needs `ids`"),
        ({"edges": nx.Graph(), "ids": IDS, "edge_types": []}, "are its edges' `type`"),
        ({"edges": PAIRS, "edge_index": [[0], [1]]}, "got both"),
        ({"edge_index": [[0, 1]]}, r"`edge_index` must be of shape \[2, any\]"),
        ({"edge_index": [[0], [0]], "edge_weights": [1.0]}, "no self-loop"),
    ],
)
def test_what_is_unclear_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edges_of(**given)


QUERY, FILMS = "director of Solaris born in", ["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome"]
BOTH_WAYS = torch.tensor([[0, 1], [1, 0]])
ALL = ["base_score", "bm25_score", *MATCH_FEATURES]


def test_texts_against_bm25_and_text_match() -> None:
    found = text_features(RerankInput(QUERY, FILMS), ALL, BOTH_WAYS)
    scores = BM25(FILMS).score_all([QUERY])[0]
    expected = TextMatch(FILMS).score([QUERY], torch.arange(3), BOTH_WAYS.T.flip(0), torch.tensor([0, 3]))
    assert torch.equal(found.pop("bm25_score"), scores / scores.max())
    assert torch.equal(torch.stack([found[name] for name in MATCH_FEATURES], dim=1), expected)


@pytest.mark.parametrize("names", [[], ["base_score", "hops"], ["bm25_score"], [MATCH_FEATURES[1]]])
def test_only_what_is_needed_is_computed(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("was not needed")

    if "bm25_score" not in names:
        monkeypatch.setattr(inputs, "bm25_scores", refuse)
    if MATCH_FEATURES[1] not in names:
        monkeypatch.setattr(inputs, "TextMatch", refuse)
    found = text_features(RerankInput(QUERY, FILMS), names, BOTH_WAYS)
    assert set(found) == {name for name in ALL[1:] if name in names or (len(found) == 3 and name in MATCH_FEATURES)}
    assert text_features(RerankInput(QUERY, scores=[1.0, 2.0]), names, BOTH_WAYS) == {}
