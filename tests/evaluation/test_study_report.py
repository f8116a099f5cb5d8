import re
from dataclasses import replace

from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_report import render_study
from graphrerank.evaluation.study_tables import study_tables


def test_every_number_of_every_table_is_in_the_report(study: Study) -> None:
    report = render_study(study)
    for table in study_tables(study).values():
        assert table.caption in report
        for row in table.rows:
            numbers = [f"**{cell.text}**" if cell.best else cell.text for cell in row[table.text_columns :]]
            assert any(all(f" {number} " in line for number in numbers) for line in report.splitlines())


def test_tables_are_whole_whatever_the_texts_hold(study: Study, dataset: DatasetStudy) -> None:
    first, *others = dataset.query_differences
    text = "a | b\n<script>" + "long " * 100
    report = render_study(
        replace(study, datasets={"x": replace(dataset, query_differences=[replace(first, query_text=text), *others])})
    )
    tables = re.findall(r"(?:^\|.*\|\n)+", report, re.MULTILINE)
    assert len(tables) == 13
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "| a \\| b &lt;script>long long" in report
    assert "<script" not in report
    assert max(map(len, re.findall(r"(?:long )+", report))) < 120  # long texts are shortened


def test_verdicts_and_notes_stand_beside_the_table(study: Study) -> None:
    report = render_study(study)
    assert "- GATv2 is ahead of retriever: PR@10 +23.00 (" in report
    assert "- GATv2 cannot be told from MLP: PR@10 -3.00 (" in report
    assert "- their.run ranks nothing for 4 queries" in report
    assert "## attack test: 200 queries, 100 candidates" in report
    assert f"`{study.command}`" in report
