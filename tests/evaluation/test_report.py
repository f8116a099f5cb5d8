import re
from collections import Counter
from dataclasses import replace
from math import nan

import pytest
import torch

from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.report import dataset_tables, notes_of, quality_table, verdicts
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.tables import Cell, Table
from tests.support.results import Outline, all_tables


def table_named(dataset: DatasetResult, title: str) -> Table:
    return next(table for table in dataset_tables(dataset) if table.title == title)


def columns(table: Table) -> dict[str, list[Cell]]:
    rows = zip(*table.rows, strict=True)
    return {name: list(cells) for name, cells in zip(table.header, rows, strict=True)}


def test_every_table_is_whole_and_texts_are_on_the_left(result: EvaluationResult) -> None:
    tables = all_tables(result)
    titles = ["quality", "tests", "cost", "groups of queries", "other edges",
              "calibration", "confidence", "queries", "systems"]  # fmt: skip
    assert list(tables) == [*(f"{name}: {title}" for name in result.datasets for title in titles), "over all data sets"]
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
    nothing = {
        "values": dict.fromkeys(dataset.measures, torch.full((2,), nan).double()),
        "intervals": dict.fromkeys(dataset.measures, (nan, nan)),
    }
    systems = {**dataset.systems, "gatv2": replace(dataset.systems["gatv2"], **nothing)}
    table = quality_table(replace(dataset, systems=systems))
    assert [(str(cell), cell.best) for cell in table.rows[-1][1:4]] == [("-", False)] * 3
    assert [row[1].best for row in table.rows].count(True) == 1


def test_stages_have_columns_of_their_own_where_there_are_several(dataset: DatasetResult) -> None:
    assert table_named(dataset, "cost").header[:3] == ["system", "total p50 ms", "total p95 ms"]
    cost = dataset.systems["gcs"].cost
    both = replace(cost, ms={**cost.ms, "rerank": {"p50": 7.0, "p95": 9.0}}, encodings=100.0)
    changed = replace(dataset, systems={**dataset.systems, "gcs": replace(dataset.systems["gcs"], cost=both)})
    table = columns(table_named(changed, "cost"))
    assert [cell.text for cell in table["rerank p95 ms"]] == ["-", "-", "9.00", "-", "-", "-"]
    assert [cell.text for cell in table["graph p50 ms"]] == ["0.10"] * 6
    assert [cell.text for cell in table["pairs read"]][2] == "100"


def test_every_number_of_every_table_is_in_the_report(result: EvaluationResult) -> None:
    report = result.markdown()
    for text in (
        "- GATv2 is ahead of retriever: PR@10 +65.00 (",
        "- their.run returned no passages for 4 queries",
        "## attack test",
    ):
        assert text in report
    for table in all_tables(result).values():
        assert table.caption in report
        for row in table.rows:
            numbers = [f"**{cell.text}**" if cell.best else cell.text for cell in row[table.text_columns :]]
            assert any(all(f" {number} " in line for number in numbers) for line in report.splitlines())


def test_tables_are_whole_whatever_the_texts_hold(result: EvaluationResult, dataset: DatasetResult) -> None:
    first, *others = dataset.query_differences
    text = "a | b\n<script>" + "long " * 100
    changed = replace(dataset, query_differences=[replace(first, query_text=text), *others])
    report = replace(result, datasets={"x": changed}).markdown()
    tables = re.findall(r"(?:^\|.*\|\n)+", report, re.MULTILINE)
    assert len(tables) == 10
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert "| a \\| b &lt;script>long long" in report
    assert "<script" not in report
    assert max(map(len, re.findall(r"(?:long )+", report))) < 120  # long texts are shortened


@pytest.mark.parametrize(
    ("difference", "p_holm", "outcome", "verb"),
    [
        (0.02, 0.049, "ahead", "is ahead of"),
        (-0.02, 0.049, "behind", "is behind"),
        (0.02, 0.05, "unclear", "does not differ clearly from"),
        (0.02, nan, "unclear", "does not differ clearly from"),
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
        "ceiling of PR for checkpoints 86.90 (80.00 before expansion): all relevant passages are candidates",
        "queries with a tie in the top 10: retriever 5.00%, ",
        "their.run returned no passages for 3 queries, which score 0: q03, q04, q05",
    ]
    systems = {name: replace(one, tied_share=0.05, missing=one.missing[:-1]) for name, one in dataset.systems.items()}
    dataset = replace(dataset, systems=systems, ceiling=0.869, base_ceiling=0.8)
    for note, start in zip(notes_of(dataset, "own"), expected, strict=True):
        assert note.startswith(start)
    assert "as trec_eval does" in notes_of(dataset, "trec")[1]
    system = replace(dataset.systems["gatv2"], tied_share=0.0, missing=tuple("abcdefg"))
    alone = replace(dataset, systems={"gatv2": system}, base_ceiling=dataset.ceiling)
    assert notes_of(alone, "own") == [
        "ceiling of PR 86.90: all relevant passages are candidates",
        "GATv2 returned no passages for 7 queries, which score 0: a, b, c, d, e, ...",
    ]
    assert notes_of(replace(alone, ceiling=None, systems={}), "own") == []


def test_every_part_and_every_number_is_on_the_page(html: str, result: EvaluationResult) -> None:
    page = Outline(html)
    summaries = ["Query by query", "Tests", "Cost", "Groups of queries", "Other edges", "Calibration", "Confidence",
                 "Queries", "Systems"]  # fmt: skip
    assert page.texts["summary"] == [*summaries, *summaries]
    assert page.texts["h2"] == ["All data sets", "attack ", "scifact "]
    assert page.texts["pre"] == [result.command]
    verdicts = "".join(page.texts["li"])
    assert "GATv2 is ahead of retriever: PR@10 +65.00" in verdicts
    assert "does not differ clearly from MLP" in verdicts
    assert "their.run" in page.texts["th"]
    assert "their.run returned no passages for 4 queries, which score 0: q03, q04, q05, q59" in page.texts["li"]

    cells = [cell for table in all_tables(result).values() for row in table.rows for cell in row]
    values = Counter(str(cell.value) for cell in cells if cell.is_number)
    assert Counter(page.attributes("data-value")) == values  # with all digits
    texts = Counter(" ".join(cell.text.split()) for cell in cells)
    shown = Counter(" ".join(text.split()) for tag in ("td", "th", "strong") for text in page.texts[tag])
    assert texts - shown == Counter()

    assert {
        re.sub("^#m.*", "#m", link)[:5] for link in page.attributes("src", "href", "srcset", "action", "xlink:href")
    } == {"#data", "#m", "data:"}
    assert not re.search(r"url\(|@import|https?:|fetch\(|//[a-z]", "".join(page.texts["style"] + page.texts["script"]))
    assert not re.search("https?:", html)


def test_a_system_alone_without_cost_tests_or_numbers() -> None:
    values = {"PR@5/multi": torch.tensor([torch.nan, torch.nan]).double(), "R@5": torch.zeros(2).double()}
    intervals = {"PR@5/multi": (torch.nan, torch.nan), "R@5": (0.0, 0.0)}
    system = SystemResult("a.run", "run", "a.run.trec", values, intervals)
    dataset = DatasetResult("toy", "test", "f" * 64, ("q", "r"), ("", ""), (1, 1), {"a.run": system}, ("R@5",))
    page = Outline(EvaluationResult("graphrerank evaluate", {"toy": dataset}).html())
    assert page.texts["summary"] == ["Systems"]
    assert "figcaption" not in page.texts
    assert page.texts["td"].count("-") == 4  # the mean over no query, two times, and the unknown share of ties
