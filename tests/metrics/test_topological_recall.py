import math
import sys

import networkx as nx
import pytest
import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.metrics import missed_topological_recall, path_uncertainty, recall, topological_recall

NUM_NODES = 24


def random_graph(seed: int) -> tuple[CorpusGraph, nx.Graph]:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(NUM_NODES - 2, (4 * seed, 2), generator=generator)  # the last two are isolated
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    theirs = nx.Graph(pairs.tolist())
    theirs.add_nodes_from(range(NUM_NODES))
    return CorpusGraph.from_edges([str(i) for i in range(NUM_NODES)], [""] * NUM_NODES, pairs), theirs


def random_queries(seed: int, num_queries: int = 6) -> tuple[Tensor, Tensor]:
    """Lists of 0 to 5 retrieved and 1 to 4 relevant nodes, padded."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(NUM_NODES, generator=generator) for _ in range(2 * num_queries)]
    retrieved, relevant = torch.stack(orders[:num_queries])[:, :5], torch.stack(orders[num_queries:])[:, :4]
    for row in range(num_queries):
        retrieved[row, row:] = -1
        relevant[row, 1 + row % 4 :] = -1
    return retrieved, relevant


def by_hops(graph: nx.Graph, source: int, target: int) -> float:
    """Definition 7 for one pair, over all paths of fewest edges."""
    return min(
        sum(math.log(1 + graph.degree[node]) for node in path if node != target)
        for path in nx.all_shortest_paths(graph, source, target)
    )


@pytest.mark.parametrize("seed", range(0, 14, 3))
def test_against_networkx(seed: int) -> None:
    graph, theirs = random_graph(seed)
    retrieved, relevant = random_queries(seed)
    found = path_uncertainty(graph, retrieved, relevant)
    for row in range(len(relevant)):
        seeds = [int(node) for node in retrieved[row] if node >= 0]
        for column, node in enumerate(relevant[row].tolist()):
            reachable = [seed for seed in seeds if node >= 0 and nx.has_path(theirs, seed, node)]
            expected = min((by_hops(theirs, seed, node) for seed in reachable), default=math.inf)
            assert found[row, column].item() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(0, 14, 3))
def test_corollary_1_recall_and_misstr_make_tr(seed: int) -> None:
    graph, _ = random_graph(seed)
    retrieved, relevant = random_queries(seed)
    found = (retrieved[:, :, None] == relevant[:, None, :]).any(2) & (retrieved >= 0)
    plain = recall(found.long(), (relevant >= 0).long(), top_k=5)
    missed = missed_topological_recall(graph, retrieved, relevant)
    torch.testing.assert_close(topological_recall(graph, retrieved, relevant), plain + missed)
    left = relevant.masked_fill((relevant[:, :, None] == retrieved[:, None, :]).any(2), -1)
    for row in (left >= 0).any(1).nonzero().flatten().tolist():  # and it is the share missed times the TR of these
        share = (left[row] >= 0).sum() / (relevant[row] >= 0).sum()
        part = topological_recall(graph, retrieved[row : row + 1], left[row : row + 1])
        torch.testing.assert_close(missed[row], share * part[0])


def test_a_seed_more_hops_away_may_be_the_better_one() -> None:
    # 0 is a hub next to the relevant node 2; 3 is two steps away over 1
    pairs = torch.tensor([[0, 2], [2, 1], [1, 3], *([0, node] for node in range(4, 60))])
    graph = CorpusGraph.from_edges([str(i) for i in range(60)], [""] * 60, pairs)
    found = path_uncertainty(graph, torch.tensor([[0, 3]]), torch.tensor([[2]]))
    assert found.item() == pytest.approx(math.log(2) + math.log(3))


def test_shared_entities_are_edges() -> None:
    graph = CorpusGraph.from_edges(["a", "b", "c"], [""] * 3, torch.zeros(0, 2))
    graph = graph.with_entities(EntityIncidence.from_names([["rome"], ["rome"], []]))
    found = path_uncertainty(graph, torch.tensor([[0]]), torch.tensor([[1, 2]]))
    assert found[0].tolist() == pytest.approx([math.log(2), math.inf])


def test_blocks_do_not_change_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = random_graph(9)
    whole = topological_recall(graph, *random_queries(9))
    monkeypatch.setattr(sys.modules["graphrerank.metrics.topological_recall"], "BLOCK_CELLS", 50)
    assert torch.equal(topological_recall(graph, *random_queries(9)), whole)


def test_nothing_retrieved_and_no_queries() -> None:
    graph, _ = random_graph(9)
    assert topological_recall(graph, torch.zeros(2, 0).long(), torch.tensor([[1], [2]])).tolist() == [0, 0]
    assert topological_recall(graph, torch.zeros(0, 3).long(), torch.zeros(0, 3).long()).shape == (0,)


@pytest.mark.parametrize(
    ("retrieved", "relevant", "match"),
    [
        ([[1]], [[1], [2]], r"`relevant` must have shape \[1, ...\], with one row per query, got \[2, 1\]"),
        ([[1]], [[-1]], r"`relevant` must contain at least one node per query and no node twice, got \[-1\]"),
        ([[1]], [[2, 3, 2]], r"`relevant` must contain at least one node per query and no node twice, got \[2, 3, 2\]"),
        ([[24]], [[2]], "`retrieved` must be node indices from 0 to 23 or -1, got 24 to 24"),
        ([[1]], [[-2]], "`relevant` must be node indices from 0 to 23 or -1, got -2 to -2"),
        ([1], [[2]], r"`retrieved` must have shape \[1, ...\], with one row per query, got \[1\]"),
    ],
)
def test_arguments_are_checked(retrieved: list[list[int]], relevant: list[list[int]], match: str) -> None:
    graph, _ = random_graph(3)
    with pytest.raises(ValueError, match=match):
        topological_recall(graph, torch.tensor(retrieved), torch.tensor(relevant))
