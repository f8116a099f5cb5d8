from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphrerank.data import PreparedDataset, RetrievalDataset, datamodule, prepare
from graphrerank.data.datamodule import CandidateDataModule, EpochBatches
from graphrerank.operators import HybridRetriever


@pytest.fixture
def prepared(dataset: RetrievalDataset, counting_encoder: Any, tmp_path: Path) -> PreparedDataset:
    return prepare(
        dataset, encoder=counting_encoder(), build_retriever=partial(HybridRetriever, top_k=5), cache=tmp_path
    )


def epoch(batches: EpochBatches, number: int) -> list[list[int]]:
    batches.set_epoch(number)
    return list(batches)


def test_epochs_cover_every_item_once() -> None:
    batches = EpochBatches(23, batch_size=5, seed=0)
    for number in range(3):
        drawn = epoch(batches, number)
        assert [len(batch) for batch in drawn] == [5, 5, 5, 5, 3]
        assert sorted(chain.from_iterable(drawn)) == list(range(23))
    assert len(batches) == 5


def test_order_is_a_function_of_seed_and_epoch() -> None:
    one, other = EpochBatches(50, batch_size=8, seed=3), EpochBatches(50, batch_size=8, seed=3)
    drawn = [epoch(one, number) for number in range(4)]
    torch.rand(7)  # torch's own generator plays no part
    assert epoch(other, 2) == drawn[2]  # without epochs 0 and 1 before it
    assert len({str(order) for order in drawn}) == 4
    assert epoch(EpochBatches(50, batch_size=8, seed=4), 2) != drawn[2]


def test_without_seed_the_order_stays() -> None:
    batches = EpochBatches(7, batch_size=3, seed=None)
    assert epoch(batches, 0) == epoch(batches, 5) == [[0, 1, 2], [3, 4, 5], [6]]


def test_no_items() -> None:
    assert list(EpochBatches(0, batch_size=3, seed=1)) == []
    assert len(EpochBatches(0, batch_size=3, seed=1)) == 0


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("num_items", [23, 24])
def test_processes_share_the_items(num_items: int, seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for rank in range(3):
        monkeypatch.setattr(datamodule, "_rank_and_world", lambda rank=rank: (rank, 3))
        batches = EpochBatches(num_items, batch_size=4, seed=seed)
        drawn = list(batches)
        assert len(drawn) == len(batches)
        shares.append(list(chain.from_iterable(drawn)))
    together = sorted(chain.from_iterable(shares))
    assert len(set(together)) == len(together)
    if seed is None:
        assert together == list(range(num_items))  # validation: every query counts
    else:
        assert len({len(share) for share in shares}) == 1  # training: as many steps in each process
        assert len(together) == num_items // 3 * 3


def test_training_leaves_out_queries_without_a_relevant_candidate(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared, batch_size=7)
    served = []
    for graphs in data.train_dataloader():
        assert graphs.relevance is not None
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
    data = CandidateDataModule(prepared, batch_size=4)
    loader = data.val_dataloader()
    batches = list(loader)
    assert [q for graphs in batches for q in graphs.query_index.tolist()] == list(range(24, 30))
    assert [graphs.num_graphs for graphs in batches] == [4, 2]
    assert len(loader) == 2
    found = [bool(row.any()) for graphs in batches for row in graphs.to_padded(graphs.relevance, fill=0.0)]
    assert not all(found)  # also those that cannot be answered


def test_epochs_of_the_loader_differ_and_repeat(prepared: PreparedDataset) -> None:
    def order(loader: Any, number: int) -> list[int]:
        loader.sampler.set_epoch(number)
        return [q for graphs in loader for q in graphs.query_index.tolist()]

    loader = CandidateDataModule(prepared, batch_size=4, seed=1).train_dataloader()
    again = CandidateDataModule(prepared, batch_size=4, seed=1).train_dataloader()
    assert order(loader, 0) != order(loader, 1)
    assert order(again, 1) == order(loader, 1)


def test_resumed_loader_starts_at_the_epoch_of_its_trainer(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared)
    data.trainer = SimpleNamespace(current_epoch=3)  # type: ignore[assignment]
    assert data.train_dataloader().sampler.epoch == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("vectors", [True, False])
def test_batches_carry_vectors_where_asked(prepared: PreparedDataset, vectors: bool) -> None:
    graphs = next(iter(CandidateDataModule(prepared, vectors=vectors).val_dataloader()))
    assert (graphs.node_vectors is not None) == vectors
    assert (graphs.query_vectors is not None) == vectors


def test_splits_may_be_named(prepared: PreparedDataset) -> None:
    data = CandidateDataModule(prepared, train_split="test", val_split="train")
    assert next(iter(data.val_dataloader())).num_graphs == 24
    with pytest.raises(ValueError, match=r"data set 'ring' has the splits .*, got 'dev'"):
        CandidateDataModule(prepared, val_split="dev").val_dataloader()


def test_batch_size_out_of_range_is_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer, got 0"):
        CandidateDataModule(prepared, batch_size=0)
