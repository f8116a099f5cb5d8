import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from graphrerank.api import read_run_file
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import (
    Breakdown,
    Cost,
    Counterfactual,
    DatasetResult,
    HubBias,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    Replication,
    SeedSpread,
    SystemResult,
    to_plain,
)
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.systems import RankedDataset, System, base_ranking

NAN = math.nan
QUERIES = torch.arange(3)


def system(name: str, *scores: float) -> SystemResult:
    values = {"nDCG@10": torch.tensor(scores, dtype=torch.float64), "PR@10/multi": torch.full((2,), NAN).double()}
    cost = Cost({"rerank": {"p50": 1.5, "p95": 2.0}}, encodings=100.0, peak_memory_mib=512.0)
    return SystemResult(
        name, "checkpoint", "runs/1", values, {"nDCG@10": (0.1, 0.9), "PR@10/multi": (NAN, NAN)}, cost, ("q2",),
        0.5, "abc", 1, "f" * 64, None,
    )  # fmt: skip


def result() -> EvaluationResult:
    dataset = DatasetResult(
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
        query_differences=(QueryDifference("q1", "<b>one</b>", "a", "nDCG@10", "b", 1, 0.25, 0.5),),
        breakdowns=(Breakdown("query length", "1 to 2", 2, "nDCG@10", {"a": NAN, "b": 0.75}),),
        hub_bias=(HubBias("a", NAN, 0.1, 2.0, 1.0, 5),),
        counterfactuals=(Counterfactual("b", "shuffled", "nDCG@10", 0.5, 0.1, (0.0, 0.2), 0.04, 1.0),),
        seed_spreads=(SeedSpread(("a", "b"), (1, 2), "nDCG@10", 0.5, 0.1, 0.4, 0.6),),
        reliability=(Reliability("b", "logistic", 9, 0.1, 0.01, 0.05, (9, 0), (0.1, NAN), (0.2, NAN)),),
        list_reliability=(ListReliability("b", "PR@5", 2, 1.0, 0.9, 0.1, 0.01, NAN),),
    )
    across = (Replication("a", "b", "nDCG@10", ("toy", "two"), 0.05, 1, ("toy",), 0.1, 0.01),)
    return EvaluationResult("python evaluate.py", {"toy": dataset}, across, {"seed": 0})


def test_a_result_written_and_read_is_the_same(tmp_path: Path) -> None:
    before = result()
    before.save(tmp_path, report=False)
    after = EvaluationResult.load(tmp_path)
    assert to_plain(after) == to_plain(before)
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.json", "result.json"}
    one, two = before.datasets["toy"], after.datasets["toy"]
    for entry in fields(DatasetResult):
        if entry.name != "systems":
            assert repr(getattr(two, entry.name)) == repr(getattr(one, entry.name))  # NaN equals nothing
    assert repr(after.across) == repr(before.across)
    for name in ("a", "b"):
        for measure, values in one.systems[name].values.items():
            assert torch.equal(two.systems[name].values[measure].nan_to_num(-1), values.nan_to_num(-1))
        assert two.systems[name].cost == one.systems[name].cost
    assert math.isnan(two.systems["a"].intervals["PR@10/multi"][0])
    assert (two.primary, two.measures) == ("b", ["nDCG@10", "PR@10/multi"])


def test_means_leave_queries_out_that_do_not_count() -> None:
    means = result().datasets["toy"].systems["a"].means
    assert means["nDCG@10"] == 0.25
    assert math.isnan(means["PR@10/multi"])


def test_a_result_of_an_older_program_is_read(tmp_path: Path) -> None:
    """Format 2: names as keys alone, ``study.json``, and no tables of stages."""
    content = {"format": 2, **to_plain(result())}
    (dataset,) = content["datasets"].values()
    for part in (dataset, *dataset["systems"].values()):
        del part["name"]
    for key in ("tables", "groups", "grouped", "extra", "list_reliability"):
        del dataset[key]
    dataset["browser"] = {
        "systems": ["b"],
        "measure": "nDCG@10",
        "passages": [],
        "queries": [[0, [], [], []]],
    }  # format 3
    (tmp_path / "study.json").write_text(json.dumps(content))
    before, after = result().datasets["toy"], EvaluationResult.load(tmp_path).datasets["toy"]
    assert (after.name, list(after.systems), after.browser) == ("toy", ["a", "b"], None)
    assert after.systems["b"].means["nDCG@10"] == before.systems["b"].means["nDCG@10"]
    assert (after.tests[0].p_holm, after.list_reliability) == (before.tests[0].p_holm, ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; needed the folder of a finished run"),
        ("{", "not a result that can be read"),
        ('{"format": 0}', "needed format 2 or 3, found 0"),
        ('{"format": 3}', "not a result that can be read"),
        ('{"format": 3, "command": "", "settings": {}, "datasets": {}, "across": [{}]}', "entries of .*Replication"),
        ('{"format": 3, "command": "", "datasets": {"x": {"name": "../x"}}}', "`name` must be a plain name"),
    ],
)
def test_what_is_no_result_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        EvaluationResult.load(tmp_path)


def test_metrics_are_those_of_the_study(study: EvaluationResult, tmp_path: Path) -> None:
    study.save(tmp_path, report=False)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert set(content) == {"datasets", "across", "encoder_counts", "peak_memory_mib"}
    assert content["across"] == to_plain(study.across)
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


def test_a_mean_over_no_query_is_null(study: EvaluationResult, tmp_path: Path) -> None:
    dataset = study.datasets["attack"]
    nothing = replace(dataset.systems["gatv2"], values={"PR@10/multi": torch.full((200,), torch.nan)},
                      intervals={"PR@10/multi": (torch.nan, torch.nan)})  # fmt: skip
    changed = replace(dataset, systems={"gatv2": nothing}, tests=())
    replace(study, datasets={"attack": changed}).save(tmp_path, report=False)
    entry = json.loads((tmp_path / "metrics.json").read_text())["datasets"]["attack"]["systems"]["gatv2"]
    assert entry["PR@10/multi"] is None
    assert entry["interval"] == {}


@pytest.fixture
def written(prepared: PreparedDataset, tmp_path: Path) -> tuple[DatasetResult, Path]:
    row = run_reranker(prepared, QUERIES, System("retriever", base_ranking))
    plan = EvaluationPlan(["R@10", "nDCG@10"], resamples=10)
    study = measure_systems(RankedDataset(prepared.dataset, "val", QUERIES, [row]), plan)
    EvaluationResult("", {"toy": study}).save(tmp_path, report=False)
    return study, tmp_path / "runs" / "toy.retriever.trec"


def test_trec_runs_against_ir_measures(written: tuple[DatasetResult, Path]) -> None:
    import ir_measures

    study, path = written
    run = list(ir_measures.read_trec_run(str(path)))
    assert len(run) == 4 + 3 + 4
    qrels = [
        ir_measures.Qrel(query, node, 1) for query, nodes in {"x": "ab", "y": "de", "z": "cf"}.items() for node in nodes
    ]
    theirs = ir_measures.calc_aggregate([ir_measures.R @ 10, ir_measures.nDCG @ 10], qrels, run)
    ours = study.systems["retriever"].means
    assert abs(theirs[ir_measures.R @ 10] - ours["R@10"]) < 1e-9
    assert abs(theirs[ir_measures.nDCG @ 10] - ours["nDCG@10"]) < 1e-9


def test_scores_survive_the_run_file(written: tuple[DatasetResult, Path], prepared: PreparedDataset) -> None:
    study, path = written
    scores = [float(line.split()[4]) for line in path.read_text().splitlines()]
    ranking = study.systems["retriever"].ranking
    assert ranking is not None
    assert torch.equal(torch.tensor(scores), ranking.scores[ranking.nodes >= 0])
    assert torch.equal(read_run_file(path, prepared.dataset, "val", QUERIES).nodes[:, :4], ranking.nodes)
    path.write_text("x Q0 a 1 1 t\n")
    with pytest.raises(ValueError, match="needed a candidate for at least one of the 2 queries judged of split 'val'"):
        read_run_file(path, prepared.dataset, "val", torch.tensor([1, 2]))
