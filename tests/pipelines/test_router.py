from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.operators.fusion import weighted_rank_fusion
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.router import DENSE, FUSION, GRAPH, ROUTES, Router, choose_routes, route_shares
from graphrerank.pipelines.steps import PageRank, Rerank, VectorSearch

DENSE_STEPS = [VectorSearch]
GRAPH_STEPS = [VectorSearch, partial(PageRank, restart_prob=0.3)]
BUDGET = 12


class Spread:
    """Scores a query by its place among ten: 0.0, 0.1, ..."""

    low, high = 0.25, 0.55

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        return torch.tensor([int(text.split()[-1]) / 10 if text else 0.0 for text in texts])


def router(adapter: Any, **settings: Any) -> Any:
    return partial(Router, adapter=adapter, **{"dense": DENSE_STEPS, "graph": GRAPH_STEPS, **settings})


@pytest.mark.parametrize("fusion_depth", [None, 3])
def test_each_query_gets_what_its_path_gives_it_alone(
    fusion_depth: int | None, make_corpus: Callable, make_queries: Callable
) -> None:
    graph, queries, adapter = make_corpus(), make_queries(10), Spread()
    routed = Pipeline(graph, steps=[router(adapter, fusion_depth=fusion_depth)], budget=BUDGET).retrieve(queries)
    paths = [
        Pipeline(graph, steps=steps, budget=BUDGET).retrieve(queries).ranking for steps in (DENSE_STEPS, GRAPH_STEPS)
    ]
    scores, depth = adapter.score(queries.texts), fusion_depth or BUDGET
    tops = [Ranking(path.nodes[:, :depth], path.scores[:, :depth]) for path in paths]
    fused = weighted_rank_fusion(tops, torch.stack([1 - scores, scores], 1), top_k=depth).padded(BUDGET)
    routes = choose_routes(scores, 0.25, 0.55)
    assert routes.bincount().tolist() == [4, 3, 3]  # 0.0 twice: the last query is empty
    assert torch.equal(routed.routes, routes)
    for row, route in enumerate(routes.tolist()):
        expected = {DENSE: paths[0], GRAPH: paths[1], FUSION: fused}[route]
        assert torch.equal(routed.ranking.nodes[row], expected.nodes[row])
        torch.testing.assert_close(routed.ranking.scores[row], expected.scores[row])
    assert {"route", "fuse", "retrieve", "graph"} <= set(routed.seconds)


def test_pairs_that_the_paths_read_are_counted(
    make_corpus: Callable, make_queries: Callable, pair_encoder: Any
) -> None:
    steps = [router(Spread(), graph=[VectorSearch, Rerank])]
    found = Pipeline(make_corpus(), steps=steps, budget=BUDGET, pair_encoder=pair_encoder).retrieve(make_queries(10))
    assert found.num_encodings.tolist() == [0, 0, 0, *[BUDGET] * 6, 0]


def test_a_step_after_the_router_goes_on_with_its_ranking(
    make_corpus: Callable, make_queries: Callable, pair_encoder: Any
) -> None:
    queries = make_queries(10)
    plain = Pipeline(make_corpus(), steps=[router(Spread())], budget=BUDGET).retrieve(queries)
    found = Pipeline(make_corpus(), steps=[router(Spread()), Rerank], budget=BUDGET, pair_encoder=pair_encoder)
    after = found.retrieve(queries)
    assert torch.equal(after.ranking.nodes.sort(1).values, plain.ranking.nodes.sort(1).values)
    assert not torch.equal(after.ranking.nodes, plain.ranking.nodes)
    assert torch.equal(after.routes, plain.routes)


class Reversed(Spread):
    low, high = 0.8, 0.2


@pytest.mark.parametrize(
    ("adapter", "settings", "message"),
    [
        (Spread(), {"dense": []}, "`dense` must contain at least one step, got none"),
        (Spread(), {"graph": []}, "`graph` must contain at least one step, got none"),
        (Spread(), {"rank_offset": 0.0}, r"`rank_offset` must be a finite number above 0, got 0\.0"),
        (Spread(), {"fusion_depth": 0}, "`fusion_depth` must be a positive integer, got 0"),
        (Reversed(), {}, r"`adapter` must have `low` below `high`, got 0\.8 and 0\.2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(adapter: Any, settings: Any, message: str, make_corpus: Callable) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(make_corpus(), steps=[router(adapter, **settings)])


def test_both_thresholds_belong_to_the_outer_paths() -> None:
    scores = torch.tensor([0.0, 0.3, 0.30001, 0.69999, 0.7, 1.0])
    named = [ROUTES[route] for route in choose_routes(scores, float(scores[1]), float(scores[4]))]
    assert named == ["dense", "dense", "fusion", "fusion", "graph", "graph"]
    assert route_shares(torch.zeros(0, dtype=torch.int64)) == {"dense": 0.0, "graph": 0.0, "fusion": 0.0}
    for low, high, only in ((-1.0, 2.0, "fusion"), (-1.0, 0.0, "graph"), (1.0, 2.0, "dense")):  # outside the scores
        routes = choose_routes(torch.tensor([0.0, 0.5, 1.0]), low, high)
        assert route_shares(routes) == {name: float(name == only) for name in ROUTES}
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.5 and 0\.5"):
        choose_routes(torch.zeros(1), 0.5, 0.5)
