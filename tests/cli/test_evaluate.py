import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from graphrerank.cli.evaluate import renamed_setting
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.tables import p_text
from graphrerank.models.checkpoint import PRETRAINED
from tests.support.commands import manifest_of, systems_of

QUERIES = 6  # of `ring`, of the test split
Run = Callable[..., Path]


def written(folder: Path) -> tuple[EvaluationResult, dict[str, Any], str]:
    return (
        EvaluationResult.load(folder),
        json.loads((folder / "metrics.json").read_text()),
        (folder / "report.md").read_text(),
    )


def test_any_systems_on_the_same_queries(run: Run, ring: Path, mine: Path) -> None:
    folder = run(
        f"datasets=[{ring}]", f"systems=[vector_search,{mine}]", "checkpoint=[attack,base-1]",
        "measures=[nDCG@10,PR@2,R_cap@1,TR,Coverage@2,AP@10]",
    )  # fmt: skip
    whole, metrics, report = written(folder)
    result = whole.datasets["ring"]
    assert list(result.systems) == ["retriever", "ppr-attack", "ppr-base-1", "gcs-attack", "gcs-base-1",
                                    "vector_search", "ring.mine", "attack", "base-1"]  # fmt: skip
    assert [one.kind for one in result.systems.values()] == [
        *["operator"] * 5, "pipeline", "run", "checkpoint", "checkpoint",
    ]  # fmt: skip
    assert result.measures == ["nDCG@10", "PR@2", "CR@1", "TR", "Coverage@2", "AP@10"]
    assert list(result.query_ids) == [f"q{i}" for i in range(QUERIES)]
    means = {name: one.means for name, one in result.systems.items()}
    assert means["base-1"]["Coverage@2"] >= means["attack"]["Coverage@2"] > 0
    assert means["vector_search"] == means["retriever"]  # the same retriever, so the same candidates
    foreign = result.systems["ring.mine"]
    assert (foreign.missing, foreign.cost) == (["q5"], None)
    assert foreign.means["CR@1"] == pytest.approx(5 / 6)
    assert foreign.tied_share == pytest.approx(4 / 6)
    assert "ring.mine ranks nothing for 1 queries, which count as 0: q5" in report
    assert {test.baseline for test in result.tests} == set(result.systems) - {"base-1"}
    assert {(one.system, one.edges) for one in result.counterfactuals} == {
        (name, edges) for name in [*list(result.systems)[1:5], "attack", "base-1"] for edges in ("shuffled", "removed")
    }
    removed = {one.system: one.mean for one in result.counterfactuals if one.edges == "removed"}
    assert removed["gcs-base-1"] == pytest.approx(means["retriever"]["nDCG@10"])
    cost = result.systems["base-1"].cost
    assert list(cost.ms) == ["retrieve", "graph", "rerank", "total"]
    assert metrics["datasets"]["ring"]["systems"]["base-1"]["nDCG@10"] == means["base-1"]["nDCG@10"]
    assert metrics["datasets"]["ring"]["systems"]["ring.mine"]["missing"] == 1
    assert {path.name for path in (folder / "runs").iterdir()} == {f"ring.{name}.trec" for name in result.systems}
    for title in ("Tests", "Cost", "Groups of queries", "Other edges", "Queries"):
        assert f"### {title}" in report


def test_all_outputs_print_the_same_numbers(
    run: Run, ring: Path, mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal, metrics.json, report.md, report.html and result.json: every mean, interval, p-value and latency."""
    monkeypatch.setenv("COLUMNS", "160")
    folder = run(f"datasets=[{ring}]", f"systems=[vector_search,{mine}]", "checkpoint=[base]", "edge_ablations=[]")
    whole, metrics, report = written(folder)
    page = html.unescape((folder / "report.html").read_text())
    printed = " ".join(capsys.readouterr().out.split())
    result, content = whole.datasets["ring"], metrics["datasets"]["ring"]
    assert list(content["systems"]) == list(result.systems)
    for name, system in result.systems.items():
        entry = content["systems"][name]
        assert {measure: entry[measure] for measure in result.measures} == system.means
        assert {measure: tuple(entry["interval"][measure]) for measure in result.measures} == system.intervals
        total = {} if system.cost is None else system.cost.ms["total"]
        assert system.cost is None or entry["cost"]["ms"]["total"] == total
        title = {"ppr": "PPR", "gcs": "GCS"}.get(name, name)
        cells = [title, *(f"{100 * mean:.2f}" for mean in system.means.values())]
        cells += [f"{time:.2f}" for time in total.values()] or ["-", "-"]
        assert f"│{' │ '.join(cells)}│" in printed
        row = next(line for line in report.splitlines() if line.startswith(f"| {title} |")).replace("*", "")
        for measure, mean in system.means.items():
            low, high = (100 * end for end in system.intervals[measure])
            assert f"| {100 * mean:.2f} ({low:.1f} to {high:.1f}) |" in row
            assert re.search(rf">(<strong>)?{100 * mean:.2f}(</strong>)?<small>{low:.1f} to {high:.1f}</small>", page)
        assert all(f"| {time:.2f} |" in row and f">{time:.2f}<" in page for time in total.values())
    assert len(result.tests) == len(content["comparisons"]) == 2 * (len(result.systems) - 1)
    for test, entry in zip(result.tests, content["comparisons"], strict=True):
        assert (entry["baseline"], entry["measure"], entry["difference"]) == (
            test.baseline,
            test.measure,
            test.difference,
        )
        assert (entry["p_value"], entry["p_holm"]) == (test.p_randomization, test.p_holm)
        p, holm = p_text(test.p_randomization), p_text(test.p_holm, name="p Holm")
        assert f"{test.measure} {100 * test.difference:+.1f} ({p})" in printed
        shown = f"{test.measure} {100 * test.difference:+.2f} ("
        low, high = (100 * end for end in test.interval)
        for text in (report.replace("&lt;", "<"), page):
            assert f"{shown}{low:+.1f} to {high:+.1f}), {holm}" in text
        assert f"{p.removeprefix('p ').removeprefix('= ')} |" in report.replace("&lt;", "<")


def test_the_order_of_checkpoints_changes_no_number(run: Run, ring: Path) -> None:
    def evaluated(checkpoint: str, folder: str) -> DatasetResult:
        settings = (f"datasets=[{ring}]", f"checkpoint={checkpoint}", "retriever=hybrid", "encoder=minilm")
        return EvaluationResult.load(run(*settings, folder=folder)).datasets["ring"]

    one, other = evaluated("[base-1,attack]", "one"), evaluated("[attack,base-1]", "other")
    alone = evaluated("attack", "alone")
    assert sorted(one.systems) == sorted(other.systems)
    assert list(one.systems)[-2:] == list(other.systems)[:-3:-1] == ["base-1", "attack"]
    assert one.notes == other.notes == ["candidates: hybrid, vectors: minilm"]
    for name, system in one.systems.items():
        for measure, values in system.values.items():
            assert torch.equal(values, other.systems[name].values[measure])
    assert one.ceiling == other.ceiling
    restart = {name: manifest_of(PRETRAINED / name)["operators"] for name in ("base-1", "attack")}
    assert restart["base-1"]["gcs"] != restart["attack"]["gcs"]
    for operator in restart["attack"]:
        own = one.systems[f"{operator}-attack"].values
        assert all(torch.equal(row, own[m]) for m, row in alone.systems[operator].values.items() if m in own)


def test_a_checkpoint_takes_no_frozen_rows_name(run: Run, ring: Path, tmp_path: Path) -> None:
    shutil.copytree(PRETRAINED / "base", tmp_path / "runs" / "gcs")
    folder = run(f"datasets=[{ring}]", f"checkpoint=[{tmp_path / 'runs' / 'gcs'},base]", "edge_ablations=[]")
    assert list(systems_of(folder)) == ["retriever", "ppr", "gcs", "runs-gcs", "base"]
    retriever = manifest_of(PRETRAINED / "base")["retriever"]["choice"]
    note = f"candidates: {retriever} of runs-gcs, vectors: minilm of runs-gcs"
    assert f"- {note}" in (folder / "report.md").read_text()
    manifest = manifest_of(tmp_path / "runs" / "gcs")
    del manifest["artifact"]
    (tmp_path / "runs" / "gcs" / "manifest.json").write_text(json.dumps(manifest | {"name": "ppr"}))
    with pytest.raises(
        ValueError, match=r"a system of the name 'ppr', which a baseline has; 'checkpoint=\[RUN\]' names"
    ):
        run(f"datasets=[{ring}]", f"checkpoint={tmp_path / 'runs' / 'gcs'}")


def test_several_data_sets(run: Run, ring: Path, mine: Path, tmp_path: Path) -> None:
    second = ring.parent / "second"
    if not second.exists():
        shutil.copytree(ring, second)
        (ring.parent / "second.mine.trec").write_text(mine.read_text())
    for seed in (1, 2):
        shutil.copytree(PRETRAINED / "base", tmp_path / f"seed{seed}")
        manifest = manifest_of(tmp_path / f"seed{seed}")
        del manifest["artifact"]  # whose hashes would no longer be right
        manifest["config"]["seed"] = seed
        (tmp_path / f"seed{seed}" / "manifest.json").write_text(json.dumps(manifest))
    folder = run(
        f"datasets=[{ring},{second}]", f"systems=['{mine.parent}/{{dataset}}.mine.trec']",
        f"checkpoint=[{tmp_path / 'seed1'},{tmp_path / 'seed2'}]", "edge_ablations=[]",
    )  # fmt: skip
    whole, metrics, report = written(folder)
    assert list(whole.datasets) == ["ring", "second"]
    assert {one.baseline for one in whole.across} == {"retriever", "ppr", "gcs", "mine", "seed1"}
    twin = next(one for one in whole.across if one.baseline == "seed1")
    assert (twin.datasets, twin.num_replicated, twin.difference, twin.p_combined) == (("ring", "second"), 0, 0.0, 1.0)
    assert len(metrics["across"]) == len(whole.across)
    assert "## Over all data sets" in report


def test_run_files_alone_need_no_encoder_and_no_retriever(run: Run, ring: Path, mine: Path) -> None:
    other = mine.parent / "other.txt"
    other.write_text("".join(f"q{i} Q0 p{i} 1 1 x\n" for i in range(QUERIES)))
    template = str(mine).replace("ring.mine", "{dataset}.mine")
    folder = run(f"datasets=[{ring}]", f"systems=['{template}',{other}]", "ties=trec", "num_queries=4")
    result = EvaluationResult.load(folder).datasets["ring"]
    assert list(result.systems) == ["mine", "other"]
    assert len(result.query_ids) == 4
    assert (result.candidates, result.ceiling, result.counterfactuals) == (None, None, [])
    assert result.systems["mine"].ranking is None
    assert "as trec_eval does" in (folder / "report.md").read_text()
    again = run(
        f"datasets=[{ring}]", f"systems=[{other}]", f"checkpoint={folder / 'runs' / 'ring.mine.trec'}", folder="b"
    )
    assert EvaluationResult.load(again).datasets["ring"].primary == "ring.mine"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q0 Q0 p99 1 1 x\n", r"line 1: needed a document of the corpus .*, found 'p99'"),
        ("q7 Q0 p1 1 1 x\n", r"needed a candidate for at least one of the 6 queries judged of split 'test' of 'ring'"),
        ("", r"needed a candidate for at least one of 9 queries, found none"),
    ],
)
def test_run_files_that_do_not_fit_are_refused(lines: str, message: str, run: Run, ring: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.trec").write_text(lines)
    with pytest.raises(ValueError, match=rf"bad\.trec.*{message}"):
        run(f"datasets=[{ring}]", f"systems=[{tmp_path / 'bad.trec'}]")


def test_another_retriever_than_the_checkpoint_was_trained_with(
    trained: Path, run_command, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    """Restart probabilities are those of the manifest."""
    shutil.copytree(trained / "gatv2", tmp_path / "run" / "gatv2")
    manifest = manifest_of(trained / "gatv2")
    manifest["operators"]["gcs"] = 1.0  # nothing flows: GCS is the base ranking
    (tmp_path / "run" / "gatv2" / "manifest.json").write_text(json.dumps(manifest))
    retriever = ("retriever=hybrid_expand", "retriever.top_k=30", "retriever.base_k=20", "retriever.num_seeds=10")
    out = tmp_path / "out"
    run_command("evaluate.py", f"checkpoint={tmp_path / 'run'}", *small_encoder, *retriever, f"hydra.run.dir={out}")
    before, after = (json.loads((run / "metrics.json").read_text())["datasets"]["attack"] for run in (trained, out))
    assert list(after["systems"]) == ["retriever", "ppr", "gcs", "gatv2"]
    assert after["candidates"] == before["candidates"] == 30
    assert after["base_ceiling"] == before["ceiling"] != after["ceiling"]
    assert {(entry["baseline"], entry["measure"]) for entry in after["comparisons"]} == {
        (baseline, measure) for baseline in ("retriever", "ppr", "gcs") for measure in ("PR@10", "nDCG@10")
    }
    for measure in ("PR@10", "R@5", "nDCG@10"):
        assert after["systems"]["gcs"][measure] == after["systems"]["retriever"][measure]
    assert after["systems"]["ppr"]["nDCG@10"] != after["systems"]["retriever"]["nDCG@10"]


@pytest.mark.parametrize(("old", "new"), [("tested", "significance_measures"), ("counterfactuals", "edge_ablations")])
def test_the_old_name_of_a_setting_works_with_a_warning(old: str, new: str) -> None:
    cfg = OmegaConf.create({old: None, new: ["a"]})
    assert renamed_setting(cfg, old, new) == ["a"]
    cfg[old] = ["b"]
    with pytest.warns(DeprecationWarning, match=f"the setting `{old}` is now called `{new}`"):
        assert renamed_setting(cfg, old, new) == ["b"]
