import io
import json
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from graphrerank.data import PreparedDataset
from graphrerank.evaluation import (
    Comparison,
    DatasetResult,
    System,
    SystemResult,
    base_ranking,
    judge,
    results_table,
    write_metrics,
    write_trec_runs,
)
from graphrerank.evaluation.judge import MEASURES
from graphrerank.evaluation.report import comparison_lines
from graphrerank.graphs import Ranking


def test_table_rows_and_names(prepared: PreparedDataset) -> None:
    names = ["base_ranking", "ppr", "gcs", "mlp", "gatv2", "other"]
    result = judge(prepared, "val", [System(name, base_ranking) for name in names])
    out = io.StringIO()
    Console(file=out, width=100).print(results_table(result))
    text = out.getvalue()
    assert [line.split()[1] for line in text.splitlines() if line.startswith("│")] == [
        "retriever", "PPR", "GCS", "MLP", "GATv2", "other",
    ]  # fmt: skip
    for column in ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10", "p50 ms", "p95 ms"):
        assert column in text
    assert "66.67" in text  # PR@10 and the ceiling, in percent
    assert "toy val: 3 queries, 4 candidates" in text
    assert "…" not in text  # nothing is cut at 100 columns


def test_table_says_how_sure_the_differences_are() -> None:
    ranking = Ranking(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1))
    latency = {"p50": 1234.5, "p95": 1234.5}
    means = dict.fromkeys(MEASURES, 1.0)
    names = ("base_ranking", "gcs", "mlp", "gatv2")
    result = DatasetResult(
        "2wikimultihopqa", "test", ["q"] * 1000, 0.986, 0.569, 100,
        {name: SystemResult(means, latency, ranking, {}, {}) for name in names},
        [
            Comparison(name, measure, difference, p_value)
            for name in ("base_ranking", "gcs")
            for measure, difference, p_value in (("PR@10", 0.534, 1e-5), ("nDCG@10", -0.0021, 0.62))
        ],
    )  # fmt: skip
    assert comparison_lines(result) == [
        "GATv2 against retriever: PR@10 +53.4 (p < 0.0001), nDCG@10 -0.2 (p = 0.62)",
        "GATv2 against GCS: PR@10 +53.4 (p < 0.0001), nDCG@10 -0.2 (p = 0.62)",
    ]
    out = io.StringIO()
    Console(file=out, width=100).print(results_table(result))
    for line in comparison_lines(result):
        assert line in out.getvalue()  # on one line


def test_ceiling_before_expansion_is_told_where_it_differs(prepared: PreparedDataset) -> None:
    result = judge(prepared, "val", [System("base_ranking", base_ranking)])
    assert "ceiling of PR 66.67: all relevant are candidates" in str(results_table(result).caption)
    narrow = torch.tensor([[3, 0, 4, 5], [3, 0, 4, -1], [2, 0, 1, 3]])  # of x only a, of y both, of z only c
    ranking = replace(prepared.ranking, base_nodes=narrow)
    result = judge(replace(prepared, ranking=ranking), "val", [System("base_ranking", base_ranking)])
    caption = str(results_table(result).caption)
    assert "ceiling of PR 66.67 (33.33 before expansion): all relevant are candidates" in caption
    assert (result.to_json()["ceiling"], result.to_json()["base_ceiling"]) == (2 / 3, 1 / 3)


def test_metrics_json(prepared: PreparedDataset, tmp_path: Path) -> None:
    result = judge(prepared, "val", [System("base_ranking", base_ranking)])
    write_metrics(tmp_path / "metrics.json", [result], peak_memory_mib=1.5)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content == {"datasets": {"toy": result.to_json()}, "peak_memory_mib": 1.5}


def test_trec_runs_against_ir_measures(prepared: PreparedDataset, tmp_path: Path) -> None:
    import ir_measures

    result = judge(prepared, "val", [System("base_ranking", base_ranking)])
    write_trec_runs(tmp_path, result, prepared.dataset.graph)
    run = list(ir_measures.read_trec_run(str(tmp_path / "toy.base_ranking.trec")))
    assert len(run) == 4 + 3 + 4
    qrels = [
        ir_measures.Qrel(query, node, 1) for query, nodes in {"x": "ab", "y": "de", "z": "cf"}.items() for node in nodes
    ]
    theirs = ir_measures.calc_aggregate([ir_measures.R @ 10, ir_measures.nDCG @ 10], qrels, run)
    ours = result.systems["base_ranking"].measures
    assert abs(theirs[ir_measures.R @ 10] - ours["R@10"]) < 1e-9
    assert abs(theirs[ir_measures.nDCG @ 10] - ours["nDCG@10"]) < 1e-9


def test_scores_survive_the_run_file(prepared: PreparedDataset, tmp_path: Path) -> None:
    result = judge(prepared, "val", [System("base_ranking", base_ranking)])
    write_trec_runs(tmp_path, result, prepared.dataset.graph)
    scores = [float(line.split()[4]) for line in (tmp_path / "toy.base_ranking.trec").read_text().splitlines()]
    ranking = result.systems["base_ranking"].ranking
    assert torch.equal(torch.tensor(scores), ranking.scores[ranking.nodes >= 0])
