"""The files of a run of evaluate.py, and ``graphrerank report RUN1 RUN2``."""

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def judged(
    trained: Path, run_command, small_encoder: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run folder of evaluate.py."""
    folder = tmp_path_factory.mktemp("judged") / "first"
    done = run_command(
        "evaluate.py",
        f"checkpoint={trained}",
        *small_encoder,
        "resamples=200",
        f"hydra.run.dir={folder}",
        pictures=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_leaves_a_report_plots_and_a_capsule(judged: Path) -> None:
    files = {str(path.relative_to(judged)) for path in judged.rglob("*") if path.is_file()}
    assert {
        "capsule.json", "metrics.json", "report.html", "report.md", "study.json", "runs/attack.retriever.trec",
        "plots/attack.pareto.PR@10.png", "plots/attack.reliability.gatv2.png",
    } <= files  # fmt: skip
    page = (judged / "report.html").read_text(encoding="utf-8")
    assert "GATv2: a score as a probability (logistic), ECE 0.0" in page
    study = json.loads((judged / "study.json").read_text())["datasets"]["attack"]
    assert {one["system"] for one in study["reliability"]} == {"mlp", "gatv2"}
    assert all(one["num_pairs"] == 30 * len(study["query_ids"]) and one["ece"] < 0.1 for one in study["reliability"])


def test_finished_runs_compare_without_ranking_again(judged: Path, run_command, tmp_path: Path) -> None:
    other = tmp_path / "second"
    shutil.copytree(judged, other)
    study = json.loads((other / "study.json").read_text())
    values = study["datasets"]["attack"]["systems"]["gatv2"]["values"]
    values["PR@10"] = [1.0 for _ in values["PR@10"]]
    (other / "study.json").write_text(json.dumps(study))
    done = run_command("report", str(judged), str(other), "--out", str(tmp_path / "report"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report")
    found = json.loads((tmp_path / "report" / "study.json").read_text())["datasets"]["attack"]
    assert list(found["systems"]) == ["retriever", "ppr", "gcs", "mlp", "gatv2 (first)", "gatv2 (second)"]
    assert found["systems"]["gatv2 (second)"]["means"]["PR@10"] == 1.0
    assert "gatv2 (second)" in (tmp_path / "report" / "report.html").read_text()

    study["datasets"]["attack"]["query_ids"][0] = "another"
    (other / "study.json").write_text(json.dumps(study))
    done = run_command("report", str(judged), str(other), "--out", str(tmp_path / "refused"))
    assert done.returncode != 0
    assert "first and second judge different queries of attack" in done.stderr
    assert not (tmp_path / "refused" / "report.html").exists()
