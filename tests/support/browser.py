"""A real browser: Chromium without a window, driven over its DevTools protocol."""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
WAIT_S = 30.0
LOADED = """new Promise(done => {
  const look = () => location.href === HREF && document.readyState === "complete"
    ? requestAnimationFrame(() => done(1)) : setTimeout(look, 10);
  look();
})"""
MIDDLE = """(() => {
  const element = document.querySelector(SELECTOR);
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""


class Page:
    """A page of the browser, with everything that it logged and asked for."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (message := json.loads(self.socket.recv(WAIT_S))).get("id") != number:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, place: Path | str, *, width: int = 1200, height: int = 800, dark: bool = False) -> None:
        """Open a file or an address anew, and wait until it is drawn."""
        address = place.as_uri() if isinstance(place, Path) else place
        self.call("Page.navigate", url="about:blank")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.evaluate(LOADED.replace("HREF", json.dumps(address)))

    def evaluate(self, expression: str) -> Any:
        for _ in range(5):  # a navigation in between ends the context of an expression
            try:
                found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
                break
            except AssertionError:
                time.sleep(0.1)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that a selector finds."""
        found: list[str] = self.evaluate(
            f"Array.from(document.querySelectorAll({json.dumps(selector)}), e => e.textContent)"
        )
        return found

    def click(self, selector: str) -> None:
        """Click with the mouse on the middle of what a selector finds."""
        x, y = self.evaluate(MIDDLE.replace("SELECTOR", json.dumps(selector)))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def complaints(self) -> list[str]:
        """Errors and warnings that were logged, and exceptions that nobody caught."""
        self.call("Runtime.evaluate", expression="1")  # what was sent before it has arrived
        bad = {"Runtime.exceptionThrown", "Log.entryAdded"}
        return [
            str(event["params"])
            for event in self.events
            if event.get("method") in bad
            or (event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"))
        ]

    def requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def wait(self, expression: str, *, seconds: float = 4 * WAIT_S) -> Any:
        """Wait until an expression is true; return what it is."""
        deadline = time.monotonic() + seconds
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} did not come: {self.complaints()}"
            time.sleep(0.05)
        return found

    def press(self, key: str, **more: Any) -> None:
        """Press a key that writes nothing, or Enter."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def write(self, text: str) -> None:
        """Write where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, *, height: int | None = None, top: float = 0) -> None:
        """Write what is seen as PNG; of a page that is longer than its window, ``height`` pixels from ``top`` on."""
        size = self.evaluate("[innerWidth, innerHeight]")
        clip = {"x": 0, "y": top, "width": size[0], "height": height or size[1], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """Run Chromium with a folder of its own, and end it."""
    from websockets.sync.client import connect

    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
               "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        port = next(found.group(1) for line in lines if (found := re.search(r"listening on ws://[^:]+:(\d+)/", line)))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_S) as answer:
            target = next(entry for entry in json.load(answer) if entry["type"] == "page")
        with connect(target["webSocketDebuggerUrl"], proxy=None, max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(WAIT_S)
        process.stderr.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser, or a skip."""
    if not CHROMIUM:
        pytest.skip("no Chromium: apt-get install chromium")
    pytest.importorskip("websockets.sync.client", reason="websockets is of the dev extra")
    with browsing(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def axe_violations(page: Page) -> list[list[Any]]:
    """Return what axe-core finds in an open page: rule, impact and the HTML of each."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is of the dev extra")
    page.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8") + "; 1")
    found: list[list[Any]] = page.evaluate(
        "axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html)]))"
    )
    return found
