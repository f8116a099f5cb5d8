import random

import pytest
import torch
from torch import Tensor

from graphrerank.corpus import conceptual_edges
from graphrerank.corpus import entity_incidence as incidence_module
from graphrerank.corpus.entity_incidence import EntityIncidence, normalized_names
from graphrerank.text import normalize_entity


def entity_incidence(entities: list[list[str]], **settings: float) -> EntityIncidence:
    return EntityIncidence.from_names(normalized_names(entities), **settings)


def naive(entities: list[list[str]], nodes: list[list[int]]) -> list[tuple[int, int, float]]:
    """``A_ij = |E_i & E_j| / |E_j|`` by set intersection, (source, target, weight) by target, then source's number."""
    sets = [{normalize_entity(name) for name in row} for row in entities]
    edges, start = [], 0
    for row in nodes:
        held = [node for node in row if node >= 0]
        for a, i in enumerate(held):
            for j in sorted(held):
                if i != j and sets[i] & sets[j]:
                    edges.append((start + held.index(j), start + a, len(sets[i] & sets[j]) / len(sets[j])))
        start += len(held)
    return edges


def listed(edge_index: Tensor, weight: Tensor) -> list[tuple[int, int, float]]:
    return list(zip(*edge_index.tolist(), weight.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_against_naive_set_intersection_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(incidence_module, "BLOCK_PAIRS", draw.choice([1, 20, 1 << 22]))
    entities = [[f"e{draw.randint(0, 25)}" for _ in range(draw.randint(0, 6))] for _ in range(30)]
    nodes = [draw.sample(range(30), 10) for _ in range(5)]
    for row in nodes:
        for column in draw.sample(range(10), draw.randint(0, 4)):
            row[column] = -1
    edge_index, weight, ptr = conceptual_edges(entity_incidence(entities, max_share=1.0), torch.tensor(nodes))
    expected = naive(entities, nodes)
    assert [edge[:2] for edge in listed(edge_index, weight)] == [edge[:2] for edge in expected]
    torch.testing.assert_close(weight, torch.tensor([edge[2] for edge in expected]))
    assert ptr.diff().tolist() == [sum(node >= 0 for node in row) for row in nodes]


def test_too_common_entities_are_ignored_in_both_counts() -> None:
    entities = [["America", "Rome"], ["America", "Rome"], *([["America"]] * 18), *([[]] * 20)]
    found = entity_incidence(entities, max_share=0.3)
    assert (found.names, found.sizes.tolist()[:3]) == (["rome"], [1, 1, 0])
    assert entity_incidence(entities, max_share=0.5).names == ["america", "rome"]


def test_no_candidates_and_errors() -> None:
    found = entity_incidence([["a"], ["a"]])
    for nodes in (torch.zeros(0, 3).long(), torch.full((2, 3), -1), torch.zeros(2, 0).long()):
        edge_index, weight, ptr = conceptual_edges(found, nodes)
        assert (edge_index.shape, weight.shape, ptr.tolist()) == ((2, 0), (0,), [0] * (len(nodes) + 1))
    with pytest.raises(ValueError, match="`nodes` must lie in 0 to 1 or be -1, got 2 in row 1"):
        conceptual_edges(found, torch.tensor([[0, 1], [2, 0]]))
    with pytest.raises(ValueError, match="unique per query, got 1 in row 0"):
        conceptual_edges(found, torch.tensor([[1, 0, 1]]))
    with pytest.raises(ValueError, match="`max_share`"):
        entity_incidence([], max_share=2.0)
