"""Redirects lead links to the page that moved, whether a page or a configuration names them."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphrerank_documents.document import PAGE, Document, Link, Section, UnreadableError
from graphrerank_documents.index_folder import IndexedFolder, index_folder
from graphrerank_documents.links import resolve_links
from graphrerank_documents.passages import Passage
from graphrerank_documents.redirects import (
    DAMAGED_CONFIG,
    READERS,
    REDIRECT,
    Redirect,
    redirect_documents,
    redirects_of,
)
from tests.support.documents import edges_of
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")

NEW = {"docs/new.md": "# New\n\nThe text.\n\n## Usage\n\nUse it.\n"}


def index(tmp_path: Path, files: Mapping[str, str]) -> tuple[IndexedFolder, set[tuple[str, str]]]:
    made = index_folder(write_files(tmp_path / "source", files), tmp_path / "out", workers=1)
    return made, {(source, target) for source, target, _ in edges_of(tmp_path / "out")}


@pytest.mark.parametrize(
    ("name", "content", "folder", "expected"),
    [
        (
            "mkdocs.yml",
            "plugins:\n  - search\n  - redirects:\n      redirect_maps:\n        old.md: a/new.md#x\n        b.md: https://x.org\n",
            "",
            [("docs/old.md", "/a/new.md#x"), ("docs/b.md", "https://x.org")],
        ),
        (
            "docusaurus.config.js",
            "redirects: [{to: '/docs/new', from: ['/docs/a', '/docs/b']}, {from: \"/c\", to: \"/docs/new\"}]",
            "site",
            [("site/docs/a", "/docs/new"), ("site/docs/b", "/docs/new"), ("site/c", "/docs/new")],
        ),
        ("next.config.js", "{source: '/old/:path*', destination: '/new/:path*'}", "", [("old/*", "/new/:path*")]),
        ("conf.py", "redirects = {\n  'old': 'new.html',\n}\n", "docs", [("docs/old", "new.html")]),
        ("conf.py", 'rediraffe_redirects = {"a.rst": "b/c.rst"}', "", [("a.rst", "/b/c.rst")]),
        ("_redirects", "/old /new\n/x/* /y/:splat\n", "public", [("public/old", "/new"), ("public/x/*", "/y/:splat")]),
        ("netlify.toml", '[[redirects]]\nfrom = "/old"\nto = "/new"\n', "", [("old", "/new")]),
        ("book.toml", '[output.html.redirect]\n"/a.html" = "b.html"\n', "", [("src/a.html", "b.html")]),
        ("vercel.json", '{"redirects": [{"source": "/old", "destination": "/new"}]}', "", [("old", "/new")]),
        ("docs.json", '{"redirects": [{"source": "\\u00fc", "destination": "/n", "has": [{}]}]}', "", [("ü", "/n")]),
        ("docs.json", '{"redirects": [{"source": "it\'s", "destination": "/n"}]}', "", [("it's", "/n")]),
        ("mkdocs.yml", "plugins:\n  redirects:\n    redirect_maps: {a.md: b.md}\n", "", [("docs/a.md", "/b.md")]),
        (".gitbook.yaml", "redirects:\n  old/page: new/page.md\n", "", [("old/page", "/new/page.md")]),
        ("conf.py", 'redirects = {"../../etc": "x"}', "", []),
    ],
)  # fmt: skip
def test_redirects_of_a_configuration(name: str, content: str, folder: str, expected: list[tuple[str, str]]) -> None:
    assert redirects_of(name, content.encode(), folder) == [Redirect(*pair) for pair in expected]


DAMAGED = [
    ("mkdocs.yml", "plugins: [\n", r"not valid YAML \(line 2\)"),
    ("mkdocs.yml", "[" * 100_000, "YAML with more than 100 levels of nesting"),
    ("mkdocs.yml", "plugins: [redirects: {redirect_maps: {a.md: [b.md]}}]", r"1 redirects without a target: a.md"),
    (".gitbook.yaml", "redirects:\n  a: {b: c}\n", r"a \(line 2\)"),
    ("netlify.toml", "[[redirects]\n", "not valid TOML"),
    ("netlify.toml", '[[redirects]]\nfrom = "/a"\n', "1 redirects without a target: /a"),
    ("book.toml", "[output.html.redirect]\na = 1\n", "1 redirects without a target: src/a"),
    ("vercel.json", '{"redirects": [', "not valid JSON"),
    ("docs.json", "[" * 100_000, "JSON with too many levels of nesting"),
    ("mint.json", "[]", "not a JSON object"),
    ("vercel.json", f'{{"redirects": {"9" * 5000}}}', "not valid JSON"),
    ("vercel.json", '{"redirects": 5}', "`redirects` must be a list, got int"),
    ("vercel.json", '{"redirects": [{"source": 5, "destination": "/a"}, 6]}', "2 redirects without a target: 5"),
    ("netlify.toml", "redirects = 5\n", "`redirects` must be a list, got int"),
    ("netlify.toml", f"a = {'9' * 5000}\n", "not valid TOML"),
    ("book.toml", "[output.html]\nredirect = 5\n", "`output.html.redirect` must be a table, got int"),
    ("_redirects", "/a /b\n/c\n", r"1 redirects without a target: /c \(line 2\)"),
    ("docusaurus.config.js", "module.exports = {\n  redirects: [{from: '/a', to: '/b'}, // ]\n", r"closed \(line 2\)"),
    ("conf.py", "redirects = {\n  'a': 'b',  # }\n", r"the brackets of `redirects` are not closed \(line 1\)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "reason"), DAMAGED)
def test_a_damaged_configuration_is_reported_by_name(name: str, content: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        redirects_of(name, content.encode(), "")
    damage: dict[str, list[str]] = {}
    redirects_of(name, content.encode(), "site", damage)
    ((message, paths),) = damage.items()
    assert re.search(reason, message)
    assert paths == [f"site/{name}"]


def test_no_configuration_ends_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(READERS, "vercel.json", fail)
    damage: dict[str, list[str]] = {}
    assert redirects_of("vercel.json", b"{}", "", damage) == []
    assert damage == {f"{DAMAGED_CONFIG}: cannot be parsed (ZeroDivisionError)": ["vercel.json"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docusaurus.config.js", "const redirects = [{from: \"/a[\", to: '/b'}]; // don't"),
        ("next.config.js", "async redirects() {\n  return [{source: '/a', destination: `/b/${x}`}]\n}"),
        ("conf.py", "redirects = {}\nx = '['\n"),
    ],
)
def test_brackets_in_texts_and_comments_are_no_damage(name: str, text: str) -> None:
    assert len(redirects_of(name, text.encode(), "")) <= 1


def test_redirects_before_the_damage_are_followed(tmp_path: Path) -> None:
    made, edges = index(tmp_path, NEW | {"_redirects": "/old /docs/new\n/broken\n", "docs/a.md": "[o](/old)"})
    assert edges == {("docs/a.md", "docs/new.md#new")}
    assert made.unread[f"{DAMAGED_CONFIG}: 1 redirects without a target: /broken (line 2)"] == ["_redirects"]
    assert "/broken (line 2) (_redirects)" in str(made)


def test_a_redirect_of_a_folder_is_expanded_to_the_pages_in_it() -> None:
    pages = [Document(name, "", ()) for name in ("docs/new/a.md", "docs/new/b/c.md", "docs/other.md")]
    made = redirect_documents([Redirect("old/*", "/new/:splat"), Redirect("docs/other.md", "/x")], pages)
    assert {(each.name, each.redirect.target) for each in made if each.redirect} == {
        ("old/a.md", "/docs/new/a.md"),
        ("old/b/c.md", "/docs/new/b/c.md"),
    }


PAGES = {
    "meta.html": "<html><head><meta http-equiv='refresh' content='0; url=new.html'></head><h1>Redirecting</h1></html>",
    "script.html": "<script>window.location.replace('new.html')</script>",
    "front.md": "---\nredirect_to: /new/\n---\n",
    "element.md": '# Moved\n\n<meta http-equiv="refresh" content="0; URL=\'new/\'" />\n',
    "component.mdx": "import {Redirect} from '@docusaurus/router';\n\n<Redirect to=\"./new\" />\n",
    "raw.rst": '.. raw:: html\n\n   <meta http-equiv="refresh" content="0; url=new.html" />\n',
    "meta.rst": ".. meta::\n   :http-equiv=Refresh: 0; url=new.html\n",
    "page.wiki": "#REDIRECT [[New]]\n",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_link_to_a_page_that_redirects_leads_to_its_target(name: str, tmp_path: Path) -> None:
    made, edges = index(tmp_path, NEW | {f"docs/{name}": PAGES[name], "docs/a.md": f"[b]({name}) [c]({name}#usage)"})
    assert edges == {("docs/a.md", "docs/new.md#new"), ("docs/a.md", "docs/new.md#usage")}
    assert made.unread == {"a redirect to another page": [f"docs/{name}"]}
    assert (made.links.resolved, made.links.redirected, made.links.by_type[REDIRECT].resolved) == (3, 2, 1)
    assert "2 through a redirect" in str(made)


def test_a_page_about_redirects_is_a_page(tmp_path: Path) -> None:
    text = '# Redirects\n\n```html\n<meta http-equiv="refresh" content="0; url=new.html">\n```\n'
    made, edges = index(tmp_path, NEW | {"docs/a.md": "[b](b.md)", "docs/b.md": text})
    assert ("docs/a.md", "docs/b.md#redirects") in edges
    assert not made.unread


def test_redirects_of_a_site_and_symbolic_links_lead_to_their_targets(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "LINK.md").symlink_to("docs/new.md")
    config = (
        "plugins:\n  - redirects:\n      redirect_maps:\n        old.md: new.md#usage\n        gone.md: nowhere.md\n"
    )
    made, edges = index(tmp_path, NEW | {"mkdocs.yml": config, "docs/a.md": "[o](old.md) [l](../LINK.md) [g](gone.md)"})
    assert edges == {("docs/a.md", "docs/new.md#usage"), ("docs/a.md", "docs/new.md#new")}
    redirects = made.links.by_type[REDIRECT]
    assert (redirects.within, redirects.resolved) == (3, 2)
    assert ("docs/gone.md", 0, "/nowhere.md") in made.links.dead


def test_circles_and_long_chains_of_redirects_end() -> None:
    def stub(name: str, target: str) -> Document:
        return Document(name, name[:-5], (), redirect=Link(target, kind=PAGE, edge=REDIRECT))

    chain = [stub(f"{number}.wiki", str(number + 1)) for number in range(3000)]
    documents = [Document("a.wiki", "a", (Section(""),)), stub("b.wiki", "c"), stub("c.wiki", "b"), *chain]
    links = tuple(Link(target, kind=PAGE) for target in ("b", "0"))
    edges, account = resolve_links(documents, [Passage("a", "a", "text", "a.wiki", 0, "", 0, 1, links)])
    assert (edges, account.redirected) == ([], 0)
    assert {(name, target) for name, _, target in account.dead} >= {
        ("a.wiki", "b (a redirect to a missing page)"),
        ("a.wiki", "0 (a redirect to a missing page)"),
    }
