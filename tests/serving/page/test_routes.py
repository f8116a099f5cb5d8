"""The page's files, and what they may do."""

import re
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from graphrerank.serving.page import FILES, PAGE_PATHS
from graphrerank.serving.settings import PageSettings
from tests.support.client import make_client

FOLDER = files("graphrerank.serving.page")
TEXTS = {name: (FOLDER / name).read_text(encoding="utf-8") for name in FILES}
READS_HTML = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|srcdoc")


PAGE = PageSettings("base", searches=True, questions=["why?"], corpus="docs")


@pytest.mark.parametrize("path", PAGE_PATHS)
def test_each_file_has_a_policy_and_a_tag(path: str) -> None:
    client = make_client(page=PAGE, api_key="key")
    got = client.get(path)  # without the key
    assert got.status_code == 200
    assert got.text == TEXTS[path.removeprefix("/page/") if path != "/" else "index.html"]
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert got.headers["x-content-type-options"] == "nosniff"
    again = client.get(path, headers={"if-none-match": got.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head(path).status_code == 200
    assert client.post(path).status_code == 405


def test_what_is_shown_needs_the_key() -> None:
    client = make_client(page=PAGE, api_key="key")
    assert client.get("/info").status_code == 401
    known = client.get("/info", headers={"x-api-key": "key"}).json()
    assert known["page"] == {
        "name": "base",
        "searches": True,
        "questions": ["why?"],
        "corpus": "docs",
        "feedback": False,
    }
    for path in ("/page/", "/page/__init__.py", "/page/../info", "/page/app.js/x"):
        assert client.get(path).status_code == 401, path


def test_it_can_be_turned_off() -> None:
    client = make_client(page=None)
    assert [client.get(path).status_code for path in PAGE_PATHS] == [404] * len(PAGE_PATHS)
    assert "page" not in client.get("/info").json()
    assert make_client(page=None, api_key="key").get("/").status_code == 401


def test_all_files_are_served_and_none_is_missing() -> None:
    there = {entry.name for entry in FOLDER.iterdir() if entry.is_file() and not entry.name.endswith(".py")}
    assert there == set(FILES)
    for name, text in TEXTS.items():
        named = re.findall(r'(?:from|import) "\./([^"]+)"', text) + re.findall(r'(?:src|href)="/page/([^"]+)"', text)
        assert set(named) <= set(FILES), name


def test_nothing_comes_from_elsewhere_and_nothing_is_read_as_html() -> None:
    for name, text in TEXTS.items():
        hosts = {urlsplit(address).netloc for address in re.findall(r"https?://[^\s\"'`)>]+", text)}
        assert hosts <= {"www.w3.org"}, name  # the name of SVG
        assert not READS_HTML.search(text), name
    html = TEXTS["index.html"]
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
    assert sum(map(len, TEXTS.values())) < 80_000  # characters: small enough to read
