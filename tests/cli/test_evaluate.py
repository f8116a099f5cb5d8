import html
import json
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from omegaconf import OmegaConf

from graphrerank.cli.evaluate import renamed_setting
from graphrerank.cli.overrides import read_override
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


class Outputs(NamedTuple):
    """What an evaluation on ``ring`` writes and prints.

    Attributes:
        folder: Run folder.
        result: Result of the data set.
        metrics: Entry of the data set in ``metrics.json``.
        report: Content of ``report.md``.
        page: Text of ``report.html``.
        printed: Standard output, with single spaces.
    """

    folder: Path
    result: DatasetResult
    metrics: dict[str, Any]
    report: str
    page: str
    printed: str


def outputs_of(run: Run, *overrides: str) -> Outputs:
    output = StringIO()
    with redirect_stdout(output), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        folder = run(*overrides)
    whole, metrics, report = written(folder)
    page = html.unescape((folder / "report.html").read_text())
    printed = " ".join(output.getvalue().split())
    return Outputs(folder, whole.datasets["ring"], metrics["datasets"]["ring"], report, page, printed)


@pytest.fixture(scope="module")
def mixed(run: Run, ring: Path, mine: Path) -> Outputs:
    """Two checkpoints with their frozen operators, a pipeline, and a run of somebody else's."""
    return outputs_of(
        run, f"datasets=[{ring}]", f"systems=[vector_search,{mine}]", "checkpoint=[attack,base-1]",
        "measures=[nDCG@10,PR@2,R_cap@1,TR,Coverage@2,AP@10]",
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(run: Run, ring: Path, mine: Path) -> Outputs:
    """One checkpoint, a pipeline and a run, with the default measures and without other edges."""
    return outputs_of(
        run, f"datasets=[{ring}]", f"systems=[vector_search,{mine}]", "checkpoint=[base]", "edge_ablations=[]"
    )


def test_any_systems_are_judged_together(mixed: Outputs) -> None:
    kinds = {name: system.kind for name, system in mixed.result.systems.items()}
    assert list(kinds.items()) == [
        ("retriever", "operator"), ("ppr-attack", "operator"), ("ppr-base-1", "operator"),
        ("gcs-attack", "operator"), ("gcs-base-1", "operator"), ("rank_fusion-attack", "operator"),
        ("rank_fusion-base-1", "operator"), ("vector_search", "pipeline"),
        ("ring.mine", "run"), ("attack", "checkpoint"), ("base-1", "checkpoint"),
    ]  # fmt: skip


def test_systems_are_judged_on_the_same_queries_and_measures(mixed: Outputs) -> None:
    assert list(mixed.result.query_ids) == [f"q{i}" for i in range(QUERIES)]
    assert mixed.result.measures == ["nDCG@10", "PR@2", "CR@1", "TR", "Coverage@2", "AP@10"]


def test_one_retriever_gives_one_ranking_whoever_runs_it(mixed: Outputs) -> None:
    systems = mixed.result.systems
    assert systems["vector_search"].means == systems["retriever"].means


def test_coverage_of_the_better_checkpoint(mixed: Outputs) -> None:
    systems = mixed.result.systems
    assert systems["base-1"].means["Coverage@2"] >= systems["attack"].means["Coverage@2"] > 0


def test_queries_without_a_ranking_count_as_zero(mixed: Outputs) -> None:
    run = mixed.result.systems["ring.mine"]
    assert run.missing == ["q5"]
    assert run.means["CR@1"] == pytest.approx(5 / 6)
    assert mixed.metrics["systems"]["ring.mine"]["missing"] == 1
    assert "ring.mine returned no passages for 1 queries, which score 0: q5" in mixed.report


def test_a_run_has_ties_and_no_cost(mixed: Outputs) -> None:
    run = mixed.result.systems["ring.mine"]
    assert run.tied_share == pytest.approx(4 / 6)
    assert run.cost is None


def test_the_last_checkpoint_is_tested_against_all_others(mixed: Outputs) -> None:
    assert {test.baseline for test in mixed.result.tests} == set(mixed.result.systems) - {"base-1"}


def test_systems_that_read_edges_are_judged_on_other_edges(mixed: Outputs) -> None:
    baselines = [f"{name}-{label}" for name in ("ppr", "gcs", "rank_fusion") for label in ("attack", "base-1")]
    readers = [*baselines, "attack", "base-1"]
    assert {(one.system, one.edges) for one in mixed.result.counterfactuals} == {
        (name, edges) for name in readers for edges in ("shuffled", "removed")
    }


def test_without_edges_an_operator_is_the_retriever(mixed: Outputs) -> None:
    removed = {one.system: one.mean for one in mixed.result.counterfactuals if one.edges == "removed"}
    assert removed["gcs-base-1"] == pytest.approx(mixed.result.systems["retriever"].means["nDCG@10"])


def test_the_cost_of_a_checkpoint_is_measured_by_stage(mixed: Outputs) -> None:
    assert list(mixed.result.systems["base-1"].cost.ms) == ["retrieve", "graph", "rerank", "total"]


def test_every_ranking_is_written(mixed: Outputs) -> None:
    files = {path.name for path in (mixed.folder / "runs").iterdir()}
    assert files == {f"ring.{name}.trec" for name in mixed.result.systems}


@pytest.mark.parametrize("title", ["Tests", "Cost", "Groups of queries", "Other edges", "Queries"])
def test_the_report_has_every_section(title: str, mixed: Outputs) -> None:
    assert f"### {title}" in mixed.report


NAMES = ["retriever", "ppr", "gcs", "rank_fusion", "vector_search", "ring.mine", "base"]
TITLES = {"ppr": "PPR", "gcs": "GCS", "rank_fusion": "rank fusion"}


def percent(mean: float, interval: tuple[float, float]) -> tuple[str, str, str]:
    """Write a mean and both ends of its interval as reports do."""
    low, high = interval
    return f"{100 * mean:.2f}", f"{100 * low:.1f}", f"{100 * high:.1f}"


def test_systems_have_the_same_order_everywhere(plain: Outputs) -> None:
    assert list(plain.metrics["systems"]) == list(plain.result.systems) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_metrics_hold_means_intervals_and_latency(name: str, plain: Outputs) -> None:
    entry, system = plain.metrics["systems"][name], plain.result.systems[name]
    assert {measure: entry[measure] for measure in plain.result.measures} == system.means
    assert {measure: tuple(entry["interval"][measure]) for measure in plain.result.measures} == system.intervals
    assert system.cost is None or entry["cost"]["ms"]["total"] == system.cost.ms["total"]


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_shows_means_and_latency(name: str, plain: Outputs) -> None:
    system = plain.result.systems[name]
    means = [f"{100 * mean:.2f}" for mean in system.means.values()]
    times = ["-", "-"] if system.cost is None else [f"{time:.2f}" for time in system.cost.ms["total"].values()]
    assert f"│{' │ '.join([TITLES.get(name, name), *means, *times])}│" in plain.printed


@pytest.mark.parametrize("name", NAMES)
def test_report_and_page_show_means_intervals_and_latency(name: str, plain: Outputs) -> None:
    system, title = plain.result.systems[name], TITLES.get(name, name)
    starts = (f"| {title} |", f"| {title} (")  # baselines have a plain name in parentheses
    row = next(line for line in plain.report.splitlines() if line.startswith(starts)).replace("*", "")
    for measure in plain.result.measures:
        mean, low, high = percent(system.means[measure], system.intervals[measure])
        assert f"| {mean} ({low} to {high}) |" in row
        assert re.search(rf">(<strong>)?{mean}(</strong>)?<small>{low} to {high}</small>", plain.page)
    for time in {} if system.cost is None else system.cost.ms["total"].values():
        assert f"| {time:.2f} |" in row
        assert f">{time:.2f}<" in plain.page


def test_metrics_hold_every_test(plain: Outputs) -> None:
    entries = plain.metrics["comparisons"]
    assert len(plain.result.tests) == len(entries) == 2 * (len(NAMES) - 1)
    assert [
        (entry["baseline"], entry["measure"], entry["difference"], entry["p_value"], entry["p_holm"])
        for entry in entries
    ] == [
        (test.baseline, test.measure, test.difference, test.p_randomization, test.p_holm)
        for test in plain.result.tests
    ]  # fmt: skip


def test_terminal_report_and_page_show_every_test(plain: Outputs) -> None:
    report = plain.report.replace("&lt;", "<")
    for test in plain.result.tests:
        p, holm = p_text(test.p_randomization), p_text(test.p_holm, name="p Holm")
        assert f"{test.measure} {100 * test.difference:+.1f} ({p})" in plain.printed
        low, high = (100 * end for end in test.interval)
        shown = f"{test.measure} {100 * test.difference:+.2f} ({low:+.1f} to {high:+.1f}), {holm}"
        assert shown in report
        assert shown in plain.page
        assert f"{p.removeprefix('p ').removeprefix('= ')} |" in report


def test_the_order_of_checkpoints_changes_no_number(run: Run, ring: Path) -> None:
    def evaluated(checkpoint: str, folder: str) -> DatasetResult:
        settings = (f"datasets=[{ring}]", f"checkpoint={checkpoint}", "retriever=hybrid", "encoder=minilm")
        return EvaluationResult.load(run(*settings, folder=folder)).datasets["ring"]

    one, other = evaluated("[base-1,attack]", "one"), evaluated("[attack,base-1]", "other")
    alone = evaluated("attack", "alone")
    assert sorted(one.systems) == sorted(other.systems)
    assert list(one.systems)[-2:] == list(other.systems)[:-3:-1] == ["base-1", "attack"]
    assert sorted(one.notes) == sorted(other.notes)
    assert one.notes[0] == "candidates: hybrid, vectors: minilm"
    for name, system in one.systems.items():
        for measure, values in system.values.items():
            assert torch.equal(values, other.systems[name].values[measure])
    assert one.ceiling == other.ceiling
    restart = {name: manifest_of(PRETRAINED / name)["operators"] for name in ("base-1", "attack")}
    assert restart["base-1"]["gcs"] != restart["attack"]["gcs"]
    for operator in restart["attack"]:
        own = one.systems[f"{operator}-attack"].values
        assert all(torch.equal(row, own[m]) for m, row in alone.systems[operator].values.items() if m in own)


def test_checkpoints_are_named_on_the_command_line(run: Run, ring: Path, mine: Path) -> None:
    common = (f"datasets=[{ring}]", "edge_ablations=[]")
    folder = run(
        *common, f"systems=[{mine}]", read_override(f"checkpoint={{first: {PRETRAINED / 'base-1'}, base: base}}")
    )
    assert list(systems_of(folder)) == ["retriever", "ppr", "gcs", "rank_fusion", "ring.mine", "first", "base"]
    unnamed = run(*common, f"systems=[{mine}]", "checkpoint=[base-1,base]")
    for measure, values in EvaluationResult.load(unnamed).datasets["ring"].systems["base-1"].values.items():
        assert torch.equal(values, EvaluationResult.load(folder).datasets["ring"].systems["first"].values[measure])
    with pytest.raises(ValueError, match="no name of a baseline"):
        run(*common, "checkpoint={ppr: base}")


def test_a_checkpoint_takes_no_frozen_rows_name(run: Run, ring: Path, tmp_path: Path) -> None:
    shutil.copytree(PRETRAINED / "base", tmp_path / "runs" / "gcs")
    folder = run(f"datasets=[{ring}]", f"checkpoint=[{tmp_path / 'runs' / 'gcs'},base]", "edge_ablations=[]")
    assert list(systems_of(folder)) == ["retriever", "ppr", "gcs", "rank_fusion", "runs-gcs", "base"]
    retriever = manifest_of(PRETRAINED / "base")["retriever"]["choice"]
    note = f"candidates: {retriever} of runs-gcs, vectors: minilm of runs-gcs"
    assert f"- {note}" in (folder / "report.md").read_text()
    manifest = manifest_of(tmp_path / "runs" / "gcs")
    del manifest["artifact"]
    (tmp_path / "runs" / "gcs" / "manifest.json").write_text(json.dumps(manifest | {"name": "ppr"}))
    with pytest.raises(
        ValueError, match=r"the system name 'ppr' is reserved for a baseline. Use 'checkpoint=\[RUN\]' to name"
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
    assert {one.baseline for one in whole.across} == {"retriever", "ppr", "gcs", "rank_fusion", "mine", "seed1"}
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
        ("q0 Q0 p99 1 1 x\n", r"line 1: expected a document of the corpus .*, got 'p99'"),
        ("q7 Q0 p1 1 1 x\n", r"must rank passages for at least one of the 6 judged queries of split 'test' of 'ring'"),
        ("", r"expected a candidate for at least one of 9 queries, got none"),
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
    assert list(after["systems"]) == ["retriever", "ppr", "gcs", "rank_fusion", "gatv2"]
    assert after["candidates"] == before["candidates"] == 30
    assert after["base_ceiling"] == before["ceiling"] != after["ceiling"]
    assert {(entry["baseline"], entry["measure"]) for entry in after["comparisons"]} == {
        (baseline, measure)
        for baseline in ("retriever", "ppr", "gcs", "rank_fusion")
        for measure in ("PR@10", "nDCG@10")
    }
    for measure in ("PR@10", "R@5", "nDCG@10"):
        assert after["systems"]["gcs"][measure] == after["systems"]["retriever"][measure]
    assert after["systems"]["ppr"]["nDCG@10"] != after["systems"]["retriever"]["nDCG@10"]


@pytest.mark.parametrize(("old", "new"), [("tested", "significance_measures"), ("counterfactuals", "edge_ablations")])
def test_the_old_name_of_a_setting_works_with_a_warning(old: str, new: str) -> None:
    cfg = OmegaConf.create({old: None, new: ["a"]})
    assert renamed_setting(cfg, old, new) == ["a"]
    cfg[old] = ["b"]
    with pytest.warns(DeprecationWarning, match=f"the setting `{old}` is deprecated .* Use `{new}`"):
        assert renamed_setting(cfg, old, new) == ["b"]
