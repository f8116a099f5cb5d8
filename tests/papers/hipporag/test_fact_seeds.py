import random

import pytest
import torch

from graphrerank_papers.hipporag.fact_seeds import entity_seeds, find_facts


def test_facts_by_hand() -> None:
    facts = torch.tensor([[0.5, 0.0], [0.9, 0.2], [-0.1, 0.4], [0.5, 0.7]])
    found = find_facts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), facts, top_k=3)
    assert found.nodes.tolist() == [[1, 0, 3], [3, 2, 1]]
    torch.testing.assert_close(found.scores, torch.tensor([[1.0, 0.6, 0.6], [1.0, 4 / 7, 2 / 7]]))


def test_a_fact_that_is_not_like_the_query_is_not_found() -> None:
    found = find_facts(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.4, 1.0], [0.0, 1.0]]), top_k=2)
    assert found.nodes.tolist() == [[0, -1], [-1, -1]]
    assert found.scores.tolist() == [[1.0, -torch.inf], [-torch.inf, -torch.inf]]


def test_facts_that_are_all_alike_weigh_one() -> None:
    assert find_facts(torch.tensor([[1.0]]), torch.tensor([[0.3], [0.3]]), top_k=2).scores.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("queries", [0, 2])
def test_no_facts_and_no_queries(queries: int) -> None:
    assert find_facts(torch.ones(queries, 3), torch.zeros(0, 0), top_k=4).nodes.tolist() == [[-1] * 4] * queries


# facts 0: a-b, 1: b-c, 2: a-c; held by 4, 1 and 2 passages; similarities 1, 0.8 and 0.6, in this order
@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        ("last", {0: 0.6 / 4, 1: 0.8, 2: 0.6 / 2}),
        ("mean", {0: 0.8 / 4, 1: 0.9, 2: 0.7 / 2}),
        ("sum", {0: 1.6 / 4, 1: 1.8, 2: 1.4 / 2}),
    ],
)
def test_entity_weights_by_hand(combination: str, expected: dict[int, float]) -> None:
    ends, holders = torch.tensor([[0, 1], [1, 2], [0, 2]]), torch.tensor([4, 1, 2])
    scores = torch.tensor([[1.0, 0.8, 0.6]])
    seeds = entity_seeds(torch.tensor([[0, 1, 2]]), scores, ends, holders, top_k=5, combination=combination)
    order = sorted(expected, key=lambda entity: -expected[entity])
    assert seeds.nodes.tolist() == [[*order, -1, -1]]
    torch.testing.assert_close(seeds.scores[0, :3], torch.tensor([expected[entity] for entity in order]))
    assert seeds.scores[0, 3:].tolist() == [-torch.inf] * 2


@pytest.mark.parametrize("combination", ["last", "mean", "sum"])
def test_against_naive_loop(combination: str) -> None:
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    ends = torch.tensor([rng.sample(range(12), 2) for _ in range(30)])
    holders = torch.randint(0, 5, (12,), generator=generator)
    facts = torch.stack([torch.randperm(30, generator=generator)[:6] for _ in range(9)])
    scores = torch.randint(0, 9, (9, 6), generator=generator) / 8  # with ties
    facts[2, 4:], facts[5] = -1, -1
    found = entity_seeds(facts, scores, ends, holders, top_k=4, combination=combination)
    for row in range(9):
        given: dict[int, list[float]] = {}
        for fact, score in zip(facts[row].tolist(), scores[row].tolist(), strict=True):
            for entity in ends[fact].tolist() if fact >= 0 else []:
                given.setdefault(entity, []).append(score / max(1, int(holders[entity])))
        combine = {"last": lambda w: w[-1], "mean": lambda w: sum(w) / len(w), "sum": sum}[combination]
        weight = {entity: round(combine(own), 6) for entity, own in given.items()}
        best = sorted(weight, key=lambda entity: (-weight[entity], entity))[:4]
        number = len(best)
        assert [round(score, 5) for score in found.scores[row, :number].tolist()] == [
            round(weight[entity], 5) for entity in best
        ]
        assert {e: round(s, 5) for e, s in zip(found.nodes[row].tolist(), found.scores[row].tolist(), strict=True)
                if e >= 0} == {e: round(weight[e], 5) for e in found.nodes[row, :number].tolist()}  # fmt: skip
        assert found.nodes[row, number:].tolist() == [-1] * (4 - number)


def test_refused() -> None:
    ends, holders, facts = torch.tensor([[0, 1]]), torch.tensor([1, 1]), torch.tensor([[0]])
    with pytest.raises(ValueError, match=r"`combination` must be one of \['last', 'mean', 'sum'\], got 'max'"):
        entity_seeds(facts, torch.ones(1, 1), ends, holders, combination="max")
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        entity_seeds(facts, torch.ones(1, 1), ends, holders, top_k=0)
    with pytest.raises(ValueError, match=r"`queries` and `facts` must be \[B, d\] and \[F, d\], got \[1, 2\] and"):
        find_facts(torch.ones(1, 2), torch.ones(3, 4))
