import json
from pathlib import Path

import pytest

from tests.support.commands import systems_of, without_times


def test_pipelines_side_by_side(run_command, ring: Path, reader: Path, tmp_path: Path) -> None:
    done = run_command(
        "evaluate.py", "pipeline=fastinsight", "pipelines=[vector_search,hipporag2_ppr,re2,gar]",
        f"datasets=[{ring}]", "pair_encoder=cross_encoder", f"pair_encoder.model={reader}",
        "pair_encoder.max_length=48", "pipeline.budget=7", f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = systems_of(tmp_path)
    assert list(found) == ["vector_search", "hipporag2_ppr", "re2", "gar", "fastinsight"]
    costs = {name: entry["cost"] for name, entry in found.items()}
    encodings = [cost["encodings"] for cost in costs.values()]
    assert encodings == [None, None, 12.0, 12.0, 7.0]  # the whole corpus, and the budget
    assert found["vector_search"]["R@5"] > 0.5
    cost = costs["fastinsight"]
    assert set(cost["batch_ms"]) == {"retrieve", "encode", "graph", "rerank", "other"}
    assert cost["pair_ms"] > 0
    assert cost["batch_ms"]["encode"] == pytest.approx(7 * cost["pair_ms"])
    assert costs["vector_search"]["pair_ms"] is None
    assert found["fastinsight"]["latency_ms"] == cost["ms"]["total"]
    report = (tmp_path / "report.md").read_text()
    assert f"{sum(cost['batch_ms'].values()):.2f}" in report
    assert {path.name.split(".")[1] for path in (tmp_path / "runs").glob("*.trec")} == set(found)


def test_curves(run_command, run_on_device, ring: Path, reader: Path, tmp_path: Path) -> None:
    arguments = [
        "evaluate.py", "experiment=fastinsight_curves", "job.budgets=[4,8]", "job.settings.smoothing=[0.2,0.5]",
        "job.settings.structure_weight=[0.0,1.0]", f"datasets=[{ring}]", f"pair_encoder.model={reader}",
        "pair_encoder.max_length=48",
    ]  # fmt: skip
    done = run_command(*arguments, f"hydra.run.dir={tmp_path}")
    run_on_device(*arguments, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(tmp_path)
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found, name = json.loads((tmp_path / "metrics.json").read_text()), ring.name
    rows = {(row["pipeline"], row["budget"]): row for row in found[f"{name}: budget"]}
    assert list(rows) == [(pipeline, size) for pipeline in ("re2", "gar", "fastinsight") for size in (4, 8)]
    assert [rows["gar", size]["pairs"] for size in (4, 8)] == [4, 8]
    smoothing = {row["smoothing"]: row["CR@10"] for row in found[f"{name}: smoothing"]}
    assert smoothing[0.2] == rows["fastinsight", 8]["CR@10"]
    assert [row["structure_weight"] for row in found[f"{name}: structure_weight"]] == [0.0, 1.0]
    assert {row["pipeline"] for row in found[f"{name}: correlation with the recall gained"]} == {
        "re2",
        "gar",
        "fastinsight",
    }
    assert (tmp_path / "report.md").read_text() in done.stdout


def ranked(run: Path, system: str) -> list[list[str]]:
    (file,) = (run / "runs").glob(f"*.{system}.trec")
    return [[line.split()[place] for place in (0, 2, 3)] for line in file.read_text().splitlines()]


@pytest.mark.parametrize(("pipeline", "retriever"), [("grapher", "hybrid"), ("expand_then_rerank", "hybrid_expand")])
def test_a_checkpoint_in_a_pipeline_ranks_as_it_does_alone(
    pipeline: str, retriever: str, run_command, ring: Path, tmp_path: Path
) -> None:
    alone, within = tmp_path / "alone", tmp_path / "within"
    for arguments in (
        ("checkpoint=base", f"retriever={retriever}", f"hydra.run.dir={alone}"),
        (f"pipeline={pipeline}", f"hydra.run.dir={within}"),
    ):
        run_command("evaluate.py", f"datasets=[{ring}]", *arguments)
    assert ranked(within, pipeline) == ranked(alone, "gatv2")
    assert len(ranked(within, pipeline)) == 72


def test_settings_of_each_pipeline_in_a_table(run_command, ring: Path, reader: Path, tmp_path: Path) -> None:
    common = [f"datasets=[{ring}]", "pair_encoder=cross_encoder", f"pair_encoder.model={reader}"]
    common += ["pair_encoder.max_length=48", "measures=[R@5]"]
    run_command(
        "evaluate.py", *common, "systems=[vector_search,gar,fastinsight]", "settings.gar.budget=5",
        "settings.fastinsight.budget=7", "settings.fastinsight.steps.1.smoothing=0.9",
        "settings.fastinsight.steps.2.steps.1.smoothing=0.9",
        f"hydra.run.dir={tmp_path / 'table'}",
    )  # fmt: skip
    found = systems_of(tmp_path / "table")
    assert [entry["cost"]["encodings"] for entry in found.values()] == [None, 5.0, 7.0]
    run_command(
        "evaluate.py", *common, "pipeline=fastinsight", "pipeline.budget=7", "pipeline.steps.1.smoothing=0.9",
        "pipeline.steps.2.steps.1.smoothing=0.9", f"hydra.run.dir={tmp_path / 'alone'}",
    )  # fmt: skip
    (one,), (other,) = [[*(tmp_path / run / "runs").glob("*fastinsight*")] for run in ("table", "alone")]
    assert one.read_text() == other.read_text()
