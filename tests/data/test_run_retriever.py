import gzip
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.core.adapters import needs_vectors
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import RunRetriever, read_run
from graphrerank.evaluation.result import trec_run

RUN = "q1 Q0 b 1 3 x\nq1 Q0 a 2 1 x\nq2 Q0 d d 1 2 x\nq2 Q0 c 2 1.5 x\n"


def graph() -> CorpusGraph:
    return CorpusGraph.from_edges(["a", "b", "c", "d d"], [""] * 4, torch.zeros(0, 2))


def test_feature_names_are_those_of_the_run(tmp_path: Path) -> None:
    candidate = {"doc_id": "a", "score": 1, "features": {"splade": 2, "colbert": 3}}
    lines = [{"query_id": "q0", "candidates": []}, {"query_id": "q1", "candidates": [candidate]}]
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{ not read\n")
    assert RunRetriever(graph(), path=file).feature_names == ("base_score", "splade", "colbert")
    (tmp_path / "run.trec").write_text("")
    assert RunRetriever(graph(), path=tmp_path / "run.trec").feature_names == ("base_score",)


def test_queries_that_the_run_or_the_data_set_lacks(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_text(RUN)
    retriever = RunRetriever(graph(), path=file, top_k=2)
    ignoring = RunRetriever(graph(), path=file, top_k=2, ignore_unknown_queries=True)
    assert ignoring.retrieve(Queries(["q1"], [""])).nodes.tolist() == [[1, 0]]
    with pytest.raises(ValueError, match=r"run\.trec, line 3: expected a query of the data set"):
        retriever.retrieve(Queries(["q1"], [""]))
    with pytest.warns(UserWarning, match=r"run\.trec: candidates for 2 of 3 queries; none for q3"):
        found = retriever.retrieve(Queries(["q1", "q2", "q3"], [""] * 3))
    assert found.nodes[2].tolist() == [-1, -1]


def test_unknown_and_doubled_candidates_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "run.trec"
    file.write_text(RUN + "q1 Q0 z 3 1 x\nq9 Q0 a 1 1 x\nq1 Q0 a 4 1 x\n")
    with pytest.warns(
        UserWarning, match=r"1 x unknown document \(line 5\), 1 x unknown query .* 6\), 1 x duplicate cand.* 7\)$"
    ):
        found = RunRetriever(graph(), path=file, top_k=2, drop_unknown=True).retrieve(Queries(["q1", "q2"], [""] * 2))
    assert found.nodes.tolist() == [[1, 0], [3, 2]]


def test_prepared_from_a_run_without_an_encoder(write_folder: Any, tmp_path: Path) -> None:
    """A changed file is read again; an unchanged one comes from the cache."""
    dataset = Dataset.from_folder(write_folder(), splits=["train", "test"])
    file, build = tmp_path / "run.trec", partial(RunRetriever, path=str(tmp_path / "run.trec"), top_k=2)
    assert not needs_vectors(build)
    file.write_text(RUN)
    prepared = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert prepared.feature_names == ("base_score",)
    assert prepared.ranking.nodes.tolist() == [[1, 0], [3, 2]]
    assert prepared.ceiling("train") == 1.0
    prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    file.write_text(RUN.replace("q1 Q0 a", "q1 Q0 c"))
    again = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    assert again.ranking.nodes.tolist() == [[1, 2], [3, 2]]
    assert again.ceiling("train") == 0.0


QUERIES = ["q1", "q2", "q3"]
NODES = ["a", "b", "c", "d d"]


def read(path: Path, text: str, *, name: str = "run.trec", **options: Any) -> Any:
    file = path / name
    file.write_text(text, encoding="utf-8")
    return read_run(file, query_ids=QUERIES, node_ids=NODES, **{"top_k": 3} | options)


def test_a_trec_run_by_hand(tmp_path: Path) -> None:
    text = "q2 Q0 c 1 0.5 mine\nq2 Q0 b 2 0.5 mine\nq2 Q0 d d 3 9 mine\nq1 Q0 a 1 -1.5 mine\n\n"
    run = read(tmp_path, text)
    assert run.nodes.tolist() == [[0, -1, -1], [3, 1, 2], [-1, -1, -1]]  # by score, ties by node order
    inf = float("inf")
    assert run.scores.tolist() == [[-1.5, -inf, -inf], [9, 0.5, 0.5], [-inf, -inf, -inf]]
    assert run.features.tolist() == [[[-1.5], [0], [0]], [[9], [0.5], [0.5]], [[0], [0], [0]]]
    assert run.nodes.dtype == torch.int64
    assert run.scores.dtype == run.features.dtype == torch.float32


def test_ids_with_blanks_of_our_own_run_are_read_back(tmp_path: Path) -> None:
    queries, nodes = ["a b", "a", "x Q0"], ["d d", "d\u3000e", "Q0"]
    ranking = Ranking(torch.tensor([[1, 0], [2, -1], [0, 1]]), torch.tensor([[2.0, 1], [3, -torch.inf], [5, 4]]))
    (tmp_path / "run.trec").write_text(trec_run(queries[:2], nodes, ranking.select(torch.arange(2)), tag="t"))
    run = read_run(tmp_path / "run.trec", query_ids=queries[:2], node_ids=nodes, top_k=2)
    assert torch.equal(run.nodes, ranking.nodes[:2])


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_jsonl_with_features_by_hand(tmp_path: Path) -> None:
    text = lines(
        {"query_id": "q3", "candidates": [{"doc_id": "a", "score": 1, "features": {"bm25": 2.5, "dense": 0}}]},
        {"query_id": "q1", "candidates": []},
        {
            "query_id": "q2",
            "candidates": [
                {"doc_id": "a", "score": 0.25, "features": {"dense": 3, "bm25": 4}},
                {"doc_id": "d d", "score": 0.5, "features": {"dense": 5, "bm25": 6}},
            ],
        },
    )
    run = read(tmp_path, text, name="run.jsonl", top_k=2)
    assert run.nodes.tolist() == [[-1, -1], [3, 0], [0, -1]]
    assert run.features.tolist() == [[[0] * 3] * 2, [[0.5, 6, 5], [0.25, 4, 3]], [[1, 2.5, 0], [0] * 3]]
    (tmp_path / "run.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    again = read_run(tmp_path / "run.jsonl.gz", query_ids=QUERIES, node_ids=NODES, top_k=2)
    assert torch.equal(again.features, run.features)


GOOD = {"doc_id": "a", "score": 1.0, "features": {"f": 1}}


def line(*candidates: Any, query_id: Any = "q1") -> str:
    return lines({"query_id": query_id, "candidates": candidates})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.trec", "q1 Q0 a 1 1\n", "line 1: expected 6 columns"),
        ("run.trec", "q1\tQ0\ta\tb\t1\t1\tx\n", "line 1: expected 6 columns"),
        (
            "run.trec",
            "q1 Q0 a 1 1 x\nq1 Q0 z 1 1 x\n",
            r"line 2: expected a document of the corpus \(or `drop_unknown`\), got 'z'",
        ),
        ("run.trec", "q1 Q0 a 1 1 x\nq1 Q0 a 2 0 x\n", "line 2: expected each document once per query, got 'a for"),
        ("run.trec", "q1 Q0 a 1 nan x\n", "line 1: expected a finite number as score, got 'nan'"),
        ("run.trec", "q1 Q0 a 1 one x\n", "line 1: expected a finite number as score, got 'one'"),
        ("run.trec", "", "expected a candidate for at least one of 3 queries, got none"),
        ("run.jsonl", "{\n", "line 1: expected JSON"),
        ("run.jsonl", line(query_id=0.5), "line 1: expected `query_id`: Input should be a valid string, got 0.5"),
        ("run.jsonl", line(GOOD, {"doc_id": "a"}), "expected `candidates.1.score`: Field required"),
        ("run.jsonl", line(GOOD | {"score": "1"}), "expected `candidates.0.score`: Input should"),
        ("run.jsonl", line(GOOD | {"score": 1e99}), "expected `candidates.0.score`: Input should"),
        ("run.jsonl", line(GOOD | {"features": {"f": None}}), "`candidates.0.features.f`: Input"),
        ("run.jsonl", line(GOOD, GOOD | {"doc_id": "b", "features": {}}), r"the features \['f'\]"),
        ("run.jsonl", line(GOOD | {"features": {"base_score": 1}}), "no feature named base_score"),
        ("run.jsonl", 2 * line(), "line 2: expected each query on one line"),
        ("run.jsonl", line(GOOD, GOOD | {"score": 7}), "line 1: expected each document once per query"),
        ("run.jsonl", line(GOOD, query_id="z"), "line 1: expected a query of the data set"),
        ("run.jsonl", line(), "expected a candidate for at least one of 3 queries"),
    ],
)
def test_bad_runs(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        read(tmp_path, text, name=name)


@pytest.mark.parametrize("seed", range(20))
def test_against_sorted(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pairs = rng.sample([(q, n) for q in range(3) for n in range(4)], rng.randint(1, 12))
    listed = [(q, n, float(rng.randint(-2, 2))) for q, n in pairs]
    text = lines(
        *(
            {"query_id": QUERIES[q], "candidates": [{"doc_id": NODES[n], "score": s} for p, n, s in listed if p == q]}
            for q in rng.sample(range(3), 3)
        )
    )
    top_k = rng.randint(1, 5)
    run = read(tmp_path, text, name="run.jsonl", top_k=top_k)
    for q in range(3):
        expected = [n for _, n, _ in sorted((r for r in listed if r[0] == q), key=lambda r: (-r[2], r[1]))][:top_k]
        assert run.nodes[q].tolist() == expected + [-1] * (top_k - len(expected))
