import re
from dataclasses import replace
from math import nan

import pytest

from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.report import notes_of, verdicts
from graphrerank.evaluation.result import EvaluationResult
from tests.support.results import all_tables


def test_every_number_of_every_table_is_in_the_report(study: EvaluationResult) -> None:
    report = study.markdown()
    for table in all_tables(study).values():
        assert table.caption in report
        for row in table.rows:
            numbers = [f"**{cell.text}**" if cell.best else cell.text for cell in row[table.text_columns :]]
            assert any(all(f" {number} " in line for number in numbers) for line in report.splitlines())


def test_tables_are_whole_whatever_the_texts_hold(study: EvaluationResult, dataset: DatasetResult) -> None:
    first, *others = dataset.query_differences
    text = "a | b\n<script>" + "long " * 100
    changed = replace(dataset, query_differences=[replace(first, query_text=text), *others])
    report = replace(study, datasets={"x": changed}).markdown()
    tables = re.findall(r"(?:^\|.*\|\n)+", report, re.MULTILINE)
    assert len(tables) == 13
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "| a \\| b &lt;script>long long" in report
    assert "<script" not in report
    assert max(map(len, re.findall(r"(?:long )+", report))) < 120  # long texts are shortened


def test_verdicts_and_notes_stand_beside_the_table(study: EvaluationResult) -> None:
    report = study.markdown()
    assert "- GATv2 is ahead of retriever: PR@10 +23.00 (" in report
    assert "- GATv2 cannot be told from MLP: PR@10 -3.00 (" in report
    assert "- their.run ranks nothing for 4 queries" in report
    assert "## attack test: 200 queries, 100 candidates" in report
    assert f"`{study.command}`" in report


@pytest.mark.parametrize(
    ("difference", "p_holm", "outcome", "verb"),
    [
        (0.02, 0.049, "ahead", "is ahead of"),
        (-0.02, 0.049, "behind", "is behind"),
        (0.02, 0.05, "unclear", "cannot be told from"),
        (0.02, nan, "unclear", "cannot be told from"),
    ],
)
def test_verdicts_follow_the_corrected_p_value(
    difference: float, p_holm: float, outcome: str, verb: str, dataset: DatasetResult
) -> None:
    test = replace(
        dataset.tests[0], difference=difference, interval=(-0.01, 0.03), p_holm=p_holm, p_randomization=0.012
    )
    (verdict,) = verdicts(replace(dataset, tests=[test, replace(test, baseline="gcs", difference=nan)]))
    assert verdict.outcome == outcome
    assert verdict.line == f"GATv2 against retriever: PR@10 {100 * difference:+.1f} (p = 0.012)"
    assert verdict.sentence.startswith(f"GATv2 {verb} retriever: PR@10 {100 * difference:+.2f} (-1.0 to +3.0), p Holm")


def test_notes_state_the_ceiling_ties_and_missing_queries(dataset: DatasetResult) -> None:
    expected = [
        "ceiling of PR for checkpoints 86.90 (80.00 before expansion): all relevant are candidates",
        "queries with a tie in the top 10: retriever 5.00%, ",
        "their.run ranks nothing for 4 queries, which count as 0: q3, q4, q5, q6",
    ]
    for note, start in zip(notes_of(dataset, "own"), expected, strict=True):
        assert note.startswith(start)
    assert "as trec_eval does" in notes_of(dataset, "trec")[1]
    system = replace(dataset.systems["gatv2"], tied_share=0.0, missing=tuple("abcdefg"))
    alone = replace(dataset, systems={"gatv2": system}, base_ceiling=dataset.ceiling)
    assert notes_of(alone, "own") == [
        "ceiling of PR 86.90: all relevant are candidates",
        "GATv2 ranks nothing for 7 queries, which count as 0: a, b, c, d, e, ...",
    ]
    assert notes_of(replace(alone, ceiling=None, systems={}), "own") == []
