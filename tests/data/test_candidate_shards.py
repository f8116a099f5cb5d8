"""Training queries from shards: the batches of the data module in memory, and of an unbroken run."""

from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from graphrerank.data import candidate_shards, datamodule
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidate_shards import CandidateShards, write_shards
from graphrerank.data.candidates import PreparedDataset, prepare, with_vectors
from graphrerank.data.datamodule import CandidateDataModule, ShardOrder
from graphrerank.data.dataset import Dataset
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.model_inputs import PAIRS, VECTORS
from graphrerank.operators.bm25 import BM25Retriever
from tests.support.encoders import HashEncoder

RETRIEVER = partial(BM25Retriever, top_k=5)
FEATURES = ("base_score", "query_coverage")


def with_features(prepared: PreparedDataset) -> PreparedDataset:
    return prepared.with_features(FEATURES)


def encoded(dataset: Dataset, cache: Path) -> Dataset:
    vectors = with_vectors(dataset, HashEncoder(), cache)
    return replace(vectors, encoded_by=HashEncoder().fingerprint, known_fingerprint=dataset.fingerprint)


@pytest.fixture
def prepared(dataset: Dataset, tmp_path: Path) -> PreparedDataset:
    ranked = prepare(encoded(dataset, tmp_path), encoder=HashEncoder(), build_retriever=RETRIEVER, cache=tmp_path)
    return with_features(ranked)


@pytest.fixture
def shards(dataset: Dataset, tmp_path: Path) -> CandidateShards:
    return write(dataset, tmp_path)


def write(dataset: Dataset, folder: Path) -> CandidateShards:
    return write_shards(
        encoded(dataset, folder),
        "train",
        encoder=HashEncoder(),
        build_retriever=RETRIEVER,
        with_features=with_features,
        folder=folder / "shards",
        shard_size=5,
    )


def assert_equal(one: CandidateGraphs, other: CandidateGraphs) -> None:
    for name in (field.name for field in fields(CandidateGraphs) if field.name != "inputs"):
        here, there = getattr(one, name), getattr(other, name)
        assert (here is None and there is None) or torch.equal(here, there), name
    assert one.inputs.keys() == other.inputs.keys()
    assert all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


def assert_equal_epochs(streamed: CandidateDataModule, memory: CandidateDataModule) -> None:
    """Compare the batches of two epochs."""
    for epoch in range(2):
        loaders = (streamed.train_dataloader(), memory.train_dataloader())
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        for one, other in zip(*loaders, strict=True):
            assert_equal(one, other)


def test_a_buffer_for_all_gives_the_batches_of_memory(prepared: PreparedDataset, shards: CandidateShards) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "seed": 3, "inputs": VECTORS}
    streamed = CandidateDataModule(prepared, shards={"": shards}, buffer=24, **settings)
    memory = CandidateDataModule(prepared, **settings)
    assert_equal_epochs(streamed, memory)
    for one, other in zip(streamed.val_dataloader(), memory.val_dataloader(), strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("buffer", [1, 5, 11])
def test_a_small_buffer_serves_each_query_once_and_holds_few_shards(
    prepared: PreparedDataset, shards: CandidateShards, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, reads = [], []
    load, read = CandidateShards._load, candidate_shards.load_tensors

    def noted(self: CandidateShards, number: int, hold: int) -> dict[str, torch.Tensor]:
        found = load(self, number, hold)
        held.append(len(self._held))
        return found

    monkeypatch.setattr(CandidateShards, "_load", noted)
    monkeypatch.setattr(candidate_shards, "load_tensors", lambda *args: reads.append(args[0]) or read(*args))
    data = CandidateDataModule(prepared, shards={"": shards}, buffer=buffer, batch_size=4, seed=1)
    whole = CandidateDataModule(prepared, batch_size=4, seed=1)
    orders = []
    for epoch in range(2):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        batches = list(loader)
        assert [batch.num_graphs for batch in batches] == [batch.num_graphs for batch in whole.train_dataloader()]
        orders.append(list(chain.from_iterable(batch.query_index.tolist() for batch in batches)))
    expected = sorted(chain.from_iterable(batch.query_index.tolist() for batch in whole.train_dataloader()))
    assert sorted(orders[0]) == sorted(orders[1]) == expected
    assert orders[0] != orders[1]
    assert max(held) == max(1, buffer // 5)
    assert len(reads) <= 2 * 3 * len(shards.paths)  # a batch between two buffers may read some again


def test_shards_that_were_written_are_not_ranked_again(
    dataset: Dataset, shards: CandidateShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stop: the first block is ranked for its features' names, and the one that is missing."""
    assert len(shards.paths) == 5
    shards.paths[3].unlink()
    ranked = []
    retrieve = BM25Retriever.retrieve
    monkeypatch.setattr(
        BM25Retriever, "retrieve", lambda self, queries: ranked.append(queries.ids) or retrieve(self, queries)
    )
    again = write(dataset, tmp_path)
    assert again.paths == shards.paths
    assert [list(ids) for ids in ranked] == [[f"q{i}" for i in range(5)], [f"q{i}" for i in range(15, 20)]]
    again.paths[0].write_bytes(b"damaged")
    with pytest.raises(ValueError, match=again.paths[0].name):
        write(dataset, tmp_path)


def test_processes_share_each_batch(
    prepared: PreparedDataset, shards: CandidateShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = CandidateDataModule(prepared, shards={"": shards}, buffer=10, batch_size=4, seed=1)
    whole = [batch.query_index.tolist() for batch in data.train_dataloader()]
    for rank in range(5):
        monkeypatch.setattr(datamodule, "process_share", lambda rank=rank: slice(rank, None, 5))
        served = [batch.query_index.tolist() for batch in data.train_dataloader()]
        assert served == [queries[rank::5] for queries in whole]


class Noting(L.LightningModule):
    """Notes the queries of each step; may fail at one, as a machine may."""

    def __init__(self, stop_at: int | None, *, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.stop_at = stop_at
        self.seen: list[list[int]] = []

    def training_step(self, batch: CandidateGraphs, _: int) -> torch.Tensor:
        if self.global_step == self.stop_at:
            raise RuntimeError("power cut")
        self.seen.append(batch.query_index.tolist())
        return (self.weight * batch.x.sum()).sum()

    def validation_step(self, batch: CandidateGraphs, *_: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert (
            self.trainer.estimated_stepping_batches == self.steps
        )  # asks for the batches before a checkpoint is restored
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(
    folder: Path, data: CandidateDataModule, *, max_epochs: int, steps: int,
    stop_at: int | None = None, resume: Path | None = None,
) -> list[list[int]]:  # fmt: skip
    """Train with a checkpoint after each step, until the end or a power cut; return each batch's queries."""
    keep = ModelCheckpoint(folder, save_last=True, every_n_train_steps=1)
    trainer = L.Trainer(
        max_epochs=max_epochs, callbacks=[keep], logger=False, enable_progress_bar=False, accelerator="cpu",
        use_distributed_sampler=False, enable_model_summary=False,
    )  # fmt: skip
    noting = Noting(stop_at, steps=steps)
    try:
        trainer.fit(noting, datamodule=data, ckpt_path=resume, weights_only=True)
    except RuntimeError:
        assert stop_at is not None
    return noting.seen


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("stop_at", [3, 6, 9, 12])
def test_a_broken_run_goes_on_within_the_epoch(
    prepared: PreparedDataset, shards: CandidateShards, tmp_path: Path, stop_at: int, is_streamed: bool
) -> None:
    streamed: dict[str, Any] = {"shards": {"": shards}, "buffer": 10} if is_streamed else {}

    def run(name: str, **stopped: Any) -> list[list[int]]:
        data = CandidateDataModule(prepared, **streamed, batch_size=4, seed=1)
        return fit(tmp_path / name, data, max_epochs=3, steps=18, **stopped)

    whole = run("whole")
    assert len(whole) == 18
    assert run("broken", stop_at=stop_at) == whole[:stop_at]
    assert run("resumed", resume=tmp_path / "broken" / "last.ckpt") == whole[stop_at:]


def test_pairs_are_not_streamed(prepared: PreparedDataset, shards: CandidateShards) -> None:
    with pytest.raises(ValueError, match="`buffer` must be null for a model that reads pairs"):
        CandidateDataModule(prepared, shards={"": shards}, buffer=1, inputs=PAIRS)


def test_no_order_is_lost_where_shards_have_many_sizes() -> None:
    order = ShardOrder([3, 1, 7, 2], buffer=8)
    assert order.shards_at_once == 1
    assert sorted(order(torch.Generator().manual_seed(0)).tolist()) == list(range(13))


@pytest.fixture
def mixed(dataset: Dataset, prepared: PreparedDataset, shards: CandidateShards, tmp_path: Path) -> dict[str, Any]:
    """The data set, and a second one with other questions."""
    more = dataset.with_queries(torch.arange(len(dataset.query_ids)).flip(0)[2:])
    more = replace(more, name="two", query_texts=[f"{text} so" for text in more.query_texts])
    ranked = prepare(encoded(more, tmp_path), encoder=HashEncoder(), build_retriever=RETRIEVER, cache=tmp_path)
    return {
        "prepared": {"one": prepared, "two": with_features(ranked)},
        "shards": {"one": shards, "two": write(more, tmp_path)},
    }


@pytest.mark.parametrize("shares", [None, {"one": 1.0, "two": 3.0}])
@pytest.mark.parametrize("edge_dropout", [0.0, 0.5])
def test_a_buffer_for_all_gives_the_mixed_batches_of_memory(
    mixed: dict[str, Any], shares: dict[str, float] | None, edge_dropout: float
) -> None:
    augmentation = (
        CandidateAugmentation(FEATURES, edge_dropout=edge_dropout, score_dropout=0.3) if edge_dropout else None
    )
    settings: dict[str, Any] = {"batch_size": 4, "seed": 3, "shares": shares, "augmentation": augmentation}
    streamed = CandidateDataModule(**mixed, buffer=48, **settings)
    memory = CandidateDataModule(mixed["prepared"], **settings)
    assert_equal_epochs(streamed, memory)
    assert len(list(streamed.val_dataloader())) == 2


@pytest.mark.parametrize("buffer", [1, 20])
def test_mixed_sets_share_a_small_buffer(mixed: dict[str, Any], buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each data set's batches come in its own order, that of its shards; which set comes is drawn."""
    reads: list[Path] = []
    read = candidate_shards.load_tensors
    monkeypatch.setattr(candidate_shards, "load_tensors", lambda *args: reads.append(args[0]) or read(*args))
    data = CandidateDataModule(**mixed, buffer=buffer, batch_size=4, seed=1)
    loader = data.train_dataloader()
    loader.sampler.set_epoch(1)
    drawn = list(loader.sampler)
    sizes = [list(of.sizes) for of in mixed["shards"].values()]
    assert len(drawn) == len(loader) == 12
    parts = [batch.part for batch in drawn]
    assert parts not in (sorted(parts), sorted(parts, reverse=True))
    for part, size in enumerate(map(sum, sizes)):
        items = [item for batch in drawn if batch.part == part for item in batch.items]
        assert len(set(items[:size])) == len(items[:size])
    reads.clear()
    assert [batch.num_graphs for batch in loader] == [4] * 12
    for of, own in zip(mixed["shards"].values(), sizes, strict=True):
        assert len(of._held) == ShardOrder(own, buffer=buffer * sum(own) // sum(map(sum, sizes))).shards_at_once
    assert len(reads) <= 3 * sum(map(len, sizes))  # a batch between two buffers may read some again


def test_a_broken_mixed_run_goes_on_within_the_epoch(mixed: dict[str, Any], tmp_path: Path) -> None:
    def run(name: str, **stopped: Any) -> list[list[int]]:
        data = CandidateDataModule(**mixed, buffer=20, batch_size=4, seed=1)
        return fit(tmp_path / name, data, max_epochs=2, steps=24, **stopped)

    whole = run("whole")
    assert run("broken", stop_at=17) == whole[:17]
    assert run("resumed", resume=tmp_path / "broken" / "last.ckpt") == whole[17:]
