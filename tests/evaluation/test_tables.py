from graphrerank.evaluation.tables import (
    Cell,
    build_table,
    markdown_table,
    number_cell,
    p_cell,
    p_text,
    percent_cell,
    points_cell,
    row_name,
)


def test_numbers_are_rounded_once() -> None:
    assert (number_cell(1234.0, ",.0f").text, number_cell(None).text) == ("1,234", "-")
    assert (p_cell(0.0251).text, p_cell(1e-5).text) == ("0.025", "< 0.0001")
    assert str(percent_cell(0.5, (0.25, 0.755))) == "50.00 (25.0 to 75.5)"
    assert str(points_cell(-0.015, (-0.02, 0.0))) == "-1.50 (-2.0 to +0.0)"
    assert [p_text(p) for p in (0.0251, 0.00042, 1 / 10_001)] == ["p = 0.025", "p = 0.0004", "p < 0.0001"]


def test_a_row_per_entry() -> None:
    table = build_table("doubles", "", [1, 2], {"n": lambda n: Cell(str(n)), "2n": lambda n: number_cell(2 * n)})
    assert (table.header, [str(cell) for cell in table.rows[1]]) == (["n", "2n"], ["2", "4.00"])
    assert (row_name("gcs"), row_name("re2")) == ("GCS", "re2")
    assert markdown_table(["name", "a"], [["x", "1"]]) == "| name | a |\n| --- | --: |\n| x | 1 |"
