import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from graphrerank.evaluation.html import render_html
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Checks that every element is closed, and collects texts by the element that holds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.links: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.links += [link for name, link in attrs if name in ("src", "href", "srcset", "action", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_every_part_of_a_study_is_on_the_page(study: Study) -> None:
    page = Outline(render_html(study))
    summaries = ["Cost", "Statistics", "Queries that differ most", "Kinds of queries", "Does the graph matter?", "Hubs",
                 "Seeds", "Calibration", "Systems"]  # fmt: skip
    assert page.texts["summary"] == 2 * summaries
    assert page.texts["h2"] == ["All data sets", "attack ", "scifact "]
    assert page.texts["pre"] == [study.command]
    verdicts = "".join(page.texts["li"])
    assert "is ahead of" in verdicts
    assert "cannot be told from MLP" in verdicts
    assert "their.run" in page.texts["th"]
    assert "q3, q4, q5, …" in page.texts["small"]


def test_nothing_on_the_page_asks_for_another_address(study: Study) -> None:
    page = Outline(render_html(study))
    assert {link[:5] for link in page.links} == {"#data", "data:"}
    assert not re.search(r"url\(|@import|https?:|fetch\(|//[a-z]", "".join(page.texts["style"] + page.texts["script"]))


def test_a_system_alone_without_cost_tests_or_numbers() -> None:
    values = {"PR@5/multi": torch.tensor([torch.nan, torch.nan]).double(), "R@5": torch.zeros(2).double()}
    intervals = {"PR@5/multi": (torch.nan, torch.nan), "R@5": (0.0, 0.0)}
    system = SystemStudy("a.run", "run", "a.run.trec", values, intervals)
    dataset = DatasetStudy("toy", "test", "f" * 64, ("q", "r"), ("", ""), (1, 1), {"a.run": system}, ("R@5",))
    page = Outline(render_html(Study("python evaluate.py", {"toy": dataset})))
    assert page.texts["summary"] == ["Systems"]
    assert page.texts["figcaption"] == ["R@5 of every system; blue: a.run"]
    assert page.texts["td"].count("-") == 2  # the mean over no query, and the unknown share of ties


def test_a_loss_is_called_one(study: Study, dataset: DatasetStudy) -> None:
    losing = [
        replace(test, difference=-test.difference, interval=(-test.interval[1], -test.interval[0]))
        for test in dataset.tests
    ]
    page = Outline(render_html(replace(study, datasets={"attack": replace(dataset, tests=losing)}, across=())))
    assert any("is behind" in text for text in page.texts["li"])
    assert not any("is ahead" in text for text in page.texts["li"])


@pytest.mark.parametrize("name", ["", "a b", "<x>"])
def test_any_name_of_a_data_set(study: Study, dataset: DatasetStudy, name: str) -> None:
    datasets = {name: replace(dataset, name=name), "other": dataset}
    page = Outline(render_html(replace(study, datasets=datasets)))
    assert f"{name} " in page.texts["h2"]
