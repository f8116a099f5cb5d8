"""The files of a run of evaluate.py, ``graphrerank report RUN1 RUN2`` without ranking again, and ``expect=RUN``."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from graphrerank.cli import report
from graphrerank.evaluation.records import to_plain
from graphrerank.evaluation.result import EvaluationResult
from tests.support.commands import RunCommand

Run = Callable[..., Path]


@pytest.fixture
def compare(tmp_path: Path) -> Run:
    def compare(*runs: Path, folder: str = "report", tested: Sequence[str] = ()) -> Path:
        arguments = [*map(str, runs), "--out", str(tmp_path / folder), "--resamples", "200"]
        assert report.main([*arguments, *(["--tested", *tested] if tested else [])]) == 0
        return tmp_path / folder

    return compare


@pytest.fixture(scope="module")
def job(ring: Path) -> tuple[str, ...]:
    return (f"datasets=[{ring}]", "checkpoint=base", "edge_ablations=[]", "retriever=hybrid", "retriever.top_k=4")


@pytest.fixture(scope="module")
def runs(run: Run, ring: Path, job: tuple[str, ...]) -> tuple[Path, Path]:
    """Two runs of a checkpoint on candidates of two retrievers; the first one draws its pictures."""
    expand = ("retriever=hybrid_expand", "retriever.top_k=8", "retriever.base_k=4", "retriever.num_seeds=4")
    return run(*job, folder="hybrid", pictures=True), run(*job[:3], *expand, folder="expand")


def copied(run: Path, folder: Path, **changed: object) -> Path:
    """Copy a run's result with other entries of its data set."""
    content = json.loads((run / "result.json").read_text())
    content["datasets"]["ring"].update(changed)
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(content))
    return folder


def test_a_run_leaves_a_report_and_plots(runs: tuple[Path, Path]) -> None:
    files = {str(path.relative_to(runs[0])) for path in runs[0].rglob("*") if path.is_file()}
    assert {
        "metrics.json", "queries.json", "report.html", "report.md", "result.json", "runs/ring.retriever.trec",
        "plots/ring.pareto.PR@10.png", "plots/ring.reliability.gatv2.png",
    } <= files  # fmt: skip
    pictures = list((runs[0] / "plots").glob("*.png"))
    assert len(pictures) == (runs[0] / "report.html").read_text().count('class="plot"')
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in pictures)
    assert min(path.stat().st_size for path in pictures) > 5000  # pixels, as a blank picture has none
    assert "<summary>Query by query</summary>" in (runs[0] / "report.html").read_text()
    assert "GATv2: a score as a probability (logistic), ECE 0." in (runs[0] / "report.html").read_text()
    content = json.loads((runs[0] / "result.json").read_text())["datasets"]["ring"]
    assert [(entry["system"], entry["num_pairs"]) for entry in content["reliability"]] == [("gatv2", 4 * 6)]


def test_runs_with_other_candidates(
    runs: tuple[Path, Path], compare: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = compare(*runs)
    found = EvaluationResult.load(folder).datasets["ring"]
    before = [EvaluationResult.load(path).datasets["ring"] for path in runs]
    rows = ["retriever", "ppr", "gcs", "rank_fusion", "gatv2"]
    assert set(found.systems) <= {*rows, *(f"{row} ({name})" for row in rows for name in ("hybrid", "expand"))}
    assert found.primary == "gatv2 (expand)"
    assert all(list(group.means) == list(found.systems) for group in found.breakdowns)
    ceilings = [f"{100 * part.ceiling:.2f}" for part in before]
    note = (f"candidates differ: hybrid 4 a query, ceiling of PR {ceilings[0]}; expand 8 a query, ceiling of PR "
            f"{ceilings[1]}")  # fmt: skip
    assert note in found.notes
    assert "config retriever.top_k: 4 in hybrid, 8 in expand" in found.notes
    assert any(line.startswith("hybrid: graphrerank evaluate ") for line in found.notes)
    markdown, page = ((folder / name).read_text() for name in ("report.md", "report.html"))
    assert f"- {note}" in markdown
    assert note in page
    printed = capsys.readouterr().out
    assert note in " ".join(printed.split())
    for system in found.systems.values():
        for measure, mean in system.means.items():
            assert measure.endswith("/multi") or f" {100 * mean:.2f}" in printed  # no number is cut
    assert "…" not in printed


def test_the_command_compares_finished_runs(runs: tuple[Path, Path], run_command: RunCommand, tmp_path: Path) -> None:
    other = copied(runs[0], tmp_path / "second")
    content = json.loads((other / "result.json").read_text())
    values = content["datasets"]["ring"]["systems"]["gatv2"]["values"]
    values["PR@10"] = [0.0 for _ in values["PR@10"]]
    (other / "result.json").write_text(json.dumps(content))
    done = run_command("report", str(runs[0]), str(other), "--out", str(tmp_path / "report"))
    assert done.stdout.splitlines()[-1] == str(tmp_path / "report")
    found = json.loads((tmp_path / "report" / "result.json").read_text())["datasets"]["ring"]
    assert list(found["systems"]) == ["retriever", "ppr", "gcs", "rank_fusion", "gatv2 (hybrid)", "gatv2 (second)"]
    assert set(found["systems"]["gatv2 (second)"]["values"]["PR@10"]) == {0.0}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "gatv2 (second)" in page
    assert "<summary>Query by query</summary>" in page  # with the rankings of the first run
    assert "no single queries of second: the run has no queries.json" in page


def test_answers_of_two_runs_are_tested_as_if_they_were_one(run: Run, ring: Path, compare: Run) -> None:
    settings = (f"datasets=[{ring}]", "measures=[nDCG@10]", "answers=extractive", "retriever=bm25")
    names = ["vector_search", "hipporag2_ppr"]
    one, two = (run(*settings, f"systems=[{name}]", folder=name) for name in names)
    whole = run(*settings, f"systems=[{','.join(names)}]", "significance_measures=[EM,F1,nDCG@10]", folder="whole")
    folder = compare(one, two, tested=["EM", "F1", "nDCG@10"])
    found, expected = (EvaluationResult.load(path).datasets["ring"] for path in (folder, whole))
    assert list(found.systems) == names
    assert [(test.baseline, test.measure) for test in found.tests] == [
        (names[0], measure) for measure in ("EM", "F1", "nDCG@10")
    ]
    assert any(test.difference for test in found.tests)
    assert to_plain(found.tests) == to_plain(expected.tests)
    assert "time and memory of each system were measured in its own run" in found.notes
    assert "--tested EM F1 nDCG@10" in EvaluationResult.load(folder).command
    with pytest.raises(
        ValueError,
        match=r"`tested` must be a subset of .*, got \['R@5'\]\. The measures on ring",
    ):
        compare(one, two, tested=["EM", "R@5"], folder="refused")


def test_what_cannot_be_compared_or_rendered_leaves_no_file(
    runs: tuple[Path, Path], compare: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ids = ["another", *EvaluationResult.load(runs[1]).datasets["ring"].query_ids[1:]]
    with pytest.raises(ValueError, match="hybrid and other must evaluate the same queries of ring"):
        compare(runs[0], copied(runs[1], tmp_path / "other", query_ids=ids))

    def broken(*_: object) -> list[Path]:
        raise RuntimeError("no pictures")

    monkeypatch.setattr("graphrerank.evaluation.result.drawn_plots", broken)
    with pytest.raises(RuntimeError, match="no pictures"):
        compare(runs[0], copied(runs[0], tmp_path / "twin"))
    assert not (tmp_path / "report").exists()


def test_the_same_run_again_has_the_expected_metrics(
    runs: tuple[Path, Path], run: Run, job: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = Path(shutil.copy(runs[0] / "metrics.json", tmp_path))
    run(*job, f"expect={runs[0]}")
    assert f"same as {runs[0]}" in capsys.readouterr().out
    metrics = json.loads(expected.read_text())
    metrics["datasets"]["ring"]["systems"]["gatv2"]["PR@10"] += 0.01
    expected.write_text(json.dumps(metrics))
    with pytest.raises(SystemExit, match="1"):
        run(*job, f"expect={expected}")
    printed = capsys.readouterr().out
    assert printed[printed.index("differs from") :].splitlines()[1].startswith("ring: gatv2 PR@10: ")
    with pytest.raises(ValueError, match=r"`expect` must be a metrics.json of graphrerank evaluate"):
        run(*job, f"expect={tmp_path / 'nowhere'}")


def test_training_runs_that_differ_only_in_their_seeds_are_aggregated(
    trained: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    """The manifest of a training run, copied as that of another seed."""
    sweep = tmp_path / "sweep"
    for seed in (1, 2):
        shutil.copytree(trained, sweep / str(seed))
        for file in (sweep / str(seed)).glob("*/manifest.json"):
            content = json.loads(file.read_text())
            content["config"]["seed"] = seed
            content["validation"]["score"] += seed / 100
            file.write_text(json.dumps(content))
    for named in ([str(sweep)], [str(sweep / "1"), str(sweep / "2")], [str(sweep / "*")]):
        done = run_command("report", *named, "--out", str(tmp_path / "report"), "--tested", "R@5")
        groups = json.loads((tmp_path / "report" / "seeds.json").read_text())["groups"]
        assert [(group["system"], group["seeds"]) for group in groups] in (
            [("gatv2", [1, 2]), ("mlp", [1, 2])],
            [("mlp", [1, 2]), ("gatv2", [1, 2])],
        )
        assert set(groups[0]["mean"]) == {"val/ndcg@10", "attack/test R@5"}
        assert groups[0]["std"]["val/ndcg@10"] == pytest.approx(0.01 / 2**0.5)
        assert "± 0.71" in done.stdout
    compared = run_command("report", "--compare", *named, "--out", str(tmp_path / "compared"), "--resamples", "100")
    assert "nDCG@10" in compared.stdout
    assert (tmp_path / "compared" / "result.json").is_file()
