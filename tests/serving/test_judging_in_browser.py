"""The page of ``graphrerank judge`` in a real browser, and the files that it writes."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphrerank.evaluation.pooling import PooledPassage
from graphrerank.serving.judging.app import create_judging_app
from graphrerank.serving.judging.store import JudgementStore
from tests.support.browser import Page, axe_violations
from tests.support.folders import write_dataset
from tests.support.web import serving_app

HOSTILE = "<img src=x onerror=\"document.title = 'broken'\"> <b>Clouds</b> and much text about them. " * 20
CORPUS = {f"p{number}": (f"Guide > Part {number}", f"Passage {number}. {HOSTILE}") for number in range(8)}
QUESTION = "how do I <b>install</b> it?"
ENTER: dict[str, Any] = {"text": "\r", "windowsVirtualKeyCode": 13}


class Search:
    """Finds the first five passages. Other words find all of them."""

    def __call__(self, text: str) -> list[PooledPassage]:
        return self.passages(list(CORPUS)[: 5 if text != "clouds" else None])

    def passages(self, ids: Sequence[str]) -> list[PooledPassage]:
        return [PooledPassage(name, *CORPUS[name]) for name in ids]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in CORPUS.items()]
    return write_dataset(tmp_path / "mine", corpus=rows)


@pytest.fixture
def judging(folder: Path) -> Callable[[], Any]:
    """Serve the page of the data set folder."""

    @contextmanager
    def serve() -> Iterator[str]:
        store = JudgementStore(folder, list(CORPUS))
        with serving_app(lambda port: create_judging_app(Search(), store, port=port, name="<i>mine</i>")) as url:
            yield url

    return serve


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def find(page: Page, question: str) -> None:
    """Type a question where the focus is, and wait for its passages."""
    page.wait("document.querySelector('#name').textContent !== ''")
    page.evaluate("document.querySelector('#question').focus()")
    page.write(question)
    page.press("Enter", **ENTER)
    page.wait("document.querySelectorAll('#passages [data-id]').length > 0")


def save(page: Page, number: int) -> None:
    page.click("#save")
    page.wait(f"document.querySelectorAll('#questions li').length === {number}")


def test_typed_questions_and_clicked_passages_are_written(page: Page, judging: Callable[[], Any], folder: Path) -> None:
    with judging() as url:
        page.open(url + "/")
        find(page, QUESTION)
        assert len(page.texts("#passages [data-id]")) == 5
        assert page.evaluate("document.querySelector('#save').disabled")
        for name in ("p1", "p3", "p4", "p3"):  # p3 is taken back
            page.click(f"#passages [data-id={name}]")
        assert page.texts("#chosen") == ["2 of 5 passages are relevant"]
        save(page, 1)
        assert lines(folder / "queries.jsonl") == [json.dumps({"_id": "q1", "text": QUESTION})]
        judged = ["q1\tp0\t0", "q1\tp1\t1", "q1\tp2\t0", "q1\tp3\t0", "q1\tp4\t1"]
        assert lines(folder / "qrels" / "test.tsv") == ["query-id\tcorpus-id\tscore", *judged]
        assert page.texts("#progress")[0].startswith("1 judged. About 14 more")

        find(page, "and a second one?")
        page.evaluate("document.querySelector('#words').focus()")
        page.write("clouds")
        page.press("Enter", **ENTER)
        page.wait("document.querySelectorAll('#passages [data-id]').length === 8")
        page.click("#passages [data-id=p7]")
        save(page, 2)
        assert lines(folder / "qrels" / "test.tsv")[-1] == "q2\tp7\t1"

        page.click("#questions li:first-child .open")
        page.wait("document.querySelectorAll('#passages [aria-pressed=true]').length === 2")
        page.click("#passages [data-id=p1]")
        page.click("#save")
        page.wait("document.querySelector('#questions .open').textContent.includes('1 relevant')")
        assert "q1\tp1\t0" in lines(folder / "qrels" / "test.tsv")

        page.click("#questions li:first-child .remove")
        page.wait("document.querySelectorAll('#questions li').length === 1")
        assert [json.loads(line)["_id"] for line in lines(folder / "queries.jsonl")] == ["q2"]
        assert {line.split("\t")[0] for line in lines(folder / "qrels" / "test.tsv")[1:]} == {"q2"}
        assert page.evaluate("document.title") == "graphrerank judge"
        assert page.evaluate("document.querySelectorAll('main b, main i, main img, header i').length") == 0
        assert page.complaints() == []


def test_a_question_is_judged_with_the_keyboard(page: Page, judging: Callable[[], Any], folder: Path) -> None:
    with judging() as url:
        page.open(url + "/")
        find(page, QUESTION)
        page.evaluate("document.querySelector('#passages [data-id=p2]').focus()")
        page.press("Enter", **ENTER)
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        page.evaluate("document.querySelector('#save').focus()")
        page.press("Enter", **ENTER)
        page.wait("document.querySelectorAll('#questions li').length === 1")
        assert page.evaluate("document.activeElement.id") == "question"  # ready for the next one
        assert "q1\tp2\t1" in lines(folder / "qrels" / "test.tsv")


def test_an_error_is_shown_and_nothing_is_lost(page: Page, judging: Callable[[], Any], folder: Path) -> None:
    with judging() as url:
        page.open(url + "/")
        find(page, QUESTION)
        page.click("#passages [data-id=p2]")
        (folder / "queries.jsonl").write_text("{\n")  # as an editor may leave it
        page.click("#save")
        page.wait("document.querySelector('#status').classList.contains('error')")
        assert "queries.jsonl" in page.texts("#status")[0]
        (folder / "queries.jsonl").unlink()
        save(page, 1)


def test_a_long_passage_is_shown_whole(page: Page, judging: Callable[[], Any]) -> None:
    with judging() as url:
        page.open(url + "/", width=400, height=900)
        find(page, QUESTION)
        height = "document.querySelector('#passages li span').clientHeight"
        before = page.evaluate(height)
        page.click("#passages li:first-child .quiet")
        assert page.evaluate(height) > before
        assert page.evaluate("document.querySelector('#passages li span').scrollHeight") == page.evaluate(height)
        assert page.texts("#chosen") == ["0 of 5 passages are relevant"]
        page.click("#passages li:first-child .quiet")
        assert page.evaluate(height) == before


@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1280, False), (1280, True)])
def test_axe_finds_nothing(page: Page, judging: Callable[[], Any], width: int, dark: bool) -> None:
    with judging() as url:
        page.open(url + "/", width=width, height=900, dark=dark)
        find(page, QUESTION)
        page.click("#passages [data-id=p1]")
        save(page, 1)
        find(page, "and a second one?")
        page.click("#passages [data-id=p2]")
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
