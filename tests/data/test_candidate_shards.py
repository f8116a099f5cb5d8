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

from graphrerank.data import candidates, datamodule
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidates import CandidateShards, PreparedDataset, prepare, with_vectors, write_shards
from graphrerank.data.datamodule import CandidateDataModule, ShardOrder
from graphrerank.data.dataset import Dataset
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.model_inputs import PAIRS, VECTORS
from graphrerank.operators.bm25 import BM25Retriever
from tests.support.encoders import HashEncoder

RETRIEVER = partial(BM25Retriever, top_k=5)
FEATURES = ("base_score", "query_coverage")
Sources = dict[str, Any]  # arguments of the data module: data sets and their shards


def with_features(prepared: PreparedDataset) -> PreparedDataset:
    return prepared.with_features(FEATURES)


def encoded(dataset: Dataset, cache: Path) -> Dataset:
    vectors = with_vectors(dataset, HashEncoder(), cache)
    return replace(vectors, encoded_by=HashEncoder().fingerprint, known_fingerprint=dataset.fingerprint)


def rank(dataset: Dataset, folder: Path) -> PreparedDataset:
    build = {"encoder": HashEncoder(), "build_retriever": RETRIEVER}
    return with_features(prepare(encoded(dataset, folder), cache=folder, **build))


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


@pytest.fixture
def shards(dataset: Dataset, tmp_path: Path) -> CandidateShards:
    return write(dataset, tmp_path)


@pytest.fixture
def one(dataset: Dataset, shards: CandidateShards, tmp_path: Path) -> Sources:
    return {"prepared": {"one": rank(dataset, tmp_path)}, "shards": {"one": shards}}


@pytest.fixture
def mixed(dataset: Dataset, one: Sources, tmp_path: Path) -> Sources:
    """The data set, and a second one with other questions."""
    more = dataset.with_queries(torch.arange(len(dataset.query_ids)).flip(0)[2:])
    more = replace(more, name="two", query_texts=[f"{text} so" for text in more.query_texts])
    two = {"prepared": rank(more, tmp_path), "shards": write(more, tmp_path)}
    return {name: {**one[name], "two": two[name]} for name in one}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of shards that are read."""
    noted: list[Path] = []
    read = candidates.load_tensors
    monkeypatch.setattr(candidates, "load_tensors", lambda *args: noted.append(args[0]) or read(*args))
    return noted


def epoch_of(data: CandidateDataModule, epoch: int) -> Any:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return loader


def assert_equal(one: CandidateGraphs, other: CandidateGraphs) -> None:
    for name in (field.name for field in fields(CandidateGraphs) if field.name != "inputs"):
        here, there = getattr(one, name), getattr(other, name)
        assert (here is None and there is None) or torch.equal(here, there), name
    assert one.inputs.keys() == other.inputs.keys()
    assert all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


@pytest.mark.parametrize(
    ("sources", "shares", "edge_dropout"),
    [("one", None, 0.0), ("mixed", None, 0.5), ("mixed", {"one": 1.0, "two": 3.0}, 0.0)],
)
def test_a_buffer_for_all_gives_the_batches_of_memory(
    request: pytest.FixtureRequest, sources: str, shares: dict[str, float] | None, edge_dropout: float
) -> None:
    given: Sources = request.getfixturevalue(sources)
    hidden = CandidateAugmentation(FEATURES, edge_dropout=edge_dropout, score_dropout=0.3) if edge_dropout else None
    settings: dict[str, Any] = {"batch_size": 4, "seed": 3, "inputs": VECTORS, "shares": shares, "augmentation": hidden}
    streamed = CandidateDataModule(**given, buffer=48, **settings)
    memory = CandidateDataModule(given["prepared"], **settings)
    for epoch in range(2):
        for here, there in zip(epoch_of(streamed, epoch), epoch_of(memory, epoch), strict=True):
            assert_equal(here, there)
    if sources == "one":
        for here, there in zip(streamed.val_dataloader(), memory.val_dataloader(), strict=True):
            assert_equal(here, there)


@pytest.mark.parametrize("buffer", [1, 5, 11])
def test_a_small_buffer_serves_each_query_once_and_holds_few_shards(
    one: Sources, buffer: int, monkeypatch: pytest.MonkeyPatch, reads: list[Path]
) -> None:
    held, load = [], CandidateShards._load

    def noted(self: CandidateShards, number: int, hold: int) -> dict[str, torch.Tensor]:
        found = load(self, number, hold)
        held.append(len(self._held))
        return found

    monkeypatch.setattr(CandidateShards, "_load", noted)
    data = CandidateDataModule(**one, buffer=buffer, batch_size=4, seed=1)
    whole = list(CandidateDataModule(one["prepared"], batch_size=4, seed=1).train_dataloader())
    orders = []
    for epoch in range(2):
        batches = list(epoch_of(data, epoch))
        assert [batch.num_graphs for batch in batches] == [batch.num_graphs for batch in whole]
        orders.append(list(chain.from_iterable(batch.query_index.tolist() for batch in batches)))
    expected = sorted(chain.from_iterable(batch.query_index.tolist() for batch in whole))
    assert sorted(orders[0]) == sorted(orders[1]) == expected
    assert orders[0] != orders[1]
    assert max(held) == max(1, buffer // 5)
    assert len(reads) <= 2 * 3 * len(one["shards"]["one"].paths)  # a batch between two buffers may read some again


@pytest.mark.parametrize("buffer", [1, 20])
def test_mixed_sets_share_a_small_buffer(mixed: Sources, buffer: int, reads: list[Path]) -> None:
    """Each data set's batches come in its own order, that of its shards; which set comes is drawn."""
    loader = epoch_of(CandidateDataModule(**mixed, buffer=buffer, batch_size=4, seed=1), 1)
    drawn = list(loader.sampler)
    sizes = [list(of.sizes) for of in mixed["shards"].values()]
    parts = [batch.part for batch in drawn]
    assert len(drawn) == len(loader) == 12
    assert parts not in (sorted(parts), sorted(parts, reverse=True))
    for part, size in enumerate(map(sum, sizes)):
        items = [item for batch in drawn if batch.part == part for item in batch.items][:size]
        assert len(set(items)) == len(items)
    reads.clear()
    assert [batch.num_graphs for batch in loader] == [4] * 12
    for of, own in zip(mixed["shards"].values(), sizes, strict=True):
        assert len(of._held) == ShardOrder(own, buffer=buffer * sum(own) // sum(map(sum, sizes))).shards_at_once
    assert len(reads) <= 3 * sum(map(len, sizes))


def test_shards_that_were_written_are_not_ranked_again(
    dataset: Dataset, shards: CandidateShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stop: the first block is ranked for its features' names, and the one that is missing."""
    assert len(shards.paths) == 5
    shards.paths[3].unlink()
    ranked: list[list[str]] = []
    retrieve = BM25Retriever.retrieve
    monkeypatch.setattr(
        BM25Retriever, "retrieve", lambda self, queries: ranked.append(list(queries.ids)) or retrieve(self, queries)
    )
    again = write(dataset, tmp_path)
    assert again.paths == shards.paths
    assert ranked == [[f"q{i}" for i in range(5)], [f"q{i}" for i in range(15, 20)]]
    again.paths[0].write_bytes(b"damaged")
    with pytest.raises(ValueError, match=again.paths[0].name):
        write(dataset, tmp_path)


def test_processes_share_each_batch(one: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    data = CandidateDataModule(**one, buffer=10, batch_size=4, seed=1)
    whole = [batch.query_index.tolist() for batch in data.train_dataloader()]
    for rank in range(5):
        monkeypatch.setattr(datamodule, "process_share", lambda rank=rank: slice(rank, None, 5))
        assert [b.query_index.tolist() for b in data.train_dataloader()] == [queries[rank::5] for queries in whole]
    with pytest.raises(ValueError, match="`buffer` must be null for a model that reads pairs"):
        CandidateDataModule(**one, buffer=1, inputs=PAIRS)
    order = ShardOrder([3, 1, 7, 2], buffer=8)  # no item is lost where shards have many sizes
    assert order.shards_at_once == 1
    assert sorted(order(torch.Generator().manual_seed(0)).tolist()) == list(range(13))


class Noting(L.LightningModule):
    """Notes the queries of each step; may fail at one, as a machine may."""

    def __init__(self, stop_at: int | None, *, steps: int) -> None:
        super().__init__()
        self.steps, self.stop_at = steps, stop_at
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seen: list[list[int]] = []

    def training_step(self, batch: CandidateGraphs, _: int) -> torch.Tensor:
        if self.global_step == self.stop_at:
            raise RuntimeError("power cut")
        self.seen.append(batch.query_index.tolist())
        return (self.weight * batch.x.sum()).sum()

    def validation_step(self, batch: CandidateGraphs, *_: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert self.trainer.estimated_stepping_batches == self.steps  # reads batches before a checkpoint is restored
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("sources", "buffer", "stop_at"),
    [("one", None, 3), ("one", None, 8), ("one", 10, 3), ("one", 10, 6), ("one", 10, 8), ("mixed", 20, 17)],
)
def test_a_broken_run_goes_on_within_the_epoch(
    request: pytest.FixtureRequest, tmp_path: Path, sources: str, buffer: int | None, stop_at: int
) -> None:
    """Two epochs with a checkpoint after each step, until the end or a power cut."""
    given: Sources = request.getfixturevalue(sources)
    given = given if buffer else {"prepared": given["prepared"]}

    def run(name: str, *, stop_at: int | None = None, resume: Path | None = None) -> list[list[int]]:
        keep = ModelCheckpoint(tmp_path / name, save_last=True, every_n_train_steps=1)
        trainer = L.Trainer(
            max_epochs=2, callbacks=[keep], logger=False, enable_progress_bar=False, accelerator="cpu",
            use_distributed_sampler=False, enable_model_summary=False,
        )  # fmt: skip
        noting = Noting(stop_at, steps=24 if sources == "mixed" else 12)
        data = CandidateDataModule(**given, buffer=buffer, batch_size=4, seed=1)
        try:
            trainer.fit(noting, datamodule=data, ckpt_path=resume, weights_only=True)
        except RuntimeError:
            assert stop_at is not None
        return noting.seen

    whole = run("whole")
    assert run("broken", stop_at=stop_at) == whole[:stop_at]
    assert run("resumed", resume=tmp_path / "broken" / "last.ckpt") == whole[stop_at:]
