import math
from dataclasses import replace

import pytest
import torch

from graphrerank.evaluation.study import Cost, SystemStudy
from graphrerank_papers.fastinsight.curves import Curves, curves_json, draw_curves, gain_correlations, render_curves
from graphrerank_papers.fastinsight.quartiles import topological_quartiles


def result(**values: list[float]) -> SystemStudy:
    rows = {name.replace("_", "@"): torch.tensor(row) for name, row in values.items()}
    intervals = {name: (float(row.mean()) - 0.1, float(row.mean()) + 0.1) for name, row in rows.items()}
    cost = Cost({}, encodings=8.0, batch_ms={"encode": 90.0, "graph": 10.0})
    return SystemStudy("a", "pipeline", "", rows, intervals, cost)


START = result(R_10=[0.0, 0.5, 0.5, 1.0], MissTR=[0.5, 0.25, 0.0, 0.0])
END = result(R_20=[1.0, 1.0, 0.5, 1.0], CR_10=[1.0, 1.0, 0.5, 1.0], TR=[1.0, 1.0, 0.6, 1.0])


def curves() -> Curves:
    near, far = END, replace(END, cost=Cost({}, batch_ms={"encode": 180.0}))
    return Curves(
        dataset="ring",
        split="test",
        num_queries=4,
        budgets={"re2": {10: near, 20: far}, "fastinsight": {20: far}},
        settings={"smoothing": {0.0: near, 0.2: far}, "structure_weight": {1.0: near}},
        defaults={"smoothing": 0.2, "structure_weight": 3.0},
        correlations={"re2": (0.5, math.nan)},
        quartiles=topological_quartiles(END.values["TR"], {"re2": END.values["CR@10"]}),
    )


def test_correlations_by_hand() -> None:
    # gains 1, .5, 0, 0 over recall 0, .5, .5, 1 and missed 0.5, 0.25, 0, 0
    recall, missed = gain_correlations(START, END, recall="R@20")
    gain = torch.tensor([1.0, 0.5, 0.0, 0.0])
    assert recall == pytest.approx(float(torch.corrcoef(torch.stack([gain, START.values["R@10"]]))[0, 1]), abs=1e-6)
    assert missed == pytest.approx(1.0)


def test_a_constant_has_no_correlation() -> None:
    nothing_gained = replace(END, values={"R@20": START.values["R@10"]})
    assert all(math.isnan(number) for number in gain_correlations(START, nothing_gained, recall="R@20"))


def test_report_and_plot(tmp_path) -> None:
    report = render_curves([curves()], plots=["ring.png"])
    assert "| re2 | 100 | 180 |" in report  # milliseconds
    assert "| fastinsight | - | 87.5 |" in report
    assert "| smoothing | 0 | 0.2 |" in report
    assert "| re2 | 0.50 | - |" in report
    assert "![quartiles](ring_quartiles.png)" in report
    draw_curves(tmp_path / "ring.png", curves())
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_no_nan() -> None:
    content = curves_json(curves())
    assert content["correlations"] == {"re2": {"Recall": 0.5, "MissTR": None}}
    assert content["quartiles"]["questions"] == [1, 3, 0, 0]
    assert content["budgets"]["fastinsight"]["20"]["CR@10"] == 0.875
    point = content["budgets"]["re2"]["10"]
    assert (point["encodings"], point["ms"]) == (8.0, {"encode": 90.0, "graph": 10.0})
    assert point["overhead"] == pytest.approx(0.1)
