"""The same edges in every form, against numbered pairs; what is unclear is refused."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from graphrerank.inference.input_edges import input_edges
from graphrerank.inference.rerank_input import RerankInput

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
    with pytest.raises(ValueError, match=r"got \[2, 3\]; PyG's form is `edge_index`"):
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
