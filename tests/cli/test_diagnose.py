"""``graphrerank doctor DATA`` on a folder that is judged, and on one that is not."""

import csv
import json
from pathlib import Path

import pytest

from graphrerank.cli.diagnose import next_command
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.decision import Decision
from graphrerank.evaluation.result import EvaluationResult
from tests.support.commands import RunCommand
from tests.support.folders import write_films


def test_a_judged_folder(run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    folder, run = write_films(tmp_path / "films", edges=True, judged=True), tmp_path / "run"
    settings = ("resamples=200", "retriever=hybrid_expand", "retriever.top_k=8", "retriever.base_k=4")
    settings = (*settings, "retriever.num_seeds=4")
    done = run_command("doctor", str(folder), *small_encoder, *settings, f"hydra.run.dir={run}")
    found = json.loads((run / "diagnosis.json").read_text())
    assert found["questions"] == "all judged questions"
    assert found["num_queries"] == 12
    (edges,) = found["shape"]["types"]
    assert edges == {"edges": "reference", "pairs": 12, "mean_neighbours": 1.0, "share_joined": 1.0}
    result = EvaluationResult.load(run).datasets["films"]
    assert list(result.systems) == ["retriever", "ppr", "gcs", "rank_fusion", "without the graph", "with the graph"]
    assert result.ceiling >= result.base_ceiling
    assert {change.edges for change in result.counterfactuals} == {"shuffled", "removed"}
    assert found["verdict"]["sentence"] in done.stdout
    assert f"  {found['verdict']['next_step']}" in done.stdout
    assert found["decision"]["sentence"] in done.stdout
    assert "ms" not in next(line for line in done.stdout.splitlines() if "nDCG@10 ┃" in line or "nDCG@10┃" in line)
    assert "| without the graph |" in (run / "report.md").read_text()


def test_without_judgements_a_set_to_judge(
    run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    folder, run = write_films(tmp_path / "films", edges=False, judged=False), tmp_path / "run"
    arguments = (str(folder), *small_encoder, "num_queries=5", f"hydra.run.dir={run}")
    done = run_command("doctor", *arguments)
    assert "so edges are extracted from the texts (data.edges=auto)" in done.stdout
    assert "The questions have no judgements" in done.stdout
    with (run / "to_judge.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["query-id"] for row in rows}) == 5
    for row in rows:
        row["score"] = str(int(row["corpus-id"][1:] == row["query-id"][1:]))
    (folder / "qrels").mkdir(exist_ok=True)
    with (folder / "qrels" / "test.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    judged = Dataset.from_folder(folder).splits["test"]
    assert len(judged.query) == sum(row["score"] == "1" for row in rows) >= 1


def test_without_questions(run_command: RunCommand, tmp_path: Path) -> None:
    folder = write_films(tmp_path / "films", edges=True, judged=False, questions=False)
    done = run_command("doctor", str(folder), f"hydra.run.dir={tmp_path / 'run'}")
    assert "reference: 12 edges, 1.00 neighbours of a passage, 100.0% of the passages have one" in done.stdout
    assert "The data set has no questions" in done.stdout
    assert f"next: graphrerank judge {folder}" in done.stdout
    assert f"graphrerank doctor {folder} data.drafted=200" in done.stdout


@pytest.mark.slow
def test_drafted_questions_are_named(run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    folder = write_films(tmp_path / "films", edges=True, judged=False, questions=False)
    data = ("data=folder", f"data.path={folder}", "data.drafted=30", f"hydra.run.dir={tmp_path / 'run'}")
    done = run_command("doctor", str(folder), *data, *small_encoder)
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text())["questions"] == "drafted questions"
    assert "On drafted questions the graph changes" in done.stdout


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("retriever", "graphrerank serve checkpoint=base index=d pipeline=vector_search retriever=hybrid"),
        (
            "ppr",
            "graphrerank prepare my_corpus data=folder data.path=d data.edges=auto && "
            "graphrerank serve checkpoint=base index=my_corpus pipeline=rerank_ppr",
        ),
        (
            "without the graph",
            "graphrerank prepare my_corpus data=folder data.path=d data.edges=[] data.entities=null && "
            "graphrerank serve checkpoint=base index=my_corpus",
        ),
    ],
)
def test_the_next_command_serves_the_system(system: str, command: str) -> None:
    assert next_command(Decision("deploy", system, ""), "d", "base", ["data.edges=auto"]) == command


def test_the_next_command_asks_for_more_questions() -> None:
    assert next_command(Decision("unclear", "ppr", "", 40), "d", "base") == "graphrerank judge d    # 40 more questions"
