"""Finished runs of evaluate.py, done again and compared: ``verify=RUN`` and ``report=RUN1,RUN2``."""

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def judged(trained: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of evaluate.py."""
    folder = tmp_path_factory.mktemp("judged") / "first"
    done = run_command(
        "evaluate.py", f"checkpoint={trained}", "resamples=200", f"hydra.run.dir={folder}", pictures=True
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


@pytest.mark.slow  # ranks twice
def test_a_run_done_again_is_the_same_but_for_what_was_changed(judged: Path, run_command, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(judged, earlier)
    done = run_command("evaluate.py", f"verify={earlier}", f"hydra.run.dir={tmp_path / 'again'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"same as {earlier}"

    capsule = json.loads((earlier / "capsule.json").read_text())
    capsule["versions"]["torch"] = "1.0"
    capsule["data"]["attack"]["fingerprint"] = "0" * 64
    capsule["measures"]["attack"]["gatv2"]["PR@10"] += 0.01
    (earlier / "capsule.json").write_text(json.dumps(capsule))
    run = earlier / "runs" / "attack.retriever.trec"
    lines = run.read_text().splitlines()
    run.write_text("\n".join(lines[1:]) + "\n")
    capsule["data"]["attack"]["candidates"] = "0" * 64
    (earlier / "capsule.json").write_text(json.dumps(capsule))
    done = run_command("evaluate.py", f"verify={earlier}", f"hydra.run.dir={tmp_path / 'more'}")
    assert done.returncode == 1
    said = done.stdout[done.stdout.index("differs:") :].splitlines()[1:]
    assert [line.split(":")[0] for line in said] == [
        "versions torch", "data attack fingerprint", "candidates of attack", "measures of attack, gatv2 PR@10",
    ]  # fmt: skip
    assert f"differ, first {lines[0].split()[0]!r}" in said[2]


def test_finished_runs_compare_without_ranking_again(judged: Path, run_command, tmp_path: Path) -> None:
    other = tmp_path / "second"
    shutil.copytree(judged, other)
    study = json.loads((other / "study.json").read_text())
    values = study["datasets"]["attack"]["systems"]["gatv2"]["values"]
    values["PR@10"] = [1.0 for _ in values["PR@10"]]
    (other / "study.json").write_text(json.dumps(study))
    done = run_command("evaluate.py", f"report={judged},{other}", f"hydra.run.dir={tmp_path / 'report'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report")
    found = json.loads((tmp_path / "report" / "study.json").read_text())["datasets"]["attack"]
    assert list(found["systems"]) == ["retriever", "ppr", "gcs", "mlp", "gatv2 (first)", "gatv2 (second)"]
    assert found["systems"]["gatv2 (second)"]["means"]["PR@10"] == 1.0
    assert "gatv2 (second)" in (tmp_path / "report" / "report.html").read_text()

    study["datasets"]["attack"]["query_ids"][0] = "another"
    (other / "study.json").write_text(json.dumps(study))
    done = run_command("evaluate.py", f"report={judged},{other}", f"hydra.run.dir={tmp_path / 'refused'}")
    assert done.returncode != 0
    assert "first and second judge different queries of attack" in done.stderr
    assert not (tmp_path / "refused" / "report.html").exists()
