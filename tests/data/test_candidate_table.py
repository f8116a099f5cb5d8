"""Candidates in mapped files: equal to those in memory, written block by block, continued after an interruption."""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import CandidateGraphs, Queries, Ranking
from graphrerank.core.model_inputs import VECTORS
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.data.candidate_table import STATE, CandidateTable, prepare_on_disk
from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.dataset import Dataset
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.training.training_data import TextMatchFeatures, with_matches
from tests.support.encoders import HashEncoder

FEATURES = {"text_match": True, "num_words": 4}
RETRIEVER = partial(BM25Retriever, top_k=5)


def assert_equal(one: CandidateGraphs, other: CandidateGraphs) -> None:
    """Products of vectors may be rounded otherwise in other blocks."""
    for name in (field.name for field in fields(CandidateGraphs) if field.name != "inputs"):
        here, there = getattr(one, name), getattr(other, name)
        assert (here is None and there is None) or here.dtype == there.dtype
        assert here is None or torch.allclose(here, there, rtol=0, atol=1e-6), name
    assert one.inputs.keys() == other.inputs.keys()
    assert all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


def on_disk(dataset: Dataset, cache: Path, **changes: Any) -> PreparedDataset:
    arguments: dict[str, Any] = {"encoder": None, "build_retriever": RETRIEVER, "block_size": 16}
    return prepare_on_disk(dataset, cache=cache, **{**arguments, **changes})


@pytest.mark.parametrize("block_size", [1, 16, 1000])
def test_against_candidates_in_memory(dataset: Dataset, tmp_path: Path, block_size: int) -> None:
    build = partial(HybridRetriever, top_k=6)
    memory = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path)
    memory = with_matches(memory, FEATURES)
    mapped = on_disk(
        dataset, tmp_path, encoder=HashEncoder(), build_retriever=build, block_size=block_size,
        add_features=TextMatchFeatures(FEATURES), features=TextMatchFeatures(FEATURES).description,
    )  # fmt: skip
    assert mapped.feature_names == memory.feature_names
    assert mapped.encoder_fingerprint == memory.encoder_fingerprint
    assert mapped.dataset.fingerprint == memory.dataset.fingerprint
    queries = torch.tensor([3, 17, 0, 39])
    assert_equal(mapped.graphs(queries, inputs=VECTORS), memory.graphs(queries, inputs=VECTORS))
    assert torch.equal(mapped.answerable("train"), memory.answerable("train"))
    assert mapped.ceiling("test") == memory.ceiling("test")
    assert mapped.with_features(mapped.feature_names) is mapped  # a copy of the columns would fill the memory


class CountingRetriever(BM25Retriever):
    """Retriever that records how many queries it ranks at once."""

    calls: list[int]

    def retrieve(self, queries: Queries) -> Ranking:
        self.calls.append(len(queries.ids))
        return super().retrieve(queries)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(CountingRetriever, "calls", calls, raising=False)
    return calls


def test_no_more_than_a_block_of_queries_is_ranked_at_once(dataset: Dataset, tmp_path: Path, calls: list[int]) -> None:
    blocks: list[int] = []

    def add_features(prepared: PreparedDataset) -> PreparedDataset:
        blocks.append(len(prepared.ranking))
        return prepared

    build = partial(CountingRetriever, top_k=5)
    on_disk(dataset, tmp_path, build_retriever=build, add_features=add_features)
    assert calls == blocks == [16, 16, 8]
    on_disk(dataset, tmp_path, build_retriever=build, add_features=add_features)
    assert calls == [16, 16, 8]  # complete, so nothing is ranked again


def test_an_interrupted_preparation_continues_after_its_last_block(
    dataset: Dataset, tmp_path: Path, calls: list[int]
) -> None:
    build = partial(CountingRetriever, top_k=5)

    def stop(prepared: PreparedDataset) -> PreparedDataset:
        if len(calls) == 3:
            raise KeyboardInterrupt
        return prepared

    with pytest.raises(KeyboardInterrupt):
        on_disk(dataset, tmp_path, build_retriever=build, add_features=stop)
    calls.clear()
    continued = on_disk(dataset, tmp_path, build_retriever=build)
    assert calls == [8]
    whole = on_disk(dataset, tmp_path / "other", build_retriever=build)
    assert torch.equal(continued.ranking.nodes, whole.ranking.nodes)
    assert torch.equal(continued.ranking.features, whole.ranking.features)


@pytest.mark.parametrize("name", ["features", STATE])
def test_a_damaged_block_is_written_again(dataset: Dataset, tmp_path: Path, calls: list[int], name: str) -> None:
    build = partial(CountingRetriever, top_k=5)
    whole = on_disk(dataset, tmp_path, build_retriever=build).ranking.features.clone()
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1  # in the second block of three
    (folder / name).write_bytes(content)
    calls.clear()
    with pytest.warns(UserWarning, match="damaged cache"):
        again = on_disk(dataset, tmp_path, build_retriever=build)
    assert calls == ([16, 8] if name == "features" else [16, 16, 8])
    assert torch.equal(again.ranking.features, whole)


def test_a_missing_column_is_written_again(dataset: Dataset, tmp_path: Path, calls: list[int]) -> None:
    build = partial(CountingRetriever, top_k=5)
    on_disk(dataset, tmp_path, build_retriever=build)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (folder / "nodes").unlink()
    calls.clear()
    with pytest.warns(UserWarning, match=r"damaged cache \(block 0\)"):
        on_disk(dataset, tmp_path, build_retriever=build)
    assert calls == [16, 16, 8]


def test_other_features_are_another_table(dataset: Dataset, tmp_path: Path) -> None:
    plain = on_disk(dataset, tmp_path)
    settings = TextMatchFeatures(FEATURES)
    matched = on_disk(dataset, tmp_path, add_features=settings, features=settings.description)
    assert matched.feature_names != plain.feature_names
    assert on_disk(dataset, tmp_path).feature_names == plain.feature_names


def test_blocks_of_different_shapes_are_refused(tmp_path: Path) -> None:
    table = CandidateTable.open(tmp_path)
    table.append({"nodes": torch.zeros(2, 3, dtype=torch.int64)}, ["base_score"])
    with pytest.raises(ValueError, match="all queries must have the same features and number of candidates"):
        table.append({"nodes": torch.zeros(2, 4, dtype=torch.int64)}, ["base_score"])
    assert CandidateTable.open(tmp_path).map(MappedPages())["nodes"].shape == (2, 3)


def test_a_data_set_without_queries(dataset: Dataset, tmp_path: Path) -> None:
    empty = dataset.with_queries(torch.zeros(0, dtype=torch.int64))
    assert on_disk(empty, tmp_path).ranking.nodes.shape == (0, 5)


def test_pages_are_released_after_each_batch(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped, released = on_disk(dataset, tmp_path), list[MappedPages]()
    monkeypatch.setattr(MappedPages, "release", lambda self: released.append(self))
    for queries in torch.split(torch.arange(12), 4):
        mapped.graphs(queries)
    assert released == [mapped.pages] * 3
