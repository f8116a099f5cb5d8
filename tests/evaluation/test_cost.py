from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import RunRetriever
from graphrerank.evaluation.cost import (
    peak_memory_mib,
    retrieval_times,
    stage_quantiles,
    time_stages,
    with_peak_memory,
)
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever

MIB = 1 << 18  # float32 numbers


def test_peak_memory_of_one_piece_of_work() -> None:
    def work(size: int) -> float:
        return float(torch.ones(size * MIB).sum())

    _, large = with_peak_memory(lambda: work(256))
    _, small = with_peak_memory(lambda: work(8))
    if large is None or small is None:
        pytest.skip("peaks of resident memory are reset on Linux alone")
    assert 128 < large - small < 320
    assert peak_memory_mib() >= large  # the whole process's peak is not forgotten


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1 << 10), ("darwin", 1 << 20)])
def test_the_unit_of_the_peak_is_the_systems(platform: str, unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the system reports bytes, which were once taken for KiB."""
    monkeypatch.setattr("graphrerank.evaluation.cost.sys.platform", platform)
    monkeypatch.setattr("graphrerank.evaluation.cost._highest", 0.0)
    usage = SimpleNamespace(ru_maxrss=3 * unit)
    monkeypatch.setattr("graphrerank.evaluation.cost.resource.getrusage", lambda _: usage)
    assert peak_memory_mib() == 3.0


def test_stages_of_each_query() -> None:
    timed: list[int] = []

    def run(query: int) -> dict[str, float]:
        timed.append(query)
        return {"graph": 0.001 * query, **({"route": 0.5} if query == 3 else {})}

    times = time_stages([1, 2, 3], run)
    assert timed == [1, 2, 1, 2, 3]  # two to warm up
    assert times == {"graph": pytest.approx([1.0, 2.0, 3.0]), "route": [0.0, 0.0, 500.0]}
    found = stage_quantiles(times)
    assert found["graph"] == pytest.approx({"p50": 2.0, "p95": 2.9})
    assert found["total"]["p50"] == pytest.approx(2.0)
    assert found["total"]["p95"] == pytest.approx(452.9)


def test_a_slow_system_is_timed_on_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank.evaluation.cost.MOST_SECONDS", 0.0)
    assert time_stages([1, 2, 3], lambda query: {"rerank": 1.0}, warm_up=0) == {"rerank": [1000.0]}
    assert stage_quantiles({"a": [1.0, 2.0], "b": [1.0]})["total"] == {"p50": 2.0, "p95": 2.0}


class LocalRetriever(BM25Retriever):
    fingerprint = "hash of a local model"


def test_a_search_is_timed_and_a_lookup_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "a cat"}\n{"_id": "b", "text": "a dog"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "cat"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    (tmp_path / "run.trec").write_text("1 Q0 a 1 2.5 x\n")
    dataset, queries = Dataset.from_folder(tmp_path), torch.tensor([0])
    build = partial(BM25Retriever, top_k=2)
    assert retrieval_times(prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path), queries) == {}
    data = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path, keep_retriever=True)
    with monkeypatch.context() as patch:
        patch.setattr(BM25Retriever, "__init__", None)  # once a second one was built, for the times alone
        assert list(retrieval_times(data, queries)) == ["retrieve"]
    assert list(retrieval_times(replace(data, retriever=LocalRetriever(dataset.graph)), queries)) == ["retrieve"]
    lookup = RunRetriever(dataset.graph, path=tmp_path / "run.trec")
    assert retrieval_times(replace(data, retriever=lookup), queries) == {}
    expanding = ExpandRetriever(dataset.graph, base=lambda _, **__: lookup, similarity_weight=0)
    assert retrieval_times(replace(data, retriever=expanding), queries) == {}
