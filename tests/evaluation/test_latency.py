from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import RunRetriever
from graphrerank.evaluation.latency import retrieval_times, spread_over, stage_quantiles, time_stages
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever


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


def test_a_slow_system_is_timed_on_fewer_queries() -> None:
    seconds = iter([0.0, 8.0, 16.0, 24.0, 32.0])  # the beginning, then after each query
    times = time_stages([1, 2, 3, 4], lambda query: {"rerank": 8.0}, warm_up=0, clock=lambda: next(seconds))
    assert times == {"rerank": [8000.0, 8000.0, 8000.0]}  # the third query exceeds the 20 seconds
    assert next(seconds) == 32.0


def test_the_sum_is_over_queries_that_have_all_stages() -> None:
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


@pytest.mark.parametrize(("count", "wanted", "chosen"), [(5, 3, [0, 2, 4]), (2, 5, [0, 1]), (1, 1, [0])])
def test_indices_are_spread_evenly(count: int, wanted: int, chosen: list[int]) -> None:
    assert spread_over(count, wanted).tolist() == chosen
