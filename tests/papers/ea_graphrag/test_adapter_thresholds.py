import pytest
import torch
from torch import Tensor

from graphrerank.graphs.routes import choose_routes
from graphrerank_papers.ea_graphrag.adapter_thresholds import _candidates, choose_thresholds

SECONDS = (0.1, 3.0, 3.2)


def queries(seed: int, num_queries: int = 14, levels: int = 9) -> tuple[Tensor, Tensor]:
    """Scores with ties, and paths that are right more or less often along them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, levels + 1, (num_queries,), generator=generator) / levels
    likely = torch.stack([1 - scores, scores, torch.full_like(scores, 0.7)], dim=1)
    return scores, (torch.rand(num_queries, 3, generator=generator) < likely).double()


def objective(scores: Tensor, correct: Tensor, low: float, high: float, price: float) -> float:
    total = 0.0
    for score, right in zip(scores.tolist(), correct.tolist(), strict=True):
        path = 0 if score <= low else 1 if score >= high else 2
        total += right[path] - price * SECONDS[path]
    return total / len(scores)


def brute_force(scores: Tensor, correct: Tensor, price: float) -> float:
    """The best of all pairs of thresholds on a fine grid, in loops."""
    grid = [-0.5, *(k / 90 for k in range(91)), 1.5]
    pairs = [(low, high) for low in grid for high in grid if low < high]
    return max(objective(scores, correct, low, high, price) for low, high in pairs)


@pytest.mark.parametrize("price", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_against_brute_force(seed: int, price: float) -> None:
    scores, correct = queries(seed)
    choice = choose_thresholds(scores, correct, SECONDS, price=price, samples=5)
    assert choice.low < choice.high
    assert choice.objective == pytest.approx(brute_force(scores, correct, price))
    assert choice.objective == pytest.approx(objective(scores, correct, choice.low, choice.high, price))
    assert choice.objective == pytest.approx(choice.accuracy - price * choice.seconds)
    assert choice.objective >= max(choice.alone.values()) - 1e-9  # each path alone is among the choices
    assert sum(choice.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
def test_without_fusion_against_brute_force(seed: int) -> None:
    scores, correct = queries(seed)
    choice = choose_thresholds(scores, correct, SECONDS, price=0.02, fuse=False, samples=5)
    cuts = [(k / 90, k / 90 + 1e-9) for k in range(-1, 92)]
    assert choice.shares["fusion"] == 0
    assert choice.objective == pytest.approx(max(objective(scores, correct, low, high, 0.02) for low, high in cuts))


def test_seconds_of_each_query_go_with_their_query() -> None:
    scores, correct = queries(0)
    every = torch.tensor(SECONDS, dtype=torch.float64).expand(len(scores), 3)
    for fuse in (True, False):
        same, rows = (
            choose_thresholds(scores, correct, seconds, price=0.02, fuse=fuse, samples=20)
            for seconds in (SECONDS, every)
        )
        assert same == rows
    scores = torch.tensor([0.9, 0.1, 0.5])
    seconds = torch.tensor([[9.0, 1.0, 9.0], [1.0, 9.0, 9.0], [9.0, 9.0, 1.0]])
    choice = choose_thresholds(scores, torch.ones(3, 3), seconds, price=0.1, samples=5)
    assert choice.seconds == 1
    assert choose_routes(scores, choice.low, choice.high).tolist() == [1, 0, 2]


def planted(num_queries: int = 300) -> tuple[Tensor, Tensor]:
    """Dense is right up to 0.3, graph from 0.7 on, fusion between them."""
    scores = torch.linspace(0, 1, num_queries)
    right = torch.stack([scores < 0.3, scores > 0.7, (scores >= 0.3) & (scores <= 0.7)], dim=1)
    return scores, right.double()


def test_planted_thresholds_are_found_with_their_intervals() -> None:
    choice = choose_thresholds(*planted(), SECONDS, price=0.01, samples=200)
    assert choice.accuracy == 1
    assert choice.low == pytest.approx(0.3, abs=0.01)
    assert choice.high == pytest.approx(0.7, abs=0.01)
    for (low, high), true in ((choice.low_interval, 0.3), (choice.high_interval, 0.7)):
        assert true - 0.05 < low <= high < true + 0.05
    assert list(choice.shares) == ["dense", "graph", "fusion"]
    assert list(choice.shares.values()) == pytest.approx([0.3, 0.3, 0.4], abs=0.01)


def test_intervals_are_wide_where_nothing_is_known() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(100, generator=generator)
    correct = (torch.rand(100, 3, generator=generator) < 0.5).double()
    choice = choose_thresholds(scores, correct, (1.0, 1.0, 1.0), price=0.0, samples=200)
    assert choice.high_interval[1] - choice.low_interval[0] > 0.5


def test_bootstrap_against_naive_choices() -> None:
    scores, correct = queries(1, 12)
    order = scores.argsort(stable=True)  # that samples are drawn of
    scores, correct = scores[order], correct[order]
    choice = choose_thresholds(scores, correct, SECONDS, price=0.05, samples=41, seed=3)  # the 2.5% quantile is the 2nd
    lows, highs = _candidates(scores.double().unique())
    least, most = [], []  # of the low thresholds that are as good as the best
    for rows in torch.randint(12, (41, 12), generator=torch.Generator().manual_seed(3)):
        found = [
            (objective(scores[rows], correct[rows], low, high, 0.05 + 1e-9), min(1.0, max(0.0, low)))
            for low in lows.tolist()
            for high in highs.tolist()
            if low < high
        ]
        best = [low for reached, low in found if reached > max(found)[0] - 1e-12]
        least.append(min(best))
        most.append(max(best))
    least, most = sorted(least), sorted(most)
    assert least[1] <= choice.low_interval[0] <= most[1]
    assert least[39] <= choice.low_interval[1] <= most[39]
    assert least[1] < least[39]


@pytest.mark.parametrize(
    ("right", "seconds", "path"),
    [([1, 0, 0], SECONDS, 0), ([0, 1, 0], SECONDS, 1), ([0, 0, 1], SECONDS, 2), ([1, 1, 1], (2.0, 1.0, 3.0), 1)],
)
def test_one_path_for_all_holds_for_any_later_score(
    right: list[int], seconds: tuple[float, float, float], path: int
) -> None:
    choice = choose_thresholds(
        torch.tensor([0.4, 0.5, 0.6]), torch.tensor([right] * 3).double(), seconds, price=0.0, samples=5
    )
    assert choice.accuracy == 1
    assert choose_routes(torch.tensor([0.0, 0.3, 0.5, 0.7, 1.0]), choice.low, choice.high).tolist() == [path] * 5


def test_scores_a_rounding_apart_are_parted() -> None:
    scores = torch.tensor([0.5, 0.5 + 2**-24])
    assert scores[0] < scores[1]
    choice = choose_thresholds(scores, torch.eye(3)[:2].double(), SECONDS, price=0.0, samples=5)
    assert choice.accuracy == 1
    assert choice.shares == {"dense": 0.5, "graph": 0.5, "fusion": 0.0}


def test_repeats_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = (choose_thresholds(*queries(2), SECONDS, price=0.02, samples=50, seed=4) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("odd", "match"),
    [
        ({"scores": torch.tensor([0.1, 1.2])}, r"`scores` must be one or more numbers in \[0, 1\]"),
        ({"scores": torch.tensor([])}, "`scores` must be one or more"),
        ({"correct": torch.ones(2, 2)}, r"`correct` must have shape \[2, 3\] and lie in \[0, 1\], got \(2, 2\)"),
        ({"correct": torch.full((2, 3), torch.nan)}, "`correct` must have shape"),
        (
            {"seconds": [1.0, 2.0]},
            r"`seconds` must be finite times of dense, graph, fusion, \[3\] .*, got \[1.0, 2.0\]",
        ),
        ({"seconds": [1.0, 2.0, -1.0]}, "`seconds` must be finite"),
        ({"price": -0.1}, "`price` must be finite and not negative, got -0.1"),
        ({"samples": 0}, "`samples` must be a positive integer, got 0"),
    ],
)
def test_arguments_are_checked(odd: dict[str, object], match: str) -> None:
    arguments = {
        "scores": torch.tensor([0.1, 0.2]),
        "correct": torch.ones(2, 3),
        "seconds": SECONDS,
        "price": 0.1,
        "samples": 5,
    }
    with pytest.raises(ValueError, match=match):
        choose_thresholds(**(arguments | odd))  # type: ignore[arg-type]
