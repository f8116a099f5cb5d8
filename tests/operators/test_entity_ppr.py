import math

import networkx
import pytest
import torch

from graphrerank.graphs import EntityIncidence, Ranking
from graphrerank.operators.entity_ppr import EntityPPR

NAMES = [["rome", "nero"], ["rome", "metz"], ["metz"], ["nero", "oslo"], ["oslo", "rome"], []]


def ranking(rows: list[list[int]]) -> Ranking:
    nodes = torch.tensor(rows)
    return Ranking(nodes, torch.where(nodes >= 0, 1.0, -torch.inf))


def random_incidence(seed: int, num_nodes: int = 60, num_entities: int = 40) -> EntityIncidence:
    generator = torch.Generator().manual_seed(seed)
    held = torch.rand(num_nodes, num_entities, generator=generator) < 0.1
    names = [[f"e{number}" for number in row.nonzero().flatten().tolist()] for row in held]
    return EntityIncidence.from_names(names, max_share=1.0)


def specificity(incidence: EntityIncidence, name: str) -> float:
    return math.log1p(incidence.num_nodes / int(incidence.num_holders[list(incidence.names).index(name)]))


def test_seeds_by_hand() -> None:
    """Without a walk the mass is the seeds' own: each entity's share, split among its passages."""
    operator = EntityPPR(EntityIncidence.from_names(NAMES), entities_per_seed=1, restart_prob=1.0)
    found = operator.score(torch.tensor([[1, 0]]))
    # of 1 metz (two passages) rather than rome (three), with weight 1; of 0 nero, with 1/2
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.5, 0.5, 0.25, 0.0, 0.0]]) / 1.5)


@pytest.mark.parametrize("seed", range(3))
def test_against_networkx(seed: int) -> None:
    """A step of ours is two of a walk on the graph of passages and entities: from entity to entity."""
    incidence = random_incidence(seed)
    operator = EntityPPR(incidence, restart_prob=0.4, num_steps=60)
    seeds = torch.tensor([[3, 9, 20]])
    graph = networkx.DiGraph()
    seed_weight: dict[str, float] = {}
    for passage in range(incidence.num_nodes):
        entities = incidence.indices[incidence.indptr[passage] : incidence.indptr[passage + 1]].tolist()
        for entity in entities:
            name = incidence.names[entity]
            graph.add_edge(name, passage, weight=1.0)
            graph.add_edge(passage, name, weight=specificity(incidence, name))
    for rank, passage in enumerate(seeds[0].tolist(), start=1):
        entities = [
            incidence.names[e] for e in incidence.indices[incidence.indptr[passage] : incidence.indptr[passage + 1]]
        ]
        best = sorted(entities, key=lambda name: -specificity(incidence, name))[:5]
        total = sum(specificity(incidence, name) for name in best)
        for name in best:
            seed_weight[name] = seed_weight.get(name, 0) + specificity(incidence, name) / total / rank
    walk = networkx.DiGraph()  # of entities: two steps of the graph above are one
    for source in incidence.names:
        for passage in graph.successors(source):
            out = sum(edge["weight"] for edge in graph[passage].values())
            for target, edge in graph[passage].items():
                share = edge["weight"] / out / graph.out_degree(source)
                before = walk[source][target]["weight"] if walk.has_edge(source, target) else 0.0
                walk.add_edge(source, target, weight=before + share)
    mass = networkx.pagerank(walk, alpha=0.6, personalization=seed_weight, tol=1e-12, max_iter=500)
    expected = torch.zeros(incidence.num_nodes)
    for name, share in mass.items():
        for passage in graph.successors(name):
            expected[passage] += share / graph.out_degree(name)
    torch.testing.assert_close(operator.score(seeds)[0], expected, atol=1e-5, rtol=0)


def test_what_is_excluded_or_not_reached_is_padding() -> None:
    operator = EntityPPR(EntityIncidence.from_names(NAMES))
    found = operator.expand(ranking([[2], [5]]), top_k=6, exclude=torch.tensor([[2, 0], [-1, -1]]))
    assert sorted(found.nodes[0].tolist()) == [-1, -1, -1, 1, 3, 4]
    assert found.nodes[1].tolist() == [-1] * 6  # it has no entity
    assert found.scores[1].tolist() == [-torch.inf] * 6


def test_a_batch_equals_its_rows_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = EntityPPR(random_incidence(7))
    generator = torch.Generator().manual_seed(0)
    seeds = ranking([torch.randperm(60, generator=generator)[:8].tolist() for _ in range(5)])
    whole = operator.expand(seeds, top_k=20)
    monkeypatch.setattr("graphrerank.operators.entity_ppr.BLOCK_SCORES", 1)
    parts = operator.expand(seeds, top_k=20)
    torch.testing.assert_close(parts.scores, whole.scores)
    assert torch.equal(parts.nodes, whole.nodes)


def test_no_queries_and_no_entities() -> None:
    operator = EntityPPR(EntityIncidence.from_names(NAMES))
    assert operator.expand(Ranking(torch.zeros(0, 3).long(), torch.zeros(0, 3)), top_k=4).nodes.shape == (0, 4)
    bare = EntityPPR(EntityIncidence.from_names([[], []]))
    assert bare.expand(ranking([[0]]), top_k=2).nodes.tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_seeds": 0}, "`num_seeds` must be a positive integer, got 0"),
        ({"entities_per_seed": 0}, "`entities_per_seed` must be a positive integer, got 0"),
        ({"num_steps": 0}, "`num_steps` must be a positive integer, got 0"),
        ({"restart_prob": 0.0}, "`restart_prob` must lie in"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EntityPPR(EntityIncidence.from_names(NAMES), **arguments)  # type: ignore[arg-type]
