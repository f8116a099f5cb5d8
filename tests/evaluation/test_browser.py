"""The report in a real browser."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphrerank.evaluation.result import EvaluationResult
from tests.support.browser import Page, axe_violations

HOSTILE = "<script>document.title = 'broken'</script> & \"quoted\" <b onclick='x'>ü</b>"


PLOTS = """Array.from(document.querySelectorAll(".plots svg"), (plot) => {
  const box = plot.getBoundingClientRect();
  const marks = Array.from(plot.querySelectorAll("use"), (mark) => mark.getBoundingClientRect());
  const inside = (m) => m.x >= box.x - 1 && m.right <= box.right + 1 && m.y >= box.y - 1 && m.bottom <= box.bottom + 1;
  return [box.width, box.height, marks.length, marks.every(inside)];
})"""


@pytest.fixture(scope="module")
def report(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


ROWS = "document.querySelector('#data-attack table').tBodies[0].rows"
COLUMN = f"Array.from({ROWS}, row => row.cells[1].innerText.split('\\n')[0])"


def test_a_click_sorts_a_table(page: Page, report: Path, result: EvaluationResult) -> None:
    page.open(report)
    before = page.evaluate(COLUMN)
    means = [f"{100 * one.means['PR@10']:.2f}" for one in result.datasets["attack"].systems.values()]
    assert before == means
    assert before != sorted(before, key=float)
    button = "#data-attack table thead th:nth-child(2) button"
    page.click(button)
    assert page.evaluate(COLUMN) == sorted(means, key=float, reverse=True)
    page.click(button)
    assert page.evaluate(COLUMN) == sorted(means, key=float)
    assert page.evaluate("document.querySelectorAll('[aria-sort]').length") == 1
    page.click("#data-attack table thead th:nth-child(1) button")
    names = page.evaluate(COLUMN.replace("cells[1]", "cells[0]"))
    assert names == sorted(names, key=str.lower)
    assert page.evaluate("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    assert page.complaints() == []


def test_what_is_not_known_sorts_last_both_ways(page: Page, report: Path) -> None:
    page.open(report)
    rows = "document.querySelector('#all table').tBodies[0].rows"
    page.evaluate(f"{rows}[0].cells[3].removeAttribute('data-value')")
    first = page.evaluate(f"{rows}[0].cells[0].innerText")
    for _ in range(2):
        page.click("#all table thead th:nth-child(4) button")
        assert page.evaluate(f"{rows}[{rows}.length - 1].cells[0].innerText") == first


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1200, False)])
def test_every_plot_shows_and_nothing_comes_from_outside(page: Page, report: Path, width: int, dark: bool) -> None:
    page.open(report, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    plots = page.evaluate(PLOTS)
    assert len(plots) == 2 * (2 + 2 + 1)  # data sets x (gains, fronts, of two measures; reliability)
    assert all(w > 250 and h > 100 and marks >= 6 and inside for w, h, marks, inside in plots)
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # wide tables scroll on their own
    assert page.requests() == [report.as_uri()]
    assert page.complaints() == []


MATCHES = "Array.from(document.querySelector('.matches').querySelectorAll('button'), one => one.innerText)"
CHOOSE = """(() => {
  const select = document.querySelector('.browser CLASS');
  select.value = 'VALUE';
  select.dispatchEvent(new Event('change'));
})()"""


def choose(page: Page, name: str, value: object) -> None:
    page.evaluate(CHOOSE.replace("CLASS", name).replace("VALUE", str(value)))


def test_a_query_is_found_and_shown_with_rankings_and_graph(page: Page, report: Path, result: EvaluationResult) -> None:
    page.open(report)
    dataset = result.datasets["attack"]
    assert page.evaluate("document.querySelector('.count').innerText") == "60 of 60, the first 50 shown"
    page.click(".search")
    page.write("q17")
    page.wait(MATCHES + ".length === 1")
    assert page.evaluate("document.querySelector('.count').innerText") == "1 of 60"
    assert page.evaluate("document.querySelector('.query h3').innerText") == dataset.query_texts[17]
    choose(page, ".left", list(dataset.systems).index("retriever"))
    headings = page.evaluate("Array.from(document.querySelectorAll('.query h4'), one => one.innerText)")[:2]
    scores = [100 * float(dataset.systems[name].values["PR@10"][17]) for name in ("retriever", "gatv2")]
    assert headings == [f"retriever: {scores[0]:.1f}", f"GATv2: {scores[1]:.1f}"]
    (browsed,) = [query for query in dataset.browser.queries if query.query_id == dataset.query_ids[17]]
    left, right = (browsed.rankings[list(dataset.systems).index(name)] for name in ("retriever", "gatv2"))
    query = "document.querySelector('.query')"
    names = page.evaluate(f"Array.from({query}.querySelectorAll('.rankings b'), one => one.innerText)")
    assert names == [dataset.browser.passages[passage][0] for ranked in (left, right) for passage in ranked]
    passages = {*left, *right}
    edges = [edge for edge in browsed.edges if passages.issuperset(edge[:2])]
    assert page.evaluate(f"{query}.querySelectorAll('.query-graph .edge').length") == len(edges) > 0
    assert page.evaluate(f"{query}.querySelectorAll('.query-graph .node').length") == len(passages)
    marked = page.evaluate(f"{query}.querySelectorAll('.query-graph .node.relevant').length")
    assert marked == len(passages.intersection(browsed.relevant))
    assert page.complaints() == []


@pytest.mark.parametrize("left", ["retriever", "mlp"])
def test_gains_and_losses_against_any_system(left: str, page: Page, report: Path, result: EvaluationResult) -> None:
    page.open(report)
    systems = result.datasets["attack"].systems
    choose(page, ".left", list(systems).index(left))
    change = systems["gatv2"].values["PR@10"] - systems[left].values["PR@10"]
    for kind, number in (("gained", change > 0), ("lost", change < 0), ("unchanged", change == 0)):
        choose(page, ".change", kind)
        assert page.evaluate("document.querySelector('.count').innerText").startswith(f"{int(number.sum())} of 60")


def test_hostile_passages_are_text(page: Page, report: Path) -> None:
    page.open(report)
    shown = page.evaluate(
        "Array.from(document.querySelectorAll('.matches button')).some(one => { one.click(); return Array.from("
        "document.querySelectorAll('.rankings small'), two => two.textContent).includes(" + json.dumps(HOSTILE) + ") })"
    )
    assert shown
    assert page.evaluate("document.querySelectorAll('.query b b, .query script, .query small b').length") == 0
    assert page.evaluate("document.title") == "Systems side by side: attack, scifact"
    assert page.complaints() == []


def test_hostile_text_is_text(page: Page, report: Path) -> None:
    page.open(report)
    cells = page.evaluate("Array.from(document.querySelectorAll('.prose'), c => c.firstChild.textContent)")
    assert HOSTILE in cells
    assert page.evaluate("document.querySelectorAll('.prose b, .prose script').length") == 0
    assert page.evaluate("document.title") == "Systems side by side: attack, scifact"
    assert page.complaints() == []


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1200, True)])
def test_axe_finds_nothing(page: Page, result: EvaluationResult, width: int, dark: bool, tmp_path: Path) -> None:
    one = tmp_path / "report.html"  # of one data set: axe takes as long as a page has elements
    one.write_text(replace(result, datasets={"attack": result.datasets["attack"]}).html(), encoding="utf-8")
    page.open(one, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert axe_violations(page) == []


def test_the_page_refuses_other_scripts_and_requests(page: Page, report: Path, tmp_path: Path) -> None:
    """Were something to slip in, it would not run, and the tests above would see it."""
    broken = tmp_path / "broken.html"
    more = "<script>document.title = 'broken'</script><img src='https://example.org/x.png'>"
    broken.write_text(report.read_text(encoding="utf-8").replace("</body>", f"{more}</body>"), encoding="utf-8")
    page.open(broken)
    assert page.evaluate("document.title") != "broken"
    assert len([text for text in page.complaints() if "Content Security Policy" in text]) == 2
