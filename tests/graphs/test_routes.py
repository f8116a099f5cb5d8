import pytest
import torch

from graphrerank.graphs.routes import ROUTES, choose_routes, route_shares


def test_both_thresholds_belong_to_the_outer_paths() -> None:
    scores = torch.tensor([0.0, 0.3, 0.30001, 0.69999, 0.7, 1.0])
    named = [ROUTES[route] for route in choose_routes(scores, float(scores[1]), float(scores[4]))]
    assert named == ["dense", "dense", "fusion", "fusion", "graph", "graph"]
    assert route_shares(torch.zeros(0, dtype=torch.int64)) == {"dense": 0.0, "graph": 0.0, "fusion": 0.0}
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.5 and 0\.5"):
        choose_routes(torch.zeros(1), 0.5, 0.5)


@pytest.mark.parametrize(("low", "high", "only"), [(-1.0, 2.0, "fusion"), (-1.0, 0.0, "graph"), (1.0, 2.0, "dense")])
def test_thresholds_outside_the_scores_send_all_one_way(low: float, high: float, only: str) -> None:
    routes = choose_routes(torch.tensor([0.0, 0.5, 1.0]), low, high)
    assert route_shares(routes) == {name: float(name == only) for name in ROUTES}
