"""Numbers and tables of ``metrics.json`` as trackers show them, worked by hand."""

import pytest

from graphrerank.cli.tracking.results import comparison_table, flat_numbers, result_tables, row_keys

PAPER = {  # as `write_tables` of the papers' experiments writes it
    "data sets": [{"data set": "musique", "passages": 11656, "comparable": "yes", "95% interval": [0.1, 0.2]}],
    "The adapter": [{"best epoch": 3, "AUC on validation": 0.75, "shares": {"dense": 0.5}}],
    "budget": [
        {"pipeline": "gar", "budget": 10, "R@10": 0.5},
        {"pipeline": "gar", "budget": 20, "R@10": 0.625},
        {"pipeline": "re2", "budget": 10, "R@10": None},
    ],
    "empty": [],
    "systems": [{"system": "GATv2", "chosen": "lr 0.003, decay 0.01"}, {"system": "MLP", "seconds": 3}],
}


def test_rows_are_keyed_by_their_first_columns() -> None:
    assert flat_numbers(PAPER) == {
        "data sets/musique/passages": 11656,
        "the adapter/best epoch": 3,
        "the adapter/auc on validation": 0.75,
        "the adapter/shares/dense": 0.5,
        "budget/gar 10/budget": 10,
        "budget/gar 10/r@10": 0.5,
        "budget/gar 20/budget": 20,
        "budget/gar 20/r@10": 0.625,
        "budget/re2 10/budget": 10,
        "systems/mlp/seconds": 3,
    }


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        ([{"smoothing": 0.0, "R": 1}, {"smoothing": 0.25, "R": 1}], ["0", "0.25"]),
        ([{"set": "a"}, {"set": "A"}], ["a 1", "A 2"]),  # keys are in lower case, so that they would be one
        ([{"set": "a", "n": 1}, {"set": "a", "n": 1}], ["a 1", "a 2"]),
        ([{"set": None, "n": 1}, {"set": "b", "n": 1}], ["-", "b"]),
        ([{"set": "all", "n": 1}], ["all"]),
        ([{"n": 1}], [""]),
    ],
)
def test_no_two_rows_have_one_key(rows: list[dict[str, object]], keys: list[str]) -> None:
    assert row_keys(rows) == keys


def test_every_list_of_rows_is_a_table() -> None:
    tables = {table.name: table for table in result_tables(PAPER)}
    assert list(tables) == ["data sets", "The adapter", "budget", "systems"]
    assert tables["data sets"].columns == ["data set", "passages", "comparable", "95% interval"]
    assert tables["data sets"].rows == [["musique", 11656, "yes", "0.1 to 0.2"]]
    assert tables["budget"].rows[2] == ["re2", 10, None]
    assert tables["The adapter"].columns == ["best epoch", "AUC on validation"]
    assert tables["budget"].markdown.splitlines()[:3] == [
        "| pipeline | budget | R@10 |", "| --- | --- | --- |", "| gar | 10 | 0.5 |"
    ]  # fmt: skip


def test_the_comparison_has_measures_latency_and_p_values() -> None:
    systems = {
        "bm25": {"nDCG@10": 0.5, "PR@5": 0.25, "missing": 1, "interval": {}, "latency_ms": {"p50": 2.0, "p95": 4.0}},
        "ours": {"nDCG@10": 0.75, "PR@5": None, "missing": 0, "interval": {}, "latency_ms": {}},
    }
    tests = [{"system": "ours", "baseline": "bm25", "measure": "nDCG@10", "p_value": 0.01, "p_holm": 0.02}]
    table = comparison_table("toy/systems", systems, tests)
    assert table.columns == ["system", "nDCG@10", "PR@5", "p50 ms", "p95 ms", "p nDCG@10", "p Holm nDCG@10"]
    assert table.rows == [["bm25", 0.5, 0.25, 2.0, 4.0, 0.01, 0.02], ["ours", 0.75, None, None, None, None, None]]


def test_names_of_tables_are_names_of_files() -> None:
    (table,) = result_tables({"../sets: all/some": [{"set": "a"}]})
    assert table.name == "..-sets- all-some"
