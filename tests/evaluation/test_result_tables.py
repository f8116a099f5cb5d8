from dataclasses import replace
from math import nan

import torch

from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.result_tables import dataset_tables, quality_table
from graphrerank.evaluation.tables import Cell, Table
from tests.support.results import all_tables


def table_named(dataset: DatasetResult, title: str) -> Table:
    return next(table for table in dataset_tables(dataset) if table.title == title)


def columns(table: Table) -> dict[str, list[Cell]]:
    rows = zip(*table.rows, strict=True)
    return {name: list(cells) for name, cells in zip(table.header, rows, strict=True)}


def test_every_table_is_whole_and_texts_are_on_the_left(study: EvaluationResult) -> None:
    tables = all_tables(study)
    titles = ["quality", "tests", "cost", "groups of queries", "hubs", "edges by type", "other edges", "seeds",
              "calibration", "confidence", "queries", "systems"]  # fmt: skip
    assert list(tables) == [*(f"{name}: {title}" for name in study.datasets for title in titles), "over all data sets"]
    for table in tables.values():
        assert table.caption.endswith(".")
        for row in table.rows:
            assert len(row) == len(table.header)
            for cell in row[: table.text_columns]:
                assert cell.value is None


def test_quality_holds_means_intervals_and_latency_and_marks_the_highest(dataset: DatasetResult) -> None:
    table = columns(quality_table(dataset))
    for measure in dataset.measures:
        means = [system.means[measure] for system in dataset.systems.values()]
        assert [cell.value for cell in table[measure]] == means
        assert [cell.text for cell in table[measure]] == [f"{100 * mean:.2f}" for mean in means]
        assert [cell.best for cell in table[measure]] == [mean == max(means) for mean in means]
        for cell, system in zip(table[measure], dataset.systems.values(), strict=True):
            low, high = system.intervals[measure]
            assert cell.note == f"{100 * low:.1f} to {100 * high:.1f}"
    assert [cell.text for cell in table["p95 ms"]] == ["0.30", "0.90", "0.60", "618.00", "-", "1.95", "3.30"]


def test_what_is_not_known_is_a_dash_and_never_the_highest(dataset: DatasetResult) -> None:
    systems = dict(dataset.systems)
    for name in ("mlp", "gatv2"):
        values = dict.fromkeys(dataset.measures, torch.full((2,), nan).double())
        systems[name] = replace(systems[name], values=values, intervals=dict.fromkeys(dataset.measures, (nan, nan)))
    table = quality_table(replace(dataset, systems=systems))
    assert [str(cell) for cell in table.rows[-1][1:4]] == ["-", "-", "-"]
    assert not any(cell.best for row in table.rows[-2:] for cell in row)
    assert [row[1].best for row in table.rows].count(True) == 1


def test_stages_have_columns_of_their_own_where_there_are_several(dataset: DatasetResult) -> None:
    assert table_named(dataset, "cost").header[:3] == ["system", "total p50 ms", "total p95 ms"]
    cost = dataset.systems["gcs"].cost
    assert cost is not None
    both = replace(cost, ms={**cost.ms, "rerank": {"p50": 7.0, "p95": 9.0}}, encodings=100.0)
    changed = replace(dataset, systems={**dataset.systems, "gcs": replace(dataset.systems["gcs"], cost=both)})
    table = columns(table_named(changed, "cost"))
    assert [cell.text for cell in table["rerank p95 ms"]] == ["-", "-", "9.00", "-", "-", "-"]
    assert [cell.text for cell in table["graph p50 ms"]] == ["0.10"] * 6
    assert [cell.text for cell in table["pairs read"]][2] == "100"


def test_findings_keep_their_numbers(dataset: DatasetResult) -> None:
    tests = columns(table_named(dataset, "tests"))
    for name, of in {"difference": "difference", "p": "p_randomization", "p bootstrap": "p_bootstrap",
                     "p Holm": "p_holm", "effect size": "effect_size"}.items():  # fmt: skip
        assert [cell.value for cell in tests[name]] == [getattr(test, of) for test in dataset.tests]
    calibration = table_named(dataset, "calibration").rows[0]
    assert [cell.text for cell in calibration] == ["GATv2", "logistic", "20,000", "2.00", "0.0031", "0.0123", "0.0196"]
    confidence = table_named(dataset, "confidence").rows[0]
    texts = ["GATv2", "PR@5", "200", "60.00", "61.00", "0.0321", "0.1512", "0.842", "0.2400"]
    assert [cell.text for cell in confidence] == texts
    queries = columns(table_named(dataset, "queries"))
    assert [cell.text for cell in queries["text"]] == [entry.query_text for entry in dataset.query_differences]
    assert [cell.text for cell in queries["difference"]] == ["+100.00", "+100.00", "-100.00"]
    groups = columns(table_named(dataset, "groups of queries"))
    assert [cell.best for cell in groups["MLP"]] == [True, True]
    systems = columns(table_named(dataset, "systems"))
    assert [str(cell) for cell in systems["queries missing"]].count("4 (q3, q4, q5, q6)") == 1
