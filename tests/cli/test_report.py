"""``graphrerank report RUN1 RUN2``: finished runs side by side, without ranking again."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from graphrerank.cli.report import compare as compare_into
from graphrerank.evaluation.records import to_plain
from graphrerank.evaluation.result import EvaluationResult

Compare = Callable[..., Path]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    def compare(*runs: Path, folder: str, tested: Sequence[str] = ()) -> Path:
        command = f"graphrerank report --tested {' '.join(tested)}"
        return compare_into(runs, tmp_path / folder, command, tested=tested, resamples=200, seed=0)

    return compare


@pytest.fixture
def runs(run: Callable[..., Path], ring: Path) -> tuple[Path, Path]:
    """Two runs of a checkpoint on candidates of two retrievers."""
    settings = (f"datasets=[{ring}]", "checkpoint=base", "counterfactuals=[]")
    return (
        run(*settings, "retriever=hybrid", "retriever.top_k=4", folder="hybrid"),
        run(
            *settings,
            "retriever=hybrid_expand",
            "retriever.top_k=8",
            "retriever.base_k=4",
            "retriever.num_seeds=4",
            folder="expand",
        ),
    )


def test_runs_with_other_candidates(
    runs: tuple[Path, Path], compare: Compare, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = compare(*runs, folder="report")
    study = EvaluationResult.load(folder).datasets["ring"]
    before = [EvaluationResult.load(path).datasets["ring"] for path in runs]
    assert before[0].densities != before[1].densities
    assert study.densities == before[1].densities
    names = ["retriever (hybrid)", "ppr (hybrid)", "gcs (hybrid)", "gatv2 (hybrid)",
             "retriever (expand)", "ppr (expand)", "gcs (expand)", "gatv2 (expand)"]  # fmt: skip
    assert set(study.systems) <= {*names, "retriever", "ppr", "gcs", "gatv2"}
    assert study.primary == "gatv2 (expand)"
    assert all(list(group.means) == list(study.systems) for group in study.breakdowns)
    ceilings = [f"{100 * part.ceiling:.2f}" for part in before]
    note = (f"candidates differ: hybrid 4 a query, ceiling of PR {ceilings[0]}; expand 8 a query, ceiling of PR "
            f"{ceilings[1]}; groups by graph density are of expand")  # fmt: skip
    assert note in study.notes
    assert "config retriever.top_k: 4 in hybrid, 8 in expand" in study.notes
    assert any(line.startswith("hybrid: python evaluate.py ") for line in study.notes)
    report, page = ((folder / name).read_text() for name in ("report.md", "report.html"))
    assert f"- {note}" in report
    assert note in page
    printed = capsys.readouterr().out
    assert note in " ".join(printed.split())
    for system in study.systems.values():
        for measure, mean in system.means.items():
            assert measure.endswith("/multi") or f" {100 * mean:.2f}" in printed  # no number is cut
    assert "…" not in printed


def test_answers_of_two_runs_are_tested_as_if_they_were_one(
    run: Callable[..., Path], ring: Path, compare: Compare
) -> None:
    settings = (f"datasets=[{ring}]", "measures=[nDCG@10]", "answers=extractive", "retriever=bm25")
    names = ["vector_search", "g_retriever", "hipporag2_ppr"]
    one = run(*settings, f"systems=[{names[0]}]", folder="one")
    two = run(*settings, f"systems=[{names[1]},{names[2]}]", folder="two")
    whole = run(*settings, f"systems=[{','.join(names)}]", "tested=[EM,F1,nDCG@10]", folder="whole")
    folder = compare(one, two, tested=["EM", "F1", "nDCG@10"], folder="report")
    found, expected = (EvaluationResult.load(path).datasets["ring"] for path in (folder, whole))
    assert list(found.systems) == names
    assert [(test.baseline, test.measure) for test in found.tests] == [
        (name, measure) for name in names[:2] for measure in ("EM", "F1", "nDCG@10")
    ]
    assert any(test.difference for test in found.tests)
    assert to_plain(found.tests) == to_plain(expected.tests)
    assert "times and memory of a system are those of its own run" in found.notes
    assert "--tested EM F1 nDCG@10" in EvaluationResult.load(folder).command
    with pytest.raises(ValueError, match=r"`tested` must be of measures that every run has, got \['R@5'\]; of ring"):
        compare(one, two, tested=["EM", "R@5"], folder="refused")


def test_what_cannot_be_compared_or_rendered_leaves_no_file(
    runs: tuple[Path, Path], compare: Compare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = json.loads((runs[1] / "result.json").read_text())
    content["datasets"]["ring"]["query_ids"][0] = "another"
    (runs[1] / "result.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="hybrid and expand must judge the same queries of ring"):
        compare(*runs, folder="refused")
    assert not (tmp_path / "refused").exists()

    def broken(*_: object) -> list[Path]:
        raise RuntimeError("no pictures")

    monkeypatch.setattr("graphrerank.evaluation.result.drawn_plots", broken)
    (tmp_path / "twin").mkdir()
    (tmp_path / "twin" / "result.json").write_text((runs[0] / "result.json").read_text())  # without a capsule
    with pytest.raises(RuntimeError, match="no pictures"):
        compare(runs[0], tmp_path / "twin", folder="broken")
    assert not (tmp_path / "broken").exists()
