from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphrerank.core.model_inputs import PAIRS, VECTORS
from graphrerank.data import datamodule
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.batch_plans import FixedBatches
from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.datamodule import CandidateDataModule, EpochBatches
from graphrerank.data.dataset import Dataset
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.encoders import HashEncoder


@pytest.fixture
def prepared(dataset: Dataset, tmp_path: Path) -> PreparedDataset:
    return prepare(dataset, encoder=HashEncoder(), build_retriever=partial(HybridRetriever, top_k=5), cache=tmp_path)


def epoch(num_items: int, number: int = 0, *, batch_size: int, seed: int | None = 0) -> list[list[int]]:
    batches = EpochBatches([num_items], batch_size=batch_size, seed=seed)
    batches.set_epoch(number)
    drawn = [batch.items for batch in batches]
    assert len(drawn) == len(batches)
    return drawn


def test_epochs_cover_every_item_once() -> None:
    for number in range(3):
        drawn = epoch(23, number, batch_size=5)
        assert [len(batch) for batch in drawn] == [5, 5, 5, 5, 3]
        assert sorted(chain.from_iterable(drawn)) == list(range(23))
    assert epoch(0, batch_size=3) == []


def test_order_is_a_function_of_seed_and_epoch() -> None:
    drawn = [epoch(50, number, batch_size=8, seed=3) for number in range(4)]
    torch.rand(7)  # torch's own generator plays no part
    assert epoch(50, 2, batch_size=8, seed=3) == drawn[2]  # without epochs 0 and 1 before it
    assert len({str(order) for order in drawn}) == 4
    assert epoch(50, 2, batch_size=8, seed=4) != drawn[2]
    assert epoch(7, 5, batch_size=3, seed=None) == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("world", [2, 5])
def test_processes_share_each_batch_with_its_augmentation(
    parts: dict[str, PreparedDataset], monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    augmentation = CandidateAugmentation(parts["ring"].feature_names, base_swap=0.5, score_dropout=0.5)
    mixed = CandidateDataModule(parts, batch_size=4, seed=5, augmentation=augmentation)
    one = CandidateDataModule(parts["ring"], batch_size=4, seed=1)
    for load in (mixed.train_dataloader, one.train_dataloader, one.val_dataloader):
        whole, served = list(load()), []
        for rank in range(world):
            monkeypatch.setattr(datamodule, "process_share", lambda rank=rank: slice(rank, None, world))
            served.append(list(load()))
        monkeypatch.undo()
        for batch, *shares in zip(whole, *served, strict=True):  # as many steps in each process
            for rank, share in enumerate(shares):
                queries = range(rank, batch.num_graphs, world)
                assert torch.equal(share.query_index, batch.query_index[rank::world])
                expected = [batch.x[batch.ptr[i] : batch.ptr[i + 1]] for i in queries]
                assert torch.equal(share.x, torch.cat(expected) if expected else batch.x[:0])


def test_training_leaves_out_queries_without_a_relevant_candidate(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared, batch_size=7)
    served = []
    for graphs in data.train_dataloader():
        assert (graphs.to_padded(graphs.relevance, fill=0.0) > 0).any(1).all()
        served += graphs.query_index.tolist()
    expected = [
        q
        for q in prepared.dataset.split("train").queries.tolist()
        if {q, q + 1} & set(prepared.ranking.nodes[q].tolist())
    ]
    assert sorted(served) == expected
    assert 0 < len(expected) < 24
    assert served != expected  # shuffled


def test_validation_keeps_every_query_in_order(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared, batch_size=4, inputs=VECTORS)
    loader = data.val_dataloader()
    batches = list(loader)
    assert set(batches[0].inputs) == {"query_vectors", "node_vectors"}
    assert next(iter(CandidateDataModule(prepared, val_split="train").val_dataloader())).inputs == {}
    with pytest.raises(ValueError, match=r"data set 'ring' must have the split 'dev', got the splits"):
        CandidateDataModule(prepared, val_split="dev").val_dataloader()
    data.trainer = SimpleNamespace(
        current_epoch=3, overfit_batches=0.0, strategy=SimpleNamespace(root_device=torch.device("cpu"))
    )
    assert data.train_dataloader().sampler.epoch == 3  # of a resumed run
    assert [q for graphs in batches for q in graphs.query_index.tolist()] == list(range(24, 30))
    assert [graphs.num_graphs for graphs in batches] == [4, 2]
    assert len(loader) == 2
    found = [bool(row.any()) for graphs in batches for row in graphs.to_padded(graphs.relevance, fill=0.0)]
    assert not all(found)  # also those that cannot be answered


def test_processes_build_the_batches_of_a_gpu_and_memory_is_pinned(
    parts: dict[str, PreparedDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    augmentation = CandidateAugmentation(parts["ring"].feature_names, base_swap=0.5, score_dropout=0.5)
    data = CandidateDataModule(parts, batch_size=4, seed=5, augmentation=augmentation)
    expected, here = list(data.train_dataloader()), data.train_dataloader()
    assert (here.num_workers, here.pin_memory) == (0, False)
    strategy = SimpleNamespace(root_device=torch.device("cuda"))
    data.trainer = SimpleNamespace(current_epoch=0, overfit_batches=0.0, strategy=strategy)
    loader = data.train_dataloader()
    assert loader.num_workers > 0
    assert loader.pin_memory
    batches = iter(loader)
    first = next(batches)
    assert data.state_dict() == {"epoch": 0, "served": 1}  # what was taken, not what waits
    for found, whole in zip([first, *batches], expected, strict=True):
        assert torch.equal(found.x, whole.x)
        assert torch.equal(found.query_index, whole.query_index)
    reads_pairs = CandidateDataModule(parts, inputs=PAIRS)
    reads_pairs.trainer = data.trainer
    assert reads_pairs.train_dataloader().num_workers == 0
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    assert torch.equal(first.pin_memory().x, first.x + 1)


@pytest.fixture
def parts(prepared: PreparedDataset) -> dict[str, PreparedDataset]:
    """Two sets of one kind; the queries of the second are told apart by their base scores."""
    shifted = replace(prepared.ranking, features=prepared.ranking.features + 100.0)
    return {"ring": prepared, "shifted": replace(prepared, ranking=shifted)}


def mixed_epoch(data: CandidateDataModule, number: int) -> list[tuple[str, list[int]]]:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(number)
    return [("shifted" if bool((g.x[:, 0] > 50).any()) else "ring", g.query_index.tolist()) for g in loader]


def test_mixture_sees_every_query_once_or_by_its_shares(parts: dict[str, PreparedDataset]) -> None:
    data = CandidateDataModule(parts, batch_size=1, seed=2)
    served = mixed_epoch(data, 0)
    one = CandidateDataModule(parts["ring"], batch_size=1)
    expected = sorted(q for graphs in one.train_dataloader() for q in graphs.query_index.tolist())
    for name in parts:
        assert sorted(q for part, batch in served if part == name for q in batch) == expected
    assert [part for part, _ in served] != sorted(part for part, _ in served)  # interleaved
    assert len(data.train_dataloader()) == len(served)
    assert mixed_epoch(data, 1) != served
    assert mixed_epoch(CandidateDataModule(parts, batch_size=1, seed=2), 1) == mixed_epoch(data, 1)
    assert mixed_epoch(CandidateDataModule(parts, batch_size=1, seed=3), 0) != served
    uneven = mixed_epoch(CandidateDataModule(parts, shares={"ring": 3, "shifted": 1}, batch_size=2), 0)
    names = [part for part, _ in uneven]
    assert abs(names.count("ring") - 3 * names.count("shifted")) <= 2
    assert all(len(batch) == 2 for _, batch in uneven)  # a set seen often wraps around, batches stay full


def test_mixture_validates_on_every_set_or_on_named_ones(parts: dict[str, PreparedDataset]) -> None:
    loaders = CandidateDataModule(parts, batch_size=4).val_dataloader()
    served = [[q for graphs in loader for q in graphs.query_index.tolist()] for loader in loaders]
    assert served == [list(range(24, 30))] * 2
    (loader,) = CandidateDataModule(parts, batch_size=4, validated=["shifted"]).val_dataloader()
    assert all(bool((graphs.x[:, 0] > 50).any()) for graphs in loader)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"shares": {"ring": 1.0}}, "`shares`"),
        ({"shares": {"ring": 1.0, "shifted": 0.0}}, "`shares`"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer, got 0"),
        ({"prepared": {}}, "`prepared`"),
    ],
)
def test_bad_arguments_are_refused(parts: dict[str, PreparedDataset], arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        CandidateDataModule(**({"prepared": parts} | arguments))
    parts["shifted"] = replace(parts["shifted"], feature_names=("base_score", "a", "b"))
    with pytest.raises(ValueError, match="same features"):
        CandidateDataModule(parts)


def queries_of(data: CandidateDataModule) -> list[list[int]]:
    return [graphs.query_index.tolist() for graphs in data.train_dataloader()]


@pytest.mark.parametrize("budget", [{}, {"max_nodes": 30}, {"max_nodes": 40, "max_edges": 60}])
def test_batches_do_not_depend_on_the_number_of_workers(
    parts: dict[str, PreparedDataset], budget: dict[str, int]
) -> None:
    augmentation = CandidateAugmentation(parts["ring"].feature_names, base_swap=0.5, score_dropout=0.5)
    settings: dict[str, Any] = {"batch_size": 4, "seed": 5, "augmentation": augmentation, **budget}
    here = list(CandidateDataModule(parts, num_workers=0, **settings).train_dataloader())
    data = CandidateDataModule(parts, num_workers=2, prefetch=3, **settings)
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.prefetch_factor) == (2, 3)
    for built, expected in zip(loader, here, strict=True):
        assert torch.equal(built.query_index, expected.query_index)
        assert torch.equal(built.x, expected.x)
        assert torch.equal(built.edge_index, expected.edge_index)
    assert data.state_dict() == {"epoch": 0, "served": len(here)}


def test_a_budget_limits_nodes_and_edges_of_training_and_validation(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared, max_nodes=20, max_edges=26, batch_size=1)
    for loader, split in ((data.train_dataloader(), "train"), (data.val_dataloader(), "val")):
        batches = list(loader)
        assert len(batches) == len(loader)
        assert all(graphs.num_nodes <= 20 and graphs.edge_index.shape[1] <= 26 for graphs in batches)
        assert any(graphs.num_graphs > 1 for graphs in batches)
        queries = prepared.answerable(split) if split == "train" else prepared.dataset.split(split).queries
        assert sorted(q for graphs in batches for q in graphs.query_index.tolist()) == queries.tolist()


def test_sizes_of_graphs_against_the_graphs(prepared: PreparedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank.data.candidates.SIZE_QUERIES", 3)
    queries = torch.tensor([31, 4, 7, 0, 12])
    sizes = prepared.graph_sizes(queries)
    single = [prepared.graphs(query.view(1)) for query in queries]
    assert sizes.nodes.tolist() == [graphs.num_nodes for graphs in single]
    assert sizes.edges is not None
    assert sizes.edges.tolist() == [graphs.edge_index.shape[1] for graphs in single]
    assert sizes.edges.any()
    assert prepared.graph_sizes(queries, with_edges=False).edges is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, "`num_workers` must not be negative, got -1"),
        ({"num_workers": 0, "prefetch": 2}, "`prefetch` must be None if `num_workers` is 0, got 2"),
        ({"num_workers": 2, "inputs": PAIRS}, "`num_workers` must be 0 for models that encode"),
        ({"max_nodes": 0}, "`max_nodes` must be a positive integer, got 0"),
    ],
)
def test_invalid_settings_of_loading_are_refused(
    prepared: PreparedDataset, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CandidateDataModule(prepared, **settings)


def windows_of(prepared: PreparedDataset, **settings: Any) -> list[list[int]]:
    loader = CandidateDataModule(prepared, batch_size=4, seed=3, **settings).train_dataloader()
    batches = [graphs.query_index.tolist() for graphs in loader]
    assert len(batches) == len(loader)
    return batches


@pytest.mark.parametrize("budget", [{}, {"max_nodes": 20}])
@pytest.mark.parametrize("shares", [None, {"ring": 1.0, "shifted": 3.0}])
@pytest.mark.parametrize("is_augmented", [True, False])
def test_a_buffer_for_all_queries_gives_the_batches_without_a_buffer(
    parts: dict[str, PreparedDataset], budget: dict[str, int], shares: dict[str, float] | None, is_augmented: bool
) -> None:
    augmentation = CandidateAugmentation(parts["ring"].feature_names, score_dropout=0.5) if is_augmented else None
    settings: dict[str, Any] = {"batch_size": 4, "seed": 3, "augmentation": augmentation, "shares": shares, **budget}
    plain, buffered = CandidateDataModule(parts, **settings), CandidateDataModule(parts, buffer=1000, **settings)
    for number in range(2):
        loaders = plain.train_dataloader(), buffered.train_dataloader()
        for loader in loaders:
            loader.sampler.set_epoch(number)
        for one, other in zip(*loaders, strict=True):
            assert torch.equal(one.query_index, other.query_index)
            assert torch.equal(one.x, other.x)


@pytest.mark.parametrize("budget", [{}, {"max_nodes": 20}, {"max_nodes": 20, "max_edges": 26}])
@pytest.mark.parametrize("buffer", [1, 5, 8])
def test_a_small_buffer_serves_each_query_once_in_an_order_of_the_seed(
    prepared: PreparedDataset, budget: dict[str, int], buffer: int
) -> None:
    data = CandidateDataModule(prepared, batch_size=4, seed=3, buffer=buffer, **budget)
    plain = CandidateDataModule(prepared, batch_size=4, seed=3, **budget)
    orders = []
    for number in (0, 1, 0):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(number)
        batches = [graphs.query_index.tolist() for graphs in loader]
        assert len(batches) == len(loader) == len(plain.train_dataloader())
        assert sorted(chain.from_iterable(batches)) == prepared.answerable("train").tolist()
        orders.append(batches)
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
    assert [q for graphs in data.val_dataloader() for q in graphs.query_index.tolist()] == list(range(24, 30))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_processes_do_not_change_the_order_of_a_buffer(prepared: PreparedDataset, num_workers: int) -> None:
    assert windows_of(prepared, buffer=5) == windows_of(prepared, buffer=5, num_workers=num_workers, prefetch=3)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_consecutive_items_of_a_buffer_come_from_few_places(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of blocks that are read for a window does not depend on the number of items."""
    monkeypatch.setattr("graphrerank.data.batch_plans.SHUFFLE_BLOCK", 8)
    plan = FixedBatches(size, 10, buffer=80)
    items = list(chain.from_iterable(plan.epoch(torch.Generator().manual_seed(1))))
    assert sorted(items) == list(range(size))
    starts = range(0, size - 160, 80)
    blocks = [len({item // 8 for item in items[start : start + 80]}) for start in starts]
    assert max(blocks) <= 20  # a window that is one item short shifts those after it
    assert items != sorted(items)


def test_a_mixture_keeps_the_windows_of_each_data_set(parts: dict[str, PreparedDataset]) -> None:
    data = CandidateDataModule(parts, batch_size=2, seed=2, buffer=10)
    sampler = data.train_dataloader().sampler
    for number in range(2):
        sampler.set_epoch(number)
        drawn = list(sampler)
        assert len({batch.seed for batch in drawn}) == len(drawn) == len(sampler)
        assert [batch.part for batch in drawn] != sorted(batch.part for batch in drawn)
        generator = torch.Generator().manual_seed(2 * 1_000_003 + number)
        for part, (plan, count) in enumerate(zip(sampler.plans, sampler.counts, strict=True)):
            expected = [items for items, _ in zip(plan.passes(generator), range(count), strict=False)]
            assert [batch.items for batch in drawn if batch.part == part] == expected


def test_an_invalid_buffer_is_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="`buffer` must be a positive integer, got 0"):
        CandidateDataModule(prepared, buffer=0)
