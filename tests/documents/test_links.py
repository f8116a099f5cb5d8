from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrerank_documents.document import DOCUMENT, LABEL, PAGE, PATH, SYMBOL, Document, Link, Section
from graphrerank_documents.link_account import LinkAccount, TypeCount
from graphrerank_documents.links import resolve_links
from graphrerank_documents.passages import Passage
from graphrerank_documents.site import Site


def page(name: str, *headings: str, aliases: Sequence[str] = (), title: str = "", base: str = "") -> Document:
    """A document whose sections have the anchors that GitHub makes of their headings."""
    named = [Section(h, line=10 * i + 1, anchors=(h.lower().replace(" ", "-"),)) for i, h in enumerate(headings)]
    return Document(name, title or name, tuple(named) or (Section(""),), tuple(aliases), base)


def passages_of(documents: Sequence[Document], links: Mapping[str, Sequence[Link]]) -> list[Passage]:
    """A passage for each section, the links in the first one."""
    return [
        Passage(
            f"{d.name}:{i}",
            d.title,
            "text",
            d.name,
            i,
            section.heading,
            i,
            1,
            () if i else tuple(links.get(d.name, ())),
        )
        for d in documents
        for i, section in enumerate(d.sections)
    ]


def targets(
    documents: Sequence[Document], own: str, *links: Link, site: Site | None = None, files: Sequence[str] = ()
) -> list[str]:
    edges, _ = resolve_links(documents, passages_of(documents, {own: links}), site, files)
    return [target for _, target, _ in edges]


def test_paths_are_found_as_sites_write_them() -> None:
    names = [
        "a.md",
        "d/index.md",
        "d/b.md",
        "d/Case.md",
        "e/README.md",
        "f/_index.md",
        "d/my page.md",
        "r.rst",
        "d/C (x).md",
    ]
    cases = {
        "b.md": "d/b.md",
        "./b.md?plain=1": "d/b.md",
        "b": "d/b.md",
        "b/": "d/b.md",
        "b.html": "d/b.md",
        "../a.md": "a.md",
        "/a/": "a.md",
        "/d/b.html#x": "d/b.md",
        "../../a/": "a.md",  # of the page's address, /d/home/
        "../d/": "d/index.md",
        "index.html": "d/index.md",
        "/e": "e/README.md",
        "../f/": "f/_index.md",
        "../f/_index.md": "f/_index.md",
        "case.md": "d/Case.md",
        "/D/CASE/": "d/Case.md",
        "my%20page.md": "d/my page.md",
        "C%20(x)": "d/C (x).md",
        "../r.html": "r.rst",
        "..\\a.md": "a.md",
    }
    documents = [*map(page, names), page("d/home.md")]
    found = {link: targets(documents, "d/home.md", Link(link)) for link in cases}
    assert found == {link: [f"{name}:0"] for link, name in cases.items()}


@pytest.mark.parametrize(
    "link", ["r.md", "../x/y.md", "b.rst", "https://example.org/a", "mailto:a@b.c", "//host/a.md", "{{ url }}/a"]
)
def test_no_page_of_another_kind_or_place_is_taken(link: str) -> None:
    assert targets([page("r.rst"), page("a.md"), page("b.md"), page("code.py")], "a.md", Link(link)) == []


def test_a_page_of_the_same_format_and_language_is_taken_first() -> None:
    documents = [page("a.html"), page("a.md"), page("b.md"), page("b.html"), page("c.de.md"), page("c.en.md")]
    assert targets(documents, "b.md", Link("a")) == ["a.md:0"]
    assert targets(documents, "b.html", Link("a")) == ["a.html:0"]
    assert targets(documents, "b.md", Link("c.en.md")) == ["c.en.md:0"]
    assert targets(documents, "b.md", Link("c")) == ["c.de.md:0"]


def test_prefixes_of_names_are_no_part_of_addresses() -> None:
    documents = [
        page("docs/01-start/02_intro.md"),
        page("_posts/2020-01-02-news.md"),
        page("_docs/x.md"),
        page("docs/a.md"),
    ]
    cases = {"start/intro": 0, "/2020/01/02/news.html": 1, "/posts/news/": 1, "/docs/x/": 2, "02_intro.md": None}
    found = {link: targets(documents, "docs/a.md", Link(link)) for link in cases}
    assert found == {link: [] if i is None else [f"{documents[i].name}:0"] for link, i in cases.items()}


def test_an_absolute_path_is_tried_from_each_folder_above() -> None:
    documents = [page("en/content/a/b.md"), page("en/content/c.md"), page("en/static/d.md"), page("de/content/c.md")]
    assert targets(documents, "en/content/a/b.md", Link("/c"), Link("/d.md")) == [
        "en/content/c.md:0",
        "en/static/d.md:0",
    ]
    top = [*documents, page("c.md")]
    assert targets(top, "en/content/a/b.md", Link("/c")) == ["c.md:0"]
    assert targets(top, "en/content/a/b.md", Link("/c"), site=Site(roots=("en",))) == ["c.md:0"]
    assert targets(top, "en/content/a/b.md", Link("/c"), site=Site(roots=("en/content",))) == ["en/content/c.md:0"]


def test_addresses_of_the_site_are_paths() -> None:
    documents, site = [page("a.md", "One"), page("b/c.md")], Site(("https://www.example.org/docs/en/", "/manual/"))
    for link in (
        "http://example.org/docs/en/b/c/?q#x",
        "/docs/en/b/c.html",
        "/manual/b/c",
        "//example.org/docs/en/b/c",
    ):
        assert targets(documents, "a.md", Link(link), site=site) == ["b/c.md:0"]
    for link in ("https://example.org/docs/english", "https://example.org/", "https://other.example.org/docs/en/b/c"):
        assert targets(documents, "a.md", Link(link), site=site) == []
    _, account = resolve_links(
        documents, passages_of(documents, {"a.md": [Link("https://example.org/docs/en/z")]}), site
    )
    assert [target for *_, target in account.dead] == ["https://example.org/docs/en/z"]


def test_base_and_aliases() -> None:
    documents = [
        page("x/a.html", base="../y/"),
        page("y/b.html"),
        page("new/c.md", aliases=("/old/page.html", "former")),
    ]
    assert targets(documents, "x/a.html", Link("b.html"), Link("/old/page/")) == ["y/b.html:0", "new/c.md:0"]
    assert (
        targets(
            [page("a.html", base="https://example.org/"), page("b.html")], "a.html", Link("b.html"), Link("/b.html")
        )
        == []
    )
    assert targets(documents, "y/b.html", Link("former", kind=PAGE)) == ["new/c.md:0"]


@pytest.mark.parametrize(
    "anchor",
    [
        "step-2-c--go",
        "Step-2-C--Go",
        "step-2-c-go",
        "step_2_c_go",
        "step%2D2-c--go",
        "step-2-c--go:~:text=x",
        "L14-L15",
    ],
)
def test_sections_are_found_by_the_slug_of_any_format(anchor: str) -> None:
    sections = (Section("Top", line=1), Section("Step 2: C++ & Go", line=11, anchors=("step-2-c--go",)))
    documents = [page("a.md"), Document("b.md", "B", sections)]
    assert targets(documents, "a.md", Link(f"b.md#{anchor}")) == ["b.md:1"]


def test_sections_without_a_passage_and_links_to_themselves() -> None:
    documents = [page("a.md", "One", "Two", "Three"), page("b.md")]
    passages = [
        p
        for p in passages_of(documents, {"a.md": [Link("#two"), Link("#one"), Link("#three"), Link("#")]})
        if p.section != 1
    ]
    edges, account = resolve_links(documents, passages)
    assert edges == [("a.md:0", "a.md:2", "link")]
    assert (account.within, account.resolved, account.to_section) == (2, 2, 2)
    edges, _ = resolve_links(
        documents, [p for p in passages_of(documents, {"b.md": [Link("a.md#three")]}) if p.section != 2]
    )
    assert edges == [("b.md:0", "a.md:0", "link")]


def test_account() -> None:
    documents = [page("a.md", "One"), page("b.md", "Two"), page("c.py")]
    links = [
        *(
            Link("b.md#two", 1),
            Link("b.md#two", 2),
            Link("b.md#nine", 3),
            Link("no.md", 4),
            Link("i.png", 5),
            Link("c.py", 6),
        ),
        *(Link("https://example.org", 7), Link("../up.md", 8), Link("lost", 9, LABEL), Link("py:lost", 9, LABEL)),
        Link("<m@n>", 9, LABEL, "reply"),
    ]
    edges, account = resolve_links(documents, passages_of(documents, {"a.md": links}), files=["i.png"])
    assert edges == [("a.md:0", "b.md:0", "link"), ("a.md:0", "c.py:0", "link")]
    dead = [("a.md", 3, "b.md#nine (no such section)"), ("a.md", 4, "no.md"), ("a.md", 9, "lost")]
    assert account == LinkAccount(within=6, resolved=3, to_section=2, dead=dead, foreign=5)
    assert str(account) == (
        "6 links within the folder: 3 resolved (2 to a section), 3 broken: "
        "a.md:3 -> b.md#nine (no such section), a.md:4 -> no.md, a.md:9 -> lost"
    )
    assert str(LinkAccount(1231, 1231, 33, code={"import": 1500, "call": 3})) == (
        "1,231 links within the folder: 1,231 resolved (33 to a section)\ncode edges: 3 call, 1,500 import"
    )


def test_pages_of_a_wiki() -> None:
    documents = [
        page("x/Note.md", "Head"),
        page("y/Note.md"),
        page("z/w/Note.md"),
        page("y/Main Page.md", aliases=("Start",)),
        page("z/q.md", title="A Title"),
    ]
    wiki = page("y/home.md")
    cases = {
        "Note": 1,
        "x/Note": 0,
        "w/Note.md": 2,
        "note": 1,
        "Main_page": 3,
        "Start": 3,
        "a title": 4,
        "../x/Note": 0,
    }
    found = {name: targets([*documents, wiki], wiki.name, Link(name, kind=PAGE)) for name in cases}
    assert found == {name: [f"{documents[i].name}:0"] for name, i in cases.items()}
    assert targets(documents, "z/q.md", Link("Note#Head", kind=PAGE), Link("x/Note#Head", kind=PAGE)) == ["x/Note.md:0"]
    _, account = resolve_links(
        documents,
        passages_of(documents, {"z/q.md": [Link("p.png", kind=PAGE), Link("gone", kind=PAGE)]}),
        files=["x/p.png"],
    )
    assert [target for *_, target in account.dead] == ["gone"]


def test_tools_that_name_pages_by_their_files_alone() -> None:
    documents = [page("x/a.md"), page("y/z/b.md", "One"), page("y/a.md")]
    assert targets(documents, "x/a.md", Link("b.md#one")) == []
    assert targets(documents, "x/a.md", Link("b.md#one"), site=Site(by_name=True)) == ["y/z/b.md:0"]
    assert targets(documents, "y/z/b.md", Link("a.md"), Link("q/a.md"), site=Site(by_name=True)) == ["x/a.md:0"]


def test_documents_and_labels_of_sphinx() -> None:
    documents = [
        page("doc/index.rst"),
        page("doc/how/a.rst"),
        page("doc/how/b.rst"),
        page("doc/how/deep/c.rst"),
        Document("doc/d.rst", "D", (Section("One"), Section("Two Parts", labels=("the label", "Mixed")))),
    ]
    links = {
        "how/a": [1],
        "/how/b": [2],
        "how/*": [1, 2],
        "how/**": [1, 2, 3],
        "d": [4],
        "/doc/d": [4],
        "genindex": [],
        "x": [],
    }
    for target, numbers in links.items():
        found = targets(documents, "doc/index.rst", Link(target, kind=DOCUMENT))
        assert found == [f"{documents[i].name}:0" for i in numbers], target
    for label in ("the label", "The  Label", "mixed", "d:Two Parts"):
        assert targets(documents, "doc/how/a.rst", Link(label, kind=LABEL)) == ["doc/d.rst:1"]
    assert targets(documents, "doc/how/a.rst", Link("#mixed"), Link("mixed")) == ["doc/d.rst:1"]


def test_labels_of_the_same_document_come_first() -> None:
    documents = [Document(f"{name}.rst", name, (Section(""), Section("s", labels=("same",)))) for name in "ab"]
    assert targets(documents, "b.rst", Link("same", kind=LABEL)) == ["b.rst:1"]


def test_labels_of_the_same_format_come_before_those_of_another() -> None:
    sections = (Section("Limits", anchors=("limits",), labels=("limits",)),)
    documents = [Document("guide.adoc", "G", sections), Document("limits.rst", "L", sections), page("a.rst")]
    assert targets(documents, "a.rst", Link("limits", 1, LABEL)) == ["limits.rst:0"]


def test_files_of_several_documents() -> None:
    documents = [
        page("m.epub#text/1.xhtml"),
        page("m.epub#text/2.xhtml", "End"),
        page("C#.md"),
        page("mail.mbox#1"),
        page("a.md"),
    ]
    assert targets(documents, "m.epub#text/1.xhtml", Link("2.xhtml#end"), Link("../a.md")) == ["m.epub#text/2.xhtml:0"]
    assert targets(documents, "a.md", Link("mail.mbox"), Link("C%23.md")) == ["mail.mbox#1:0", "C#.md:0"]


def test_symbols_are_counted_apart() -> None:
    motor = Section("Motor", line=3, symbols=("Motor",))
    start = Section("Motor.start", line=5, symbols=("Motor.start",))
    documents = [Document("pump.py", "pump", (Section(""), motor, start)), page("use.py"), page("a.md")]
    calls = [Link("pump.Motor", line, SYMBOL, "call") for line in (1, 2)]
    links = {"use.py": [*calls, Link("os", 1, SYMBOL, "import")], "a.md": [Link("#pump.Motor.start")]}
    edges, account = resolve_links(documents, passages_of(documents, links))
    assert edges == [("use.py:0", "pump.py:1", "call"), ("a.md:0", "pump.py:2", "link")]
    by_type = {"call": TypeCount(within=2, resolved=2)}  # the import is of an installed module
    assert account == LinkAccount(within=1, resolved=1, to_section=1, dead=[], code={"call": 1}, by_type=by_type)


def test_links_of_each_type_are_counted() -> None:
    links = {"a.md": [Link("b.md", 1, edge="property"), Link("no.md", 2, edge="property"), Link("b.md", 3)]}
    documents = [page("a.md"), page("b.md")]
    _, account = resolve_links(documents, passages_of(documents, links))
    assert (account.within, account.resolved) == (3, 2)
    assert account.by_type == {"property": TypeCount(within=2, resolved=1)}
    assert "properties: 1 of 2 within the folder resolved" in str(account)


SIGNS = st.text("ab/.#%?*[]:\\^~ \x00é", max_size=12)


@given(
    st.lists(SIGNS.filter(bool), min_size=1, max_size=6, unique=True),
    SIGNS,
    st.sampled_from([PATH, PAGE, DOCUMENT, LABEL]),
    SIGNS,
)
def test_any_target_has_a_result(names: list[str], target: str, kind: str, base: str) -> None:
    documents = [page(name, "a", base=base, aliases=(target,)) for name in names]
    edges, account = resolve_links(
        documents, passages_of(documents, {names[0]: [Link(target, 1, kind)]}), Site((base,))
    )
    assert account.within == account.resolved + len(account.dead) == 1 - account.foreign or account.within == 0
    assert all(source != target for source, target, _ in edges)


@given(st.permutations(range(5)))
def test_the_order_of_files_changes_no_edge(order: list[int]) -> None:
    documents = [page("a.md", "One"), page("b/a.md"), page("b/index.md", "Two"), page("B.rst"), page("c d.md")]
    links = {
        "a.md": [Link("b/a"), Link("b/#two"), Link("B.html"), Link("c%20d")],
        "b/a.md": [Link("/a#one"), Link(".."), Link("./")],
    }
    expected, _ = resolve_links(documents, passages_of(documents, links))
    shuffled = [documents[i] for i in order]
    found, _ = resolve_links(shuffled, passages_of(shuffled, links))
    assert sorted(found) == sorted(expected)
    assert len(expected) == 6


def test_hostile_links_lead_nowhere() -> None:
    documents = [page(f"{'d/' * 30}{i}.rst", *["a b"] * 20) for i in range(300)]
    links = [
        Link(f"{'../' * i}x{i}/{'y' * 100}#q{i}", kind=kind)
        for i in range(300)
        for kind in (PATH, PAGE, DOCUMENT, LABEL)
    ]
    links += [Link(f"/**{'a*' * 50}{i}", kind=DOCUMENT) for i in range(300)]
    _, account = resolve_links(documents, passages_of(documents, {documents[0].name: links}))
    assert len(account.dead) == account.within
