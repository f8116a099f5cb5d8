"""Batches with a budget of nodes and edges."""

from itertools import chain, islice, pairwise

import pytest
import torch
from torch import Tensor

from graphrerank.data.batch_plans import BudgetBatches, FixedBatches, GraphSizes, bucket_limits, budget_capacity
from graphrerank.data.datamodule import EpochBatches
from graphrerank.utils.checks import UserError


@pytest.fixture
def sizes() -> GraphSizes:
    """Graphs of 300 queries with up to 100 nodes and 400 edges."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randint(1, 101, (300,), generator=generator)
    edges = (nodes * torch.rand(300, generator=generator) * 4).long()
    return GraphSizes(nodes, edges)


@pytest.fixture
def plan(sizes: GraphSizes) -> BudgetBatches:
    return BudgetBatches(budget_capacity(sizes, max_nodes=500, max_edges=900))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def totals(batches: list[list[int]], numbers: Tensor) -> list[int]:
    return [int(numbers[batch].sum()) for batch in batches]


def test_each_epoch_has_each_item_once_within_the_budget(sizes: GraphSizes, plan: BudgetBatches) -> None:
    epochs = [list(plan.epoch(generator(seed))) for seed in range(5)] + [list(plan.epoch(None))]
    for batches in epochs:
        assert sorted(chain.from_iterable(batches)) == list(range(300))
        assert len(batches) == plan.num_batches
        assert max(totals(batches, sizes.nodes)) <= 500
        assert max(totals(batches, sizes.edges)) <= 900
    assert epochs[0] == list(plan.epoch(generator(0)))
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}


def test_a_budget_is_mostly_used(sizes: GraphSizes) -> None:
    """The number of batches is at most a third above the lower bound."""
    plan = BudgetBatches(budget_capacity(sizes, max_nodes=500, max_edges=None))
    assert plan.num_batches <= 4 / 3 * -(-int(sizes.nodes.sum()) // 500)


def test_passes_repeat_epochs(plan: BudgetBatches) -> None:
    twice = list(islice(plan.passes(generator(0)), 2 * plan.num_batches))
    first, second = twice[: plan.num_batches], twice[plan.num_batches :]
    assert first == list(plan.epoch(generator(0)))
    assert sorted(chain.from_iterable(second)) == list(range(300))
    assert first != second


def test_buckets_leave_at_most_a_ninth_unused() -> None:
    limits = bucket_limits(1000)
    assert all((after - 1) / before <= 9 / 8 for before, after in pairwise(limits))
    assert limits == sorted(set(limits))


def test_a_graph_above_the_budget_is_refused(sizes: GraphSizes) -> None:
    largest = int(sizes.nodes.max())
    assert budget_capacity(sizes, max_nodes=largest, max_edges=None).min() == 1
    with pytest.raises(
        UserError, match=f"`max_nodes` must be at least the size of the largest graph, {largest}, got 9"
    ):
        budget_capacity(sizes, max_nodes=9, max_edges=None)
    with pytest.raises(UserError, match="`max_edges` must be at least the size of the largest graph"):
        budget_capacity(sizes, max_nodes=None, max_edges=9)
    with pytest.raises(UserError, match="`max_edges` must be a positive integer, got 0"):
        budget_capacity(sizes, max_nodes=None, max_edges=0)


@pytest.mark.parametrize("empty", [BudgetBatches(torch.tensor([], dtype=torch.int64)), FixedBatches(0, 4)])
def test_no_items_have_no_batches(empty: BudgetBatches | FixedBatches) -> None:
    assert empty.num_batches == 0
    assert list(empty.epoch(None)) == []


def test_a_sampler_with_a_budget_resumes_within_an_epoch(plan: BudgetBatches) -> None:
    def sampler(**progress: int | bool) -> EpochBatches:
        batches = EpochBatches([300], batch_size=1, seed=3, plans=[plan], progress=dict(progress))
        batches.set_epoch(2)
        return batches

    whole = list(sampler())
    assert len(whole) == len(sampler()) == plan.num_batches
    assert list(sampler(epoch=2, served=7, resumed=True)) == whole[7:]
    mixed = EpochBatches([300, 10], batch_size=5, seed=3, shares=[1, 1], plans=[plan, FixedBatches(10, 5)])
    half = round((plan.num_batches + 2) / 2)
    assert mixed.counts == [half, half]
    assert [len(batch.items) for batch in mixed if batch.part == 1] == [5] * half
