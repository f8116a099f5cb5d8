"""Thumbs of the page in a real browser, and what they write to the feedback log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrerank.feedback.log import read_log
from tests.serving.page.conftest import QUESTION
from tests.serving.page.test_in_browser import ROWS, ask
from tests.support.browser import Page, axe_violations

FIRST = "#lists [data-column=right] li:first-child"
RIGHT, WRONG = (f"{FIRST} [data-thumb={kind}]" for kind in ("accepted", "dismissed"))


def pressed(page: Page, selector: str) -> bool:
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).getAttribute('aria-pressed')") == "true"


def wait_for_status(page: Page, words: str) -> None:
    page.wait(f"document.querySelector('#feedback').textContent.includes({json.dumps(words)})")


def feedback_events(log: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(log.glob("feedback-*.jsonl")) for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda event: event["time"])


def test_a_click_is_written_once_changed_and_taken_back(
    page: Page, serving: Callable[..., Any], tmp_path: Path
) -> None:
    with serving(log=tmp_path) as url:
        page.open(url + "/")
        ask(page, QUESTION)
        node = page.evaluate(f"document.querySelector({json.dumps(RIGHT)}).dataset.of")
        # The page handles no answer between the two clicks: the second one is during the request, and is ignored.
        page.evaluate(f"for (const _ of [1, 2]) document.querySelector({json.dumps(RIGHT)}).click()")
        wait_for_status(page, "Your feedback is saved")
        assert len(feedback_events(tmp_path)) == 1
        assert pressed(page, RIGHT)
        (session,) = read_log(tmp_path).sessions
        assert session.query == QUESTION
        assert session.gains[0] == 2.0
        assert not any(session.gains[1:])
        page.click(WRONG)
        page.wait(f"document.querySelector({json.dumps(WRONG)}).getAttribute('aria-pressed') === 'true'")
        assert not pressed(page, RIGHT)
        changed = feedback_events(tmp_path)[-1]
        assert changed["dismissed"] == changed["withdrawn"] == [session.ids[0]]
        assert not any(read_log(tmp_path).sessions[0].gains)
        page.click(f"{FIRST} > button")
        page.wait(f"document.querySelector('#detail [data-of=\"{node}\"]') !== null")
        assert pressed(page, "#detail [data-thumb=dismissed]")
        page.click("#detail [data-thumb=dismissed]")
        wait_for_status(page, "taken back")
        assert not pressed(page, WRONG)
        assert feedback_events(tmp_path)[-1].keys() & {"accepted", "dismissed", "withdrawn"} == {"withdrawn"}
        page.click(RIGHT)
        page.wait(f"document.querySelector({json.dumps(RIGHT)}).getAttribute('aria-pressed') === 'true'")
        assert read_log(tmp_path).sessions[0].gains[0] == 2.0
        assert len(read_log(tmp_path).sessions) == 1  # explaining a passage logs no second list
        assert page.complaints() == []


def test_pasted_passages_are_judged_with_the_keyboard(page: Page, serving: Callable[..., Any], tmp_path: Path) -> None:
    with serving(searches=False, log=tmp_path) as url:
        page.open(url + "/")
        page.wait("document.querySelectorAll('#examples button').length === 3")
        page.click("#examples button")
        page.wait(f"document.querySelector({json.dumps(ROWS)}) !== null")
        page.evaluate(f"document.querySelector({json.dumps(WRONG)}).focus()")
        page.press("Enter", text="\r", windowsVirtualKeyCode=13)
        wait_for_status(page, "Your feedback is saved")
        assert page.evaluate(f"document.activeElement === document.querySelector({json.dumps(WRONG)})")
        (event,) = feedback_events(tmp_path)
        (session,) = read_log(tmp_path).sessions
        assert event["dismissed"] == [session.ids[0]]


def test_a_service_with_a_key_and_an_error(page: Page, serving: Callable[..., Any], tmp_path: Path) -> None:
    with serving(log=tmp_path, api_key="secret") as url:
        page.open(url + "/")
        page.wait("document.querySelector('#locked').open")
        page.evaluate("document.querySelector('#key').focus()")
        page.write("secret")
        page.press("Enter", text="\r", windowsVirtualKeyCode=13)
        ask(page, QUESTION)
        page.click(RIGHT)
        wait_for_status(page, "Your feedback is saved")
        assert len(feedback_events(tmp_path)) == 1
        for path in tmp_path.glob("shown-*.jsonl"):  # as after its days have passed
            path.unlink()
        page.click(WRONG)
        page.wait("document.querySelector('#feedback').classList.contains('error')")
        wait_for_status(page, "The feedback was not saved: request_id: must be the id of a logged response")
        assert pressed(page, RIGHT)
        assert not pressed(page, WRONG)


def test_no_thumbs_without_a_log(page: Page, serving: Callable[..., Any]) -> None:
    with serving() as url:
        page.open(url + "/")
        ask(page, QUESTION)
        page.click(f"{ROWS}:first-child")
        assert page.texts(".thumbs") == []


@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1280, False), (1280, True)])
def test_axe_finds_nothing_in_thumbs(
    page: Page, serving: Callable[..., Any], tmp_path: Path, width: int, dark: bool
) -> None:
    with serving(log=tmp_path) as url:
        page.open(url + "/", width=width, height=900, dark=dark)
        ask(page, QUESTION)
        page.click(RIGHT)
        wait_for_status(page, "Your feedback is saved")
        page.click("#lists [data-column=right] li:nth-child(2) [data-thumb=dismissed]")
        page.wait("document.querySelectorAll('#lists [data-thumb][aria-pressed=true]').length === 2")
        page.click(f"{FIRST} > button")
        page.wait("document.querySelector('#detail .edges') !== null")
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.evaluate(
            "Array.from(document.querySelectorAll('.thumbs button'), b => b.getBoundingClientRect())"
            ".filter(b => b.width).map(b => Math.min(b.width, b.height))"
        )
        assert min(sizes) >= 24
