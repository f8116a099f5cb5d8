import json
from dataclasses import replace
from pathlib import Path

import torch

from graphrerank.evaluation.metrics_json import write_metrics
from graphrerank.evaluation.study import Study


def test_metrics_are_those_of_the_study(study: Study, tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.json", list(study.datasets.values()), study.across)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert set(content) == {"datasets", "across", "encoder_counts", "peak_memory_mib"}
    assert content["across"] == [finding.to_json() | {"datasets": list(finding.datasets),
                                 "replicated": list(finding.replicated)} for finding in study.across]  # fmt: skip
    dataset, found = study.datasets["attack"], content["datasets"]["attack"]
    facts = ("split", "queries", "candidates", "ceiling", "base_ceiling")
    assert [found[key] for key in facts] == ["test", 200, 100, 0.869, 0.8]
    assert list(found["systems"]) == list(dataset.systems)
    for name, system in dataset.systems.items():
        entry = found["systems"][name]
        assert {measure: entry[measure] for measure in system.values} == system.means
        assert {measure: tuple(ends) for measure, ends in entry["interval"].items()} == system.intervals
        assert entry["missing"] == len(system.missing)
    assert found["systems"]["their.run"]["cost"] is None
    assert found["systems"]["gatv2"]["cost"]["ms"]["total"]["p50"] == 2.2
    for test, entry in zip(dataset.tests, found["comparisons"], strict=True):
        assert (entry["baseline"], entry["p_value"]) == (test.baseline, test.p_randomization)
        assert entry["p_holm"] == test.p_holm


def test_a_mean_over_no_query_is_null(study: Study, tmp_path: Path) -> None:
    dataset = study.datasets["attack"]
    nothing = replace(dataset.systems["gatv2"], values={"PR@10/multi": torch.full((200,), torch.nan)},
                      intervals={"PR@10/multi": (torch.nan, torch.nan)})  # fmt: skip
    write_metrics(tmp_path / "metrics.json", [replace(dataset, systems={"gatv2": nothing}, tests=())])
    entry = json.loads((tmp_path / "metrics.json").read_text())["datasets"]["attack"]["systems"]["gatv2"]
    assert entry["PR@10/multi"] is None
    assert entry["interval"] == {}
