import json
import math
from dataclasses import replace
from pathlib import Path

import ir_measures
import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import DatasetResult, to_plain
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.runners.checkpoint import run_reranker
from graphrerank.evaluation.runners.run_file import read_run_file
from graphrerank.evaluation.systems import RankedDataset, System, base_ranking

QUERIES = torch.arange(3)


def test_a_result_written_and_read_is_the_same(result: EvaluationResult, tmp_path: Path) -> None:
    """Every record; a NaN becomes null, and again a NaN."""
    first = result.datasets["attack"]
    entry = first.reliability[0]
    empty = replace(entry, shares=(math.nan, *entry.shares[1:]))
    dataset = replace(first, reliability=(empty,))
    before = replace(result, datasets={"attack": dataset})
    before.save(tmp_path, report=False)
    after = EvaluationResult.load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.json", "queries.json", "result.json", "runs"}
    after.save(tmp_path / "again", report=False)
    assert (tmp_path / "again" / "result.json").read_text() == (tmp_path / "result.json").read_text()
    again = after.datasets["attack"]
    assert (again.primary, again.measures) == ("gatv2", ["PR@10", "nDCG@10", "R@10"])
    assert math.isnan(again.reliability[0].shares[0])
    assert to_plain(again.tests) == to_plain(dataset.tests)
    assert to_plain(after.across) == to_plain(before.across)
    for name, system in dataset.systems.items():
        for measure, values in system.values.items():
            assert torch.equal(again.systems[name].values[measure], values)
        assert again.systems[name].cost == system.cost


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist. Pass the folder of a finished run"),
        ("{", "is not a valid result"),
        ('{"format": 0}', "the format must be 3, got 0"),
        ('{"format": 3}', "is not a valid result"),
        (
            '{"format": 3, "command": "", "settings": {}, "datasets": {}, "across": [{}]}',
            r"across\.0\.baseline: Field required",
        ),
        ('{"format": 3, "command": "", "datasets": {"x": {"name": "../x"}}}', "`name` must be a plain name"),
    ],
)
def test_what_is_no_result_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        EvaluationResult.load(tmp_path)


def test_a_mean_over_no_query_is_null(result: EvaluationResult, tmp_path: Path) -> None:
    dataset = result.datasets["attack"]
    nothing = replace(dataset.systems["gatv2"], values={"PR@10/multi": torch.full((60,), torch.nan)},
                      intervals={"PR@10/multi": (torch.nan, torch.nan)})  # fmt: skip
    changed = replace(dataset, systems={"gatv2": nothing}, tests=())
    replace(result, datasets={"attack": changed}).save(tmp_path, report=False)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert set(content) == {"datasets", "across", "encoder_counts", "peak_memory_mib"}
    assert content["across"] == to_plain(result.across)
    facts = ("split", "queries", "candidates", "ceiling", "base_ceiling")
    assert [content["datasets"]["attack"][key] for key in facts] == [
        "test", 60, 12, dataset.ceiling, dataset.base_ceiling
    ]  # fmt: skip
    entry = content["datasets"]["attack"]["systems"]["gatv2"]
    assert entry["PR@10/multi"] is None
    half = replace(nothing, values={"nDCG@10": torch.tensor([0.25, math.nan])})
    assert half.means == {"nDCG@10": 0.25}  # of the queries that count
    assert entry["interval"] == {}


@pytest.fixture
def written(prepared: PreparedDataset, tmp_path: Path) -> tuple[DatasetResult, Path]:
    row = run_reranker(prepared, QUERIES, System("retriever", base_ranking))
    plan = EvaluationPlan(["R@10", "nDCG@10"], resamples=10)
    result = measure_systems(RankedDataset(prepared.dataset, "val", QUERIES, [row]), plan)
    EvaluationResult("", {"toy": result}).save(tmp_path, report=False)
    return result, tmp_path / "runs" / "toy.retriever.trec"


def test_trec_runs_against_ir_measures(written: tuple[DatasetResult, Path]) -> None:
    found, path = written
    run = list(ir_measures.read_trec_run(str(path)))
    assert len(run) == 4 + 3 + 4
    qrels = [ir_measures.Qrel(query, node, 1) for query, node in zip("xxyyzz", "abdecf", strict=True)]
    measures = {"R@10": ir_measures.R @ 10, "nDCG@10": ir_measures.nDCG @ 10}
    theirs = ir_measures.calc_aggregate(list(measures.values()), qrels, run)
    assert found.systems["retriever"].means == pytest.approx({name: theirs[one] for name, one in measures.items()})


def test_scores_survive_the_run_file(written: tuple[DatasetResult, Path], prepared: PreparedDataset) -> None:
    result, path = written
    scores = [float(line.split()[4]) for line in path.read_text().splitlines()]
    ranking = result.systems["retriever"].ranking
    assert torch.equal(torch.tensor(scores), ranking.scores[ranking.nodes >= 0])
    assert torch.equal(read_run_file(path, prepared.dataset, "val", QUERIES).nodes[:, :4], ranking.nodes)
    path.write_text("x Q0 a 1 1 t\n")
    with pytest.raises(ValueError, match="must rank passages for at least one of the 2 judged queries of split 'val'"):
        read_run_file(path, prepared.dataset, "val", torch.tensor([1, 2]))


def test_notebooks_show_a_table_of_means(written: tuple[DatasetResult, Path]) -> None:
    result = EvaluationResult("", {"toy": written[0]})
    assert repr(result) == f"EvaluationResult(toy val: {len(QUERIES)} queries, 1 systems)"
    table = result._repr_html_()
    mean = written[0].systems["retriever"].means["nDCG@10"]
    assert "<th>retriever</th><td><b>" in table
    assert f"<b>{100 * mean:.1f}</b>" in table
    assert table.startswith("<table><caption>toy val")


def test_names_in_the_table_of_a_notebook_are_escaped(written: tuple[DatasetResult, Path]) -> None:
    hostile = replace(written[0], name="<script>", systems={"<b>": written[0].systems["retriever"]})
    table = EvaluationResult("", {"toy": hostile})._repr_html_()
    assert "<script>" not in table
    assert "&lt;b&gt;" in table
