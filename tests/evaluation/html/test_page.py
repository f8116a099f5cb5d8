import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.result import EvaluationResult
from tests.support.results import all_tables

VOID = {"meta", "link", "input"}


class Outline(HTMLParser):
    """Checks that every element is closed, and collects texts by the element that holds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.links: list[str] = []
        self.values: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.links += [link for name, link in attrs if name in ("src", "href", "srcset", "action", "xlink:href")]
        self.values += [value for name, value in attrs if name == "data-value"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_every_part_of_a_study_is_on_the_page(html: str, study: EvaluationResult) -> None:
    page = Outline(html)
    summaries = ["Tests", "Cost", "Groups of queries", "Hubs", "Edges by type", "Other edges", "Seeds", "Calibration",
                 "Confidence", "Queries", "Systems"]  # fmt: skip
    assert page.texts["summary"] == ["Query by query", *summaries, *summaries]
    assert page.texts["h2"] == ["All data sets", "attack ", "scifact "]
    assert page.texts["pre"] == [study.command]
    verdicts = "".join(page.texts["li"])
    assert "GATv2 is ahead of retriever: PR@10 +23.00" in verdicts
    assert "cannot be told from MLP" in verdicts
    assert "their.run" in page.texts["th"]
    assert "their.run ranks nothing for 4 queries, which count as 0: q3, q4, q5, q6" in page.texts["li"]


def test_every_number_of_every_table_is_on_the_page(html: str, study: EvaluationResult) -> None:
    page = Outline(html)
    cells = [cell for table in all_tables(study).values() for row in table.rows for cell in row]
    values = Counter(str(cell.value) for cell in cells if cell.is_number)
    assert Counter(page.values) == values  # with all digits
    texts = Counter(" ".join(cell.text.split()) for cell in cells)
    shown = Counter(" ".join(text.split()) for tag in ("td", "th", "strong") for text in page.texts[tag])
    assert texts - shown == Counter()


def test_nothing_on_the_page_asks_for_another_address(html: str) -> None:
    page = Outline(html)
    assert {re.sub("^#m.*", "#m", link)[:5] for link in page.links} == {"#data", "#m", "data:"}
    assert not re.search(r"url\(|@import|https?:|fetch\(|//[a-z]", "".join(page.texts["style"] + page.texts["script"]))
    assert not re.search("https?:", html)


def test_a_system_alone_without_cost_tests_or_numbers() -> None:
    values = {"PR@5/multi": torch.tensor([torch.nan, torch.nan]).double(), "R@5": torch.zeros(2).double()}
    intervals = {"PR@5/multi": (torch.nan, torch.nan), "R@5": (0.0, 0.0)}
    system = SystemResult("a.run", "run", "a.run.trec", values, intervals)
    dataset = DatasetResult("toy", "test", "f" * 64, ("q", "r"), ("", ""), (1, 1), {"a.run": system}, ("R@5",))
    page = Outline(EvaluationResult("python evaluate.py", {"toy": dataset}).html())
    assert page.texts["summary"] == ["Systems"]
    assert page.texts["figcaption"] == ["R@5 of every system; blue: a.run"]
    assert page.texts["td"].count("-") == 4  # the mean over no query, two times, and the unknown share of ties


def without_plots(dataset: DatasetResult, **changed: Any) -> DatasetResult:
    return replace(dataset, tested=(), reliability=(), **changed)


def test_a_loss_is_called_one(study: EvaluationResult, dataset: DatasetResult) -> None:
    losing = [
        replace(test, difference=-test.difference, interval=(-test.interval[1], -test.interval[0]))
        for test in dataset.tests
    ]
    page = Outline(replace(study, datasets={"attack": without_plots(dataset, tests=losing)}, across=()).html())
    assert any("is behind" in text for text in page.texts["li"])
    assert not any("is ahead" in text for text in page.texts["li"])


@pytest.mark.parametrize("name", ["", "a b", "<x>"])
def test_any_name_of_a_data_set(study: EvaluationResult, dataset: DatasetResult, name: str) -> None:
    datasets = {name: without_plots(dataset, name=name), "other": without_plots(dataset)}
    page = Outline(replace(study, datasets=datasets).html())
    assert f"{name} " in page.texts["h2"]


def test_any_name_of_a_system(study: EvaluationResult, dataset: DatasetResult) -> None:
    hostile = "<script>document.title = 'broken'</script> & \" {{ 7 * 7 }} $x$"
    systems = {**dataset.systems, hostile: replace(dataset.systems["ppr"], name=hostile)}
    page = Outline(replace(study, datasets={"attack": replace(dataset, systems=systems)}, across=()).html())
    assert hostile in page.texts["th"]
    assert len(page.texts["script"]) == 2  # the page's own, and what it reads of single queries
    assert "<" not in page.texts["script"][0]
