import math

import torch

from graphrerank.core import Ranking
from graphrerank.evaluation.comparisons import (
    break_down,
    compare_systems,
    differences_to_best,
    length_groups,
    paired_tests,
    query_differences,
    relevant_groups,
)
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import DatasetResult, SystemResult


def result_of(
    scores: dict[str, torch.Tensor], ids: list[str], texts: list[str], rankings: dict[str, Ranking] | None = None
) -> DatasetResult:
    systems = {
        name: SystemResult(name, "run", name, {"R@5": row}, {}, ranking=(rankings or {}).get(name))
        for name, row in scores.items()
    }
    return DatasetResult("toy", "test", "f", ids, texts, [2] * len(ids), systems, ("R@5",))


def test_the_largest_gains_and_losses() -> None:
    base = torch.full((30,), 0.5, dtype=torch.float64)
    ours = base + torch.linspace(-0.3, 0.29, 30, dtype=torch.float64)
    ours[3], base[4] = 0.5, math.nan  # no change; does not count
    ids = [f"q{row:02}" for row in range(30)]
    found = query_differences(result_of({"b": base, "a": ours}, ids, ids), baseline="b")
    assert [one.query_id for one in found[:10]] == [f"q{row}" for row in range(29, 19, -1)]
    assert [one.query_id for one in found[10:]] == ["q00", "q01", "q02", *(f"q{row:02}" for row in range(5, 12))]
    assert all(one.system_score < one.baseline_score for one in found[10:])
    assert found[0].num_relevant == 2


def test_means_of_groups() -> None:
    scores = {"a": torch.tensor([1.0, 0.0, math.nan]), "b": torch.tensor([0.5, 0.5, math.nan])}
    groups = {"relevant nodes": relevant_groups([1, 1, 30])}
    found = result_of(scores, list("xyz"), list("xyz"))
    (one,) = break_down(found, groups, measure="R@5")  # nothing counts in the other one
    assert (one.by, one.group, one.num_queries, one.means) == ("relevant nodes", "1", 2, {"a": 0.5, "b": 0.5})


def test_groups_cover_every_query_once() -> None:
    relevant = relevant_groups([1, 2, 3, 5, 6, 20, 21, 100])
    assert torch.stack(list(relevant.values())).sum(0).tolist() == [1] * 8


def test_groups_of_equal_size_by_length() -> None:
    texts = [" ".join("x" * number) for number in (1, 2, 3, 4, 9, 10)]
    groups = length_groups(texts)
    assert {name: inside.nonzero().flatten().tolist() for name, inside in groups.items()} == {
        "1 to 2 words": [0, 1], "3 to 4 words": [2, 3], "9 to 10 words": [4, 5]
    }  # fmt: skip
    assert list(length_groups(["a b"] * 5)) == ["2 words"]
    assert list(length_groups([*["a"] * 5, "a b c"])) == ["1 words", "3 words"]
    assert list(length_groups(["a"])) == ["1 words"]


PLAN = EvaluationPlan(["R@5"], resamples=50)


def test_one_system_alone_is_compared_with_nothing() -> None:
    alone = result_of({"a": torch.tensor([1.0, 0.5], dtype=torch.float64)}, list("xy"), list("xy"))
    assert (paired_tests(alone, PLAN), differences_to_best(alone)) == ([], [])
    assert compare_systems(alone, PLAN).tests == []


def test_single_queries_are_compared_with_the_best_of_the_others() -> None:
    scores = {"weak": [0.0, 0.0], "strong": [1.0, 0.0], "mine": [0.0, 1.0]}
    rows = {name: torch.tensor(row, dtype=torch.float64) for name, row in scores.items()}
    compared = compare_systems(result_of(rows, list("xy"), list("xy")), PLAN)
    assert [(one.query_id, one.baseline, one.difference) for one in compared.query_differences] == [
        ("y", "strong", 1.0), ("x", "strong", -1.0),
    ]  # fmt: skip
    assert [(test.system, test.baseline, test.difference) for test in compared.tests] == [
        ("mine", "weak", 0.5), ("mine", "strong", 0.0),
    ]  # fmt: skip
