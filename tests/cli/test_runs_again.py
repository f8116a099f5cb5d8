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
    run_command(
        "evaluate.py",
        f"checkpoint={trained}",
        *small_encoder,
        "resamples=200",
        f"hydra.run.dir={folder}",
        pictures=True,
    )
    return folder


def test_a_run_leaves_a_report_and_plots(judged: Path) -> None:
    files = {str(path.relative_to(judged)) for path in judged.rglob("*") if path.is_file()}
    assert {
        "metrics.json", "report.html", "report.md", "result.json", "runs/attack.retriever.trec",
        "plots/attack.pareto.PR@10.png", "plots/attack.reliability.gatv2.png",
    } <= files  # fmt: skip
    page = (judged / "report.html").read_text(encoding="utf-8")
    assert "GATv2: a score as a probability (logistic), ECE 0.0" in page
    study = json.loads((judged / "result.json").read_text())["datasets"]["attack"]
    assert {one["system"] for one in study["reliability"]} == {"mlp", "gatv2"}
    assert all(one["num_pairs"] == 30 * len(study["query_ids"]) and one["ece"] < 0.1 for one in study["reliability"])


def test_finished_runs_compare_without_ranking_again(judged: Path, run_command, tmp_path: Path) -> None:
    other = tmp_path / "second"
    shutil.copytree(judged, other)
    study = json.loads((other / "result.json").read_text())
    values = study["datasets"]["attack"]["systems"]["gatv2"]["values"]
    values["PR@10"] = [1.0 for _ in values["PR@10"]]
    (other / "result.json").write_text(json.dumps(study))
    done = run_command("report", str(judged), str(other), "--out", str(tmp_path / "report"))
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report")
    found = json.loads((tmp_path / "report" / "result.json").read_text())["datasets"]["attack"]
    assert list(found["systems"]) == ["retriever", "ppr", "gcs", "mlp", "gatv2 (first)", "gatv2 (second)"]
    assert set(found["systems"]["gatv2 (second)"]["values"]["PR@10"]) == {1.0}
    assert "gatv2 (second)" in (tmp_path / "report" / "report.html").read_text()

    study["datasets"]["attack"]["query_ids"][0] = "another"
    (other / "result.json").write_text(json.dumps(study))
    done = run_command("report", str(judged), str(other), "--out", str(tmp_path / "refused"), status=1)
    assert "first and second must judge the same queries of attack" in done.stderr
    assert not (tmp_path / "refused" / "report.html").exists()


@pytest.mark.slow  # ranks twice
def test_the_same_run_again_has_the_expected_metrics(
    judged: Path, trained: Path, run_command, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = ("evaluate.py", f"checkpoint={trained}", *small_encoder, "resamples=200")
    done = run_command(*arguments, f"expect={judged}", f"hydra.run.dir={tmp_path / 'again'}")
    assert f"same as {judged}" in done.stdout

    metrics = json.loads((judged / "metrics.json").read_text())
    metrics["datasets"]["attack"]["systems"]["gatv2"]["PR@10"] += 0.01
    (tmp_path / "other.json").write_text(json.dumps(metrics))
    done = run_command(
        *arguments, f"expect={tmp_path / 'other.json'}", f"hydra.run.dir={tmp_path / 'differs'}", status=1
    )
    said = done.stdout[done.stdout.index("differs from") :].splitlines()[1:]
    assert said[0].startswith("attack: gatv2 PR@10: ")

    done = run_command(*arguments, f"expect={tmp_path}", f"hydra.run.dir={tmp_path / 'refused'}", status=1)
    assert "`expect` must be a metrics.json of evaluate.py" in done.stderr
