import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.tables import (
    Cell,
    Table,
    number_cell,
    p_cell,
    p_text,
    percent_cell,
    points_cell,
    print_table,
    row_name,
    rows_table,
)
from graphrerank.utils.markdown import markdown_table

Print = Callable[..., str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Print:
    """Print on a terminal of some width; returns what is on it."""

    def print_at(width: int, show: Callable[..., None], *args: object, **settings: object) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        show(*args, **settings)
        return capsys.readouterr().out

    return print_at


def read_back(text: str) -> list[list[list[str]]]:
    """Return the rows of each printed table; a row that begins without a number continues the name above."""
    tables: list[list[list[str]]] = []
    for line in text.splitlines():
        if line.startswith("┏"):
            tables.append([])
        elif line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if any(cells[1:]):
                tables[-1].append(cells)
            else:
                tables[-1][-1][0] += cells[0]
    return tables


NAMES = ["hybrid_expand_with_a_very_long_name-gatv2-of-seed-1", "hybrid_expand_with_a_very_long_name-gatv2-of-seed-2",
         "[bold]x[/bold]", "検索システム", "a"]  # fmt: skip
TABLE = Table(
    "quality",
    ["system", *(f"nDCG@{k}/multi" for k in (1, 5, 10, 100)), "p50 ms"],
    [[Cell(name), *(Cell(f"{place}{k}.25", note="no note") for k in range(4)), Cell("1234.56")]
     for place, name in enumerate(NAMES)],
)  # fmt: skip


@pytest.mark.parametrize("width", [5, 40, 160])
def test_no_number_and_no_name_is_cut_at_any_width(width: int, printed: Print) -> None:
    text = printed(width, print_table, TABLE, title="title")
    tables = read_back(text)
    for table in tables:
        assert [row[0] for row in table] == NAMES
    numbers = [[cell for table in tables for cell in table[place][1:]] for place in range(len(NAMES))]
    assert numbers == [[cell.text for cell in row[1:]] for row in TABLE.rows]
    assert all(re.search(rf"┃ *{re.escape(name)} *┃", text) for name in TABLE.header)
    assert "…" not in text
    assert len(tables) == 1


def test_the_table_of_training_is_whole_at_80_columns(dataset: DatasetResult, printed: Print) -> None:
    """The look of the README's first screen."""
    measures = ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10")
    systems = {
        name: replace(
            system,
            values={measure: system.values.get(measure, system.values["R@10"]) for measure in measures},
            intervals={},
            missing=(),
        )
        for name, system in dataset.systems.items()
        if name in ("retriever", "gcs", "gatv2")
    }
    tests = [test for test in dataset.tests if test.baseline in systems]
    trained = replace(dataset, systems=systems, tests=tests, candidates=100, ceiling=0.869, base_ceiling=0.869)
    lines = [line.rstrip() for line in printed(80, print_result, trained, ties="own").splitlines()]
    assert lines[0].strip() == "attack test: 60 queries, 100 candidates"
    assert lines[2] == "┃system    ┃  PR@5 ┃ PR@10 ┃   R@2 ┃   R@5 ┃  R@10 ┃ nDCG@10 ┃ p50 ms ┃ p95 ms┃"
    assert lines[4] == "│retriever │ 37.50 │ 15.00 │ 37.50 │ 37.50 │ 37.50 │   26.60 │   0.20 │   0.30│"
    assert [line.strip() for line in lines[8:13]] == [
        "ceiling of PR 86.90: all relevant passages are candidates",
        "GATv2 against retriever: PR@10 +65.0 (p = 0.0005), nDCG@10 +50.0 (p = 0.0005)",
        "GATv2 against GCS: PR@10 +65.0 (p = 0.0005), nDCG@10 +45.0 (p = 0.0005)",
        "best by PR@10: GATv2 (80.00)",
        "retriever: the search alone, whose candidates all other rows reorder",
    ]
    assert "PR@K: percentage of questions whose relevant passages are all among the first K" in lines


def test_sentences_that_do_not_fit_under_the_table_take_the_whole_width(printed: Print) -> None:
    table = Table("t", ["system", "a"], [[Cell("x"), Cell("1")]])
    sentence = "a sentence much longer than this table is wide, [red]and no markup[/red]"
    assert printed(80, print_table, table, title="title", lines=["short", sentence]).splitlines()[-2:] == [
        "short",
        sentence,
    ]


def test_numbers_are_rounded_once() -> None:
    assert (number_cell(1234.0, ",.0f").text, number_cell(None).text) == ("1,234", "-")
    assert (p_cell(0.0251).text, p_cell(1e-5).text) == ("0.025", "< 0.0001")
    assert str(percent_cell(0.5, (0.25, 0.755))) == "50.00 (25.0 to 75.5)"
    assert str(points_cell(-0.015, (-0.02, 0.0))) == "-1.50 (-2.0 to +0.0)"
    assert [p_text(p) for p in (0.0251, 0.00042, 1 / 10_001)] == ["p = 0.025", "p = 0.0004", "p < 0.0001"]


def test_a_row_per_entry() -> None:
    table = rows_table("doubles", "", [{"n": Cell(str(n)), "2n": number_cell(2 * n)} for n in (1, 2)])
    assert (table.header, [str(cell) for cell in table.rows[1]]) == (["n", "2n"], ["2", "4.00"])
    assert (row_name("gcs"), row_name("re2")) == ("GCS", "re2")
    assert markdown_table(["name", "a"], [["x", "1"]]) == "| name | a |\n| --- | --: |\n| x | 1 |"
