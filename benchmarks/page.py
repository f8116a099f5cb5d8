"""Take pictures of the service's page in Chromium, and measure how long users wait.

graphrerank demo browser=false                                # in another terminal
PYTHONPATH=. python benchmarks/page.py --url http://localhost:8000 --pictures DIR    # docs/page.png is one of them

To measure what the page costs other clients, start a service without it
(`graphrerank serve artifact=base page=false port=8001`) and compare:
PYTHONPATH=. python benchmarks/page.py --without http://localhost:8001

Chromium draws without a GPU. The large graph has 200 passages and 2,000 edges, pasted as JSON.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.browser import Page, browsing

PASSAGES, EDGES, HOVERS = 200, 2000, 50
TURNS, REQUESTS = 20, 25  # number of turns, and of requests per turn
QUESTION = "Which mitigations prevent a phishing attachment from running?"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
WATCH = """(() => {
  window.begin = performance.now();
  window.frames = [];
  let last = begin;
  const look = (now) => { frames.push(now - last); last = now; if (!window.done) requestAnimationFrame(look); };
  requestAnimationFrame(look);
  const graph = document.querySelector('#graph');
  new MutationObserver((_, watch) => {
    if (graph.dataset.settled === 'true') { window.done = performance.now(); watch.disconnect(); }
  }).observe(graph, { attributes: true });
  document.querySelector('#submit').click();
})()"""
HOVER = """Array.from({ length: COUNT }, (_, index) => {
  const node = document.querySelectorAll('#graph .node')[index * 3];
  const begin = performance.now();
  node.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
  return performance.now() - begin;
})"""


def main() -> None:
    """Measure the page, and take pictures if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--url", default="http://localhost:8000", help="address of a running demo (default: %(default)s)"
    )
    parser.add_argument("--pictures", type=Path, help="folder for page.png, page_dark.png and page_phone.png")
    parser.add_argument(
        "--without", metavar="URL", help="address of a service with page=false; prints the ratio of latencies"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as profile, browsing(Path(profile)) as page:
        paints = [first_paint(page, arguments.url) for _ in range(5)]
        print(f"first paint: median {statistics.median(paints):.0f} ms of {[round(paint) for paint in paints]}")
        for name, number in large_graph(page, arguments.url).items():
            print(f"{PASSAGES} passages, {EDGES:,} edges: {name} {number:.1f} ms")
        if arguments.without is not None:  # The page shows the large graph meanwhile.
            with_page, without = latencies([arguments.url, arguments.without])
            print(f"POST /v2/rerank, p50: {with_page:.2f} ms while the page is used, {without:.2f} ms with page=false, "
                  f"ratio {with_page / without:.3f}")  # fmt: skip
        if arguments.pictures is not None:
            for name, width, height, dark in (
                ("page", 1280, 1000, False), ("page_dark", 1280, 1000, True), ("page_phone", 390, 1500, False),
            ):  # fmt: skip
                draw(page, arguments.url, arguments.pictures / f"{name}.png", width=width, height=height, dark=dark)


def first_paint(page: Page, url: str) -> float:
    """Return the milliseconds until the browser shows the first text of the page, with an empty cache."""
    page.call("Network.clearBrowserCache")
    page.open(f"{url}/")
    return float(page.wait(PAINT))


def latencies(urls: list[str]) -> list[float]:
    """Return the median milliseconds of a request to each service. The services are called in turn."""
    draw = random.Random(1)
    body = {
        "query": QUESTION,
        "scores": [draw.random() for _ in range(100)],
        "edges": sorted({tuple(sorted(draw.sample(range(100), 2))) for _ in range(300)}),
    }
    taken: dict[str, list[float]] = {url: [] for url in urls}
    for turn in range(TURNS + 1):
        for url in urls:
            for _ in range(REQUESTS):
                request = urllib.request.Request(
                    f"{url}/v2/rerank", json.dumps(body).encode(), {"content-type": "application/json"}
                )
                begin = time.perf_counter()
                with urllib.request.urlopen(request) as answer:
                    answer.read()
                if turn:  # The first turn is a warm-up.
                    taken[url].append(1000 * (time.perf_counter() - begin))
    return [statistics.median(of_url) for of_url in taken.values()]


def large_graph(page: Page, url: str) -> dict[str, float]:
    """Rank a large graph, and return the milliseconds until it is stable, of its frames, and of hovering a node."""
    draw = random.Random(0)
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < EDGES:
        a, b = sorted(draw.sample(range(PASSAGES), 2))
        pairs.add((a, b))
    types = ("reference", "entity", "adjacency", "similarity")
    pasted: dict[str, Any] = {
        "documents": [f"Passage {number}. About phishing, attachment {number % 7}." for number in range(PASSAGES)],
        "edges": [[a, b, 1, draw.choice(types)] for a, b in sorted(pairs)],
    }
    page.open(f"{url}/")
    page.wait("document.querySelector('#model').textContent !== ''")
    page.evaluate("document.querySelector('[data-mode=passages]').click()")
    for field, text in (("query", QUESTION), ("passages", json.dumps(pasted))):
        page.evaluate(f"document.querySelector('#{field}').value = {json.dumps(text)}")
    page.evaluate(WATCH)
    page.wait("window.done > 0")
    frames = sorted(page.evaluate("window.frames"))
    hovers = page.evaluate(HOVER.replace("COUNT", str(HOVERS)))
    return {
        "from the click until the graph is stable": page.evaluate("window.done - window.begin"),
        "a frame until then, median": statistics.median(frames),
        "a frame until then, 95th percentile": frames[int(0.95 * len(frames))],
        "hovering a node, median": statistics.median(hovers),
    }


def draw(page: Page, url: str, path: Path, *, width: int, height: int, dark: bool) -> None:
    """Ask the demo's question, select the first passage, and take the pictures."""
    page.open(f"{url}/", width=width, height=height, dark=dark)
    page.wait("document.querySelector('#examples button') !== null")
    page.evaluate(f"document.querySelector('#query').value = {json.dumps(QUESTION)}")
    page.evaluate("document.querySelector('#submit').click()")
    page.wait("document.querySelector('#graph').dataset.settled === 'true'")
    page.evaluate("document.querySelector('[data-column=right] li:nth-child(2) button').click()")
    page.wait("document.querySelector('#detail .edges') !== null")
    page.evaluate("document.activeElement.blur()")
    page.evaluate("new Promise(requestAnimationFrame)")
    page.picture(path)


if __name__ == "__main__":
    main()
