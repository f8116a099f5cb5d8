import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from graphrerank.evaluation.findings import (
    Breakdown,
    Counterfactual,
    HubBias,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    Replication,
    SeedSpread,
)
from graphrerank.evaluation.study import Cost, DatasetStudy, Study, SystemStudy, read_study, write_study

NAN = math.nan


def system(name: str, *scores: float) -> SystemStudy:
    values = {"nDCG@10": torch.tensor(scores, dtype=torch.float64), "PR@10/multi": torch.full((2,), NAN).double()}
    cost = Cost({"rerank": {"p50": 1.5, "p95": 2.0}}, encodings=100.0, peak_memory_mib=512.0)
    return SystemStudy(
        name, "checkpoint", "runs/1", values, {"nDCG@10": (0.1, 0.9), "PR@10/multi": (NAN, NAN)}, cost, ("q2",),
        0.5, "abc", 1, "f" * 64, None,
    )  # fmt: skip


def study() -> Study:
    dataset = DatasetStudy(
        name="toy",
        split="test",
        fingerprint="f",
        query_ids=("q1", "q2"),
        query_texts=("<b>one</b>", "zwei ü"),
        num_relevant=(1, 3),
        systems={"a": system("a", 0.25, NAN), "b": system("b", 0.5, 1.0)},
        tested=("nDCG@10",),
        candidates=100,
        ceiling=0.75,
        base_ceiling=0.5,
        tests=(PairedTest("b", "a", "nDCG@10", 2, 0.1, (0.0, 0.2), NAN, 0.5, 0.04, 0.05, 0.02, 0.04),),
        query_differences=(QueryDifference("b", "a", "nDCG@10", "q1", "<b>one</b>", 1, 0.5, 0.25),),
        breakdowns=(Breakdown("query length", "1 to 2", 2, "nDCG@10", {"a": NAN, "b": 0.75}),),
        hub_bias=(HubBias("a", NAN, 0.1, 2.0, 1.0, 5),),
        counterfactuals=(Counterfactual("b", "shuffled", "nDCG@10", 0.5, 0.1, (0.0, 0.2), 0.04, 1.0),),
        seed_spreads=(SeedSpread(("a", "b"), (1, 2), "nDCG@10", 0.5, 0.1, 0.4, 0.6),),
        reliability=(Reliability("b", "logistic", 9, 0.1, 0.01, 0.05, (9, 0), (0.1, NAN), (0.2, NAN)),),
        list_reliability=(ListReliability("b", "PR@5", 2, 1.0, 0.9, 0.1, 0.01, NAN),),
    )
    across = (Replication("b", "a", "nDCG@10", ("toy", "two"), 0.05, 1, 2, ("toy",), 0.1, 0.01),)
    return Study("python evaluate.py", {"toy": dataset}, across, {"seed": 0})


def test_a_study_written_and_read_is_the_same(tmp_path: Path) -> None:
    before = study()
    write_study(tmp_path, before)
    after = read_study(tmp_path)
    assert after.to_json() == before.to_json()
    assert (tmp_path / "study.json").read_text() == json.dumps(before.to_json(), allow_nan=False) + "\n"
    one, two = before.datasets["toy"], after.datasets["toy"]
    for entry in fields(DatasetStudy):
        if entry.name != "systems":
            assert repr(getattr(two, entry.name)) == repr(getattr(one, entry.name))  # NaN equals nothing
    assert repr(after.across) == repr(before.across)
    for name in ("a", "b"):
        for measure, values in one.systems[name].values.items():
            assert torch.equal(two.systems[name].values[measure].nan_to_num(-1), values.nan_to_num(-1))
        assert two.systems[name].cost == one.systems[name].cost
    assert math.isnan(two.systems["a"].intervals["PR@10/multi"][0])
    assert (two.primary, two.measures) == ("b", ["nDCG@10", "PR@10/multi"])


def test_a_study_from_before_lists_had_a_confidence_is_read(tmp_path: Path) -> None:
    write_study(tmp_path, study())
    content = json.loads((tmp_path / "study.json").read_text())
    del content["datasets"]["toy"]["list_reliability"]
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert read_study(tmp_path).datasets["toy"].list_reliability == ()


def test_means_leave_queries_out_that_do_not_count() -> None:
    means = study().datasets["toy"].systems["a"].means
    assert means["nDCG@10"] == 0.25
    assert math.isnan(means["PR@10/multi"])


def test_a_study_of_an_older_program_is_read_with_the_names_of_today(tmp_path: Path) -> None:
    """Format 1: the row `base_ranking`, the measure `R_cap@K`, no densities, notes, routes and fewer costs."""
    content = study().to_json()
    content["format"] = 1
    (dataset,) = content["datasets"].values()
    for key in ("densities", "notes"):
        del dataset[key]
    for system in dataset["systems"].values():
        del system["routes"]
        system["cost"] = {key: system["cost"][key] for key in ("ms", "encodings", "tokens", "peak_memory_mib")}
    dataset["query_texts"] = ["base_ranking", "R_cap@5"]  # texts stay
    text = json.dumps(content).replace('"nDCG@10"', '"R_cap@10"').replace('"a"', '"base_ranking"')
    (tmp_path / "study.json").write_text(text)
    before, after = study().datasets["toy"], read_study(tmp_path).datasets["toy"]
    assert list(after.systems) == ["retriever", "b"]
    assert after.measures == ["CR@10", "PR@10/multi"]
    assert after.systems["retriever"].means["CR@10"] == before.systems["a"].means["nDCG@10"]
    assert after.systems["b"].cost == before.systems["b"].cost
    assert (after.tests[0].baseline, after.tests[0].measure) == ("retriever", "CR@10")
    assert list(after.breakdowns[0].means) == ["retriever", "b"]
    assert after.seed_spreads[0].systems == ("retriever", "b")
    assert after.query_texts == ("base_ranking", "R_cap@5")
    assert after.densities == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; needed the folder of a finished run"),
        ("{", "not a study that can be read"),
        ('{"format": 0}', "needed format 1 or 2, found 0"),
        ('{"format": 1}', "not a study that can be read"),
        ('{"format": 1, "command": "", "settings": {}, "datasets": {}, "across": [{}]}', "entries of Replication"),
    ],
)
def test_what_is_no_study_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "study.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_study(tmp_path)
