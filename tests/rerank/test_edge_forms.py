import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphrerank import RerankInput
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.rerank.candidate_lists import input_edges
from graphrerank.rerank.edge_forms import parse_edges, read_edge_index

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
    with pytest.raises(ValueError, match=r"of shape \[2, 3\], the format of PyTorch Geometric. Pass `edge_index"):
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
        ({"edges": [("a", "b")]}, "require `ids`"),
        ({"edges": [("a", "x")], "ids": IDS}, "must join passages of `ids`, got 'x' at index 0"),
        ({"edges": [("a", ["b"])], "ids": IDS}, r"got \['b'\] at index 0"),
        ({"edges": [("a", "b"), ("a",)], "ids": IDS}, r"must be \[i, j\], .* got another format at index 1"),
        ({"edges": [(0, 1), (0, 4)]}, r"join passages with indices 0 to 3, got \[0, 4\] at index 1"),
        ({"edges": [(0, 1), (-1, 2, 0.5)]}, r"join passages with indices 0 to 3, got \[-1, 2\] at index 1"),
        ({"edges": [(0, 10**30)]}, "pairs of passage indices"),
        ({"edges": [(True, 2)]}, "require `ids`"),
        ({"edges": [(0, 1), (10, 20)], "ids": [10, 20, 30, 40]}, "of `ids`, got 0 at index 0"),  # numbers among ids
        ({"edges": [(0, 1, 0)]}, r"a weight in \[1e-09, 1e\+09\], got another value at index 0"),
        ({"edges": [(0, 1), (0, 2, True)]}, "a weight in .* at index 1"),
        ({"edges": [(0, 1, {"weight": "2"})]}, "a weight in .* at index 0"),
        ({"edges": [(0, 1, math.nan)]}, "a weight in .* at index 0"),
        ({"edges": [(0, 1, 1.0, 7)]}, "`edge_types` must contain names, got int at index 0"),
        (
            {"edges": [(0, 1, 2.0)], "edge_weights": [1.0]},
            "`edge_weights` cannot be combined with `edges` that contain them",
        ),
        ({"edges": np.array([[0.5, 1, 1]])}, "require `ids`"),
        ({"edges": nx.Graph(), "ids": IDS, "edge_types": []}, "from the attributes `type`"),
        ({"edges": PAIRS, "edge_index": [[0], [1]]}, "got both"),
        ({"edge_index": [[0, 1]]}, r"`edge_index` must have shape \[2, any\]"),
    ],
)
def test_what_is_unclear_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edges_of(**given)


def test_an_edge_may_bring_its_weight_and_type() -> None:
    expected = edges_of(edges=[(0, 1), (2, 3)], edge_weights=[2.0, 1.0], edge_types=["citation", None])
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", weight=2.0, type="citation")
    graph.add_edge("c", "d")
    for same in (
        [(0, 1, 2.0, "citation"), (2, 3, None)],
        [[0, 1, 2, "cites"], [3, 2, 1]],
        [(0, 1, {"weight": 2.0, "type": "citation"}), (2, 3, {})],
        graph,
        list(graph.edges(data=True)),
        list(graph.edges(keys=True, data=True)),
    ):
        assert edges_of(edges=same, ids=IDS) == expected
    assert edges_of(edges=[(0, 1, "citation")]) == edges_of(edges=[(0, 1)], edge_types=["citation"])
    assert edges_of(edges=np.array([[0, 1, 2.5], [2, 3, 1]])) == edges_of(edges=[(0, 1, 2.5), (2, 3)])


def test_integers_are_ids_where_the_ids_are_integers() -> None:
    expected, ids = edges_of(edges=[(0, 1), (1, 3)]), [10, 20, 30, 40]
    for edges in ([(10, 20), (20, 40)], np.array([[10, 20], [20, 40]]), [(10.0, 20, 1), (20, 40)]):
        for same in (ids, np.array(ids), list(np.array(ids))):
            assert edges_of(edges=edges, ids=same) == expected
    assert edges_of(edges=[(np.int64(0), torch.tensor(1)), (1, 3)], ids=IDS) == expected


def test_integer_ids_are_never_taken_for_indices() -> None:
    assert edges_of(edges=[(0, 2)], ids=[1, 2, 0, 3]) == edges_of(edges=[(2, 1)])
    with pytest.raises(
        ValueError, match=r"must join passages of `ids`, got 0 at index 0. With integer `ids`, use `edge_"
    ):
        edges_of(edges=[(0, 2)], ids=[10, 20, 30, 40])
    assert edges_of(edge_index=[[0], [2]], ids=[10, 20, 30, 40]) == edges_of(edges=[(0, 2)])


def test_nodes_of_a_graph_without_ids_are_indices() -> None:
    assert edges_of(edges=nx.Graph([(0, 2), (2, 9)])) == edges_of(edges=[(0, 2)])


def test_self_loops_and_repeated_edges_are_counted() -> None:
    edges = [(0, 0), (0, 1), (1, 0, 3.0), (0, 1, "citation"), (2, 2), (1, 0)]
    read = parse_edges(edges, 3)
    assert (read.num_loops, read.num_repeated) == (2, 2)
    assert edges_of(edges=edges) == edges_of(edges=[(0, 1, 3.0), (0, 1), (0, 1, "citation")])
    assert parse_edges([(0, 1, "likes"), (0, 1, "knows"), (0, 1), (1, 0, "likes")], 3).num_repeated == 1
    both = nx.DiGraph([("a", "b"), ("b", "a"), ("a", "a")])
    for graph, repeated in ((both, 0), (nx.MultiGraph(list(both.edges)), 1)):
        read = parse_edges(graph, 4, ids=IDS)
        assert (read.num_loops, read.num_repeated) == (1, repeated)
    read = read_edge_index([[0, 1, 2], [1, 0, 2]], 3, weights=[1, 2, 3])
    assert (len(read), read.num_loops, read.num_repeated) == (2, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.floats(0.5, 4), st.sampled_from(EDGE_TYPES))))
def test_all_forms_are_one(rows) -> None:
    names = "abcde"
    expected = parse_edges(rows, 5)
    kept = [row for row in rows if row[0] != row[1]]
    assert expected.pairs.tolist() == [list(row[:2]) for row in kept]
    assert expected.num_loops == len(rows) - len(kept)
    assert expected.num_repeated == len(kept) - len({(min(i, j), max(i, j), name) for i, j, _, name in kept})
    for form in (
        [list(row) for row in rows],
        [(names[i], names[j], weight, name) for i, j, weight, name in rows],
        [(i, j, {"weight": weight, "type": name}) for i, j, weight, name in rows],
        expected,
    ):
        found = parse_edges(form, 5, ids=list(names))
        for column in ("pairs", "weights", "types"):
            assert torch.equal(getattr(found, column), getattr(expected, column))
