import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphrerank.evaluation.capsule import (
    SHOWN,
    capsule_differences,
    make_capsule,
    read_capsule,
    setting_differences,
    write_capsule,
)
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy

RUN = "q1 Q0 a 1 0.5 retriever\nq1 Q0 b 2 0.25 retriever\nq2 Q0 an id with blanks 1 0.5 retriever\n"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(
        name: str, *, scores: tuple[float, ...] = (0.5, 1.0), run: str = RUN, weights: str = "a", **changes
    ) -> Path:
        """A finished run's folder."""
        measures = {f"R@{k}": torch.tensor(scores).double() for k in range(1, 15)}
        system = SystemStudy("gatv2", "checkpoint", "runs/1", measures, {}, fingerprint=64 * weights)
        part = DatasetStudy("toy", "test", "f" * 64, ("q1", "q2"), ("", ""), (1, 1), {"gatv2": system}, ("R@1",))
        path = tmp_path / name
        (path / "runs").mkdir(parents=True)
        (path / "runs" / "toy.retriever.trec").write_text(run)
        facts = {
            "overrides": ["checkpoint=base"],
            "config": {"retriever": {"top_k": 100}},
            "versions": {"torch": "2.13.0"},
        }
        capsule = make_capsule(path, Study("", {"toy": part}, settings={"seed": 0}), **{**facts, **changes})
        write_capsule(path, capsule)
        return path

    return make


def test_a_capsule_written_and_read_is_the_same(folder) -> None:
    capsule = read_capsule(folder("a"))
    assert capsule.overrides == ["checkpoint=base"]
    assert capsule.measures["toy"]["gatv2"]["R@1"] == 0.75
    assert set(capsule.versions) == {"python", "torch"}
    assert capsule.data["toy"]["queries"] == 2


def test_two_runs_of_one_kind_are_the_same(folder) -> None:
    other_scores = RUN.replace("0.5", "0.75")  # of the lists only the order counts
    assert capsule_differences(folder("a"), folder("b", scores=(0.5, 1.0 + 1e-7), run=other_scores)) == []


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"versions": {"torch": "2.14.0"}}, ["versions torch: 2.13.0 then, 2.14.0 now"]),
        ({"config": {"retriever": {"top_k": 9}}}, ["config retriever.top_k: 100 then, 9 now"]),
        ({"config": {}}, ["config retriever.top_k: 100 then, nothing now"]),
        ({"weights": "b"}, ["weights gatv2: aaaaaaaaaaaa… then, bbbbbbbbbbbb… now"]),
        (
            {"run": RUN.replace("with blanks", "of another")},
            ["candidates of toy: those of 1 of 2 queries differ, first 'q2'"],
        ),
    ],
)
def test_every_difference_is_named(folder, changes: dict, lines: list[str]) -> None:
    assert capsule_differences(folder("a"), folder("b", **changes)) == lines


def test_measures_that_differ_are_named_up_to_some(folder) -> None:
    lines = capsule_differences(folder("a"), folder("b", scores=(0.5, 0.75)))
    assert lines[0] == "measures of toy, gatv2 R@1: 0.75 then, 0.625 now"
    assert len(lines) == SHOWN + 1
    assert lines[-1] == "measures of toy: 4 more"


def test_a_mean_that_is_none_now(folder) -> None:
    lines = capsule_differences(folder("a"), folder("b", scores=(torch.nan, torch.nan)))
    assert lines[0] == "measures of toy, gatv2 R@1: 0.75 then, None now"


def test_candidates_that_are_gone(folder) -> None:
    before, after = folder("a"), folder("b")
    (after / "runs" / "toy.retriever.trec").unlink()
    capsule = json.loads((after / "capsule.json").read_text())
    capsule["data"]["toy"]["candidates"] = None
    (after / "capsule.json").write_text(json.dumps(capsule))
    assert capsule_differences(before, after) == [f"candidates of toy: no toy.retriever.trec in {after}"]


def test_a_capsule_and_run_file_with_the_older_name_of_the_row(folder) -> None:
    before, after = folder("a"), folder("b")
    (before / "runs" / "toy.retriever.trec").rename(before / "runs" / "toy.base_ranking.trec")
    capsule = json.loads((before / "capsule.json").read_text())
    for path in (before, after):
        name = "base_ranking" if path is before else "retriever"
        capsule["measures"]["toy"] = {name: {"R@1": 0.5, "R_cap@2" if path is before else "CR@2": 0.5}}
        (path / "capsule.json").write_text(json.dumps(capsule))
    assert capsule_differences(before, after) == []
    (after / "runs" / "toy.retriever.trec").write_text(RUN.replace("with blanks", "of another"))
    capsule["data"]["toy"]["candidates"] = "0" * 64
    (after / "capsule.json").write_text(json.dumps(capsule))
    assert capsule_differences(before, after) == ["candidates of toy: those of 1 of 2 queries differ, first 'q2'"]


def test_settings_of_two_runs(folder) -> None:
    changes = {"config": {"retriever": {"top_k": 9}}, "weights": "b", "run": ""}
    runs = ("one", folder("a")), ("two", folder("b", **changes))
    assert setting_differences(*runs) == ["config retriever.top_k: 100 in one, 9 in two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; needed the folder of a finished run of evaluate.py"),
        ("[]", "not a capsule that can be read"),
        ('{"format": 9}', "needed format 1, found 9"),
        ('{"format": 1}', "not a capsule that can be read"),
    ],
)
def test_what_is_no_capsule_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "capsule.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_capsule(tmp_path)
