"""The page in a real browser."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serving.page.conftest import HOSTILE, QUESTION, TEXTS
from tests.support.browser import Page, axe_violations

ROWS = "#lists [data-column=right] li button"
MARKUP = "document.querySelectorAll('main b, main i, main u, main script, main img[src=x], main style').length"


@pytest.fixture(scope="module")
def url(serving: Callable[..., Any]) -> Iterator[str]:
    with serving() as address:
        yield address


def ask(page: Page, question: str) -> None:
    """Type a question, and wait for the list and the layout."""
    page.wait("document.querySelector('#modes').hidden === false")
    page.click("#query")
    page.write(question)
    page.press("Enter", text="\r", windowsVirtualKeyCode=13)
    page.wait(f"document.querySelector({json.dumps(ROWS)}) !== null")
    page.wait("document.querySelector('#graph').dataset.settled === 'true'")


def test_a_question_a_list_a_node_its_passage(page: Page, url: str) -> None:
    page.open(url + "/")
    ask(page, QUESTION)
    assert len(page.texts(ROWS)) == 10
    page.click("#more")
    assert len(page.texts(ROWS)) == 30
    labels = page.evaluate("Array.from(document.querySelectorAll('#graph .node'), n => n.ariaLabel)")
    place = next(place for place, label in enumerate(labels) if HOSTILE[:20] in label)
    page.click(f"#graph .node[data-node='{place}'] circle")
    assert page.texts("#passage") == [TEXTS[0]]
    page.wait("document.querySelector('#detail .edges') !== null")  # explained when it was asked for
    assert page.texts("#detail .edges .name")
    assert page.texts("#detail .overline") == ["<i>0</i>"]
    assert page.texts("#lists .chosen .name")[0].startswith("<script>")
    assert page.evaluate("document.title") == "graphrerank"
    assert page.evaluate(MARKUP) == 0
    assert page.texts("#model")[0].startswith("<b>base</b>")
    assert {address.split("/")[2] for address in page.requests()} == {url.removeprefix("http://")}
    assert page.complaints() == []


def test_two_systems_are_compared(page: Page, url: str) -> None:
    page.open(url + "/")
    ask(page, QUESTION)
    assert page.texts("#right option") == ["retriever", "ours", "<u>other</u>"]
    ours = page.texts(f"{ROWS} .name")
    page.evaluate("(s => { s.value = '2'; s.dispatchEvent(new Event('change')); })(document.querySelector('#right'))")
    assert page.texts("#lists h3 span:first-child") == ["retriever", "<u>other</u>"]
    assert page.texts(f"{ROWS} .moved") == ["="] * 10  # the same search
    assert page.texts(f"{ROWS} .name") != ours
    assert page.complaints() == []


OVERLAPS = """(() => {
  const labels = Array.from(document.querySelectorAll("#graph .node.named:not(.hushed) text"));
  const visible = labels.filter((label) => getComputedStyle(label).opacity > 0);
  const boxes = visible.map((label) => label.getBoundingClientRect());
  let count = 0;
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3) count += 1;
  }));
  return [boxes.length, count];
})()"""


@pytest.mark.parametrize("width", [1400, 400])
def test_labels_do_not_overlap_and_sections_come_first(page: Page, serving: Callable[..., Any], width: int) -> None:
    with serving(searches=False) as address:
        page.open(address + "/", width=width)
        pasted = {"documents": [f"Guide > Installing > Section {number}\nA worm." for number in range(30)]}
        pasted["edges"] = [[number, (number * 7 + 1) % 30] for number in range(30)]
        page.wait("document.querySelectorAll('#examples button').length === 3")
        page.evaluate(f"document.querySelector('#passages').value = {json.dumps(json.dumps(pasted))}")
        page.evaluate("document.querySelector('#query').value = 'worm'")
        page.click("#submit")
        page.wait(f"document.querySelector({json.dumps(ROWS)}) !== null")
        page.wait("document.querySelector('#graph').dataset.settled === 'true'")
        number, overlapping = page.evaluate(OVERLAPS)
        assert number >= 2
        assert overlapping == 0
        assert page.texts(f"{ROWS} .name span:first-child")[0].startswith("Section ")
        assert page.texts(f"{ROWS} .path")[0] == "Guide > Installing"
        assert page.texts("#lists [data-column=right] h3 .figure") == ["probability"]


@pytest.mark.parametrize("name", ["Films", "Tables of a database", "ATT&CK"])
def test_examples_need_no_corpus(page: Page, serving: Callable[..., Any], name: str) -> None:
    with serving(searches=False) as address:
        page.open(address + "/")
        page.wait("document.querySelectorAll('#examples button').length === 3")
        assert page.evaluate("document.querySelector('#modes').hidden")
        place = page.texts("#examples button").index(name)
        page.evaluate(f"document.querySelectorAll('#examples button')[{place}].click()")
        page.wait(f"document.querySelector({json.dumps(ROWS)}) !== null")
        page.click(f"{ROWS}:first-child")
        assert page.texts("#detail .edges .name")
        code = page.texts("#code")[0]
        assert code.startswith(f"curl {address}/v2/rerank")
        stages = [text.rsplit(" ", 2)[0] for text in page.texts("#stages li")]
        assert stages[:3] == ["parsing the request", "queue and model", "writing the response"]
        page.click("[data-code=python]")
        compile(page.texts("#code")[0], "snippet", "exec")
        page.evaluate("document.querySelector('#passages').value = '{\"documents\": 3'")
        page.click("#submit")
        page.wait("document.querySelector('#status').classList.contains('error')")
        assert page.complaints() == []


def test_a_filter_is_set_and_shown(page: Page, url: str) -> None:
    page.open(url + "/")
    page.wait("document.querySelector('#narrow').hidden === false")
    page.evaluate("""document.querySelector('#filter').value = '{"number": {"lt": 4}}'""")
    ask(page, QUESTION)
    assert len(page.texts(ROWS)) == 4
    assert '"number": {' in page.texts("#code")[0]
    page.click(f"{ROWS}:first-child")
    page.wait("document.querySelector('#detail .edges') !== null")
    for given, message in (('{"numbr": 1}', "['number']"), ("{", "The filter is not valid JSON")):
        page.evaluate(f"document.querySelector('#filter').value = {json.dumps(given)}")
        page.click("#submit")
        page.wait(f"document.querySelector('#status').textContent.includes({json.dumps(message)})")


def test_the_key_is_asked_for(page: Page, serving: Callable[..., Any]) -> None:
    with serving(api_key="secret") as address:
        page.open(address + "/")
        for key in ("wrong", "secret"):
            page.wait("document.querySelector('#locked').open")
            page.evaluate("document.querySelector('#key').focus()")
            page.write(key)
            page.press("Enter", text="\r", windowsVirtualKeyCode=13)
        ask(page, QUESTION)
        assert "authorization: Bearer $GRAPHRERANK_API_KEY" in page.texts("#code")[0]
        assert "secret" not in page.texts("#code")[0]


def test_keys_alone(page: Page, url: str) -> None:
    page.open(url + "/")
    ask(page, QUESTION)
    page.evaluate("document.querySelector('#graph .node[tabindex=\"0\"]').focus()")
    first = page.evaluate("document.activeElement.dataset.node")
    for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        page.press(key)
    page.press("Enter", text="\r", windowsVirtualKeyCode=13)
    chosen = page.evaluate("document.querySelector('#graph [aria-pressed=true]').dataset.node")
    assert page.texts("#detail .overline") == [page.evaluate("document.querySelector('#detail .overline').textContent")]
    assert first is not None
    assert chosen == page.evaluate("document.activeElement.dataset.node")
    assert (
        len(page.evaluate("Array.from(document.querySelectorAll('#graph [tabindex=\"0\"]'), n => n.dataset.node)")) == 1
    )


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_axe_finds_nothing(page: Page, url: str, width: int, dark: bool) -> None:
    page.open(url + "/", width=width, height=900, dark=dark)
    ask(page, QUESTION)
    page.click(f"{ROWS}:first-child")
    page.wait("document.querySelector('#detail .edges') !== null")
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
