"""What a page shows, as somebody who reads it would say."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrerank_documents.document import Document, Link, UnreadableError
from graphrerank_documents.formats.html import read_html

pytest.importorskip("selectolax", reason="selectolax is optional")


def page(content: str | bytes, name: str = "docs/a.html") -> Document:
    (document,) = read_html(content.encode() if isinstance(content, str) else content, name)
    return document


def shown(document: Document) -> list[tuple[str, str]]:
    """Return the headings with their texts."""
    return [(part.heading, "\n\n".join(block.text for block in part.blocks)) for part in document.sections]


def targets(document: Document) -> list[str]:
    return [link.target for part in document.sections for block in part.blocks for link in block.links]


def test_words_are_neither_glued_nor_split():
    document = page(
        "<head><title>The &amp; page</title><style>p{}</style><body><p>One <b>bo</b>ld\n word,&nbsp;long&shy;er<wbr>s."
        "<br>Next<p>Two<script>no()</script><h2>Next <i>part</i></h2>af<em>ter</em> <a href='b.html#x'>link</a>"
        "<td>1<div>a</div><div>b</div> &#x41;&#66;&bogus;<svg><title>icon</title></svg><custom-a>c</custom-a>d"
    )
    assert document.title == "The & page"
    assert shown(document) == [
        ("", "One bold word, longers.\nNext\n\nTwo"), ("Next part", "after link1\n\na\n\nb\n\nAB&bogus; c d"),
    ]  # fmt: skip
    assert targets(document) == ["b.html#x"]


def test_navigation_and_its_like_are_left_out():
    side = "<nav><a href=n.html>Menu</a></nav><div class='sidebar x'>Side</div><div role=search>Find</div>"
    text = f"<h1>Valve</h1>{'A valve opens at six bar. ' * 9}<aside class='admonition'>Beware</aside>"
    for main in (
        "<main>{}</main>",
        "<div role=main>{}</div>",
        "<article>{}</article>",
        "<div id=content>{}</div>",
        "{}",
    ):
        document = page(f"<header>Site</header>{side}{main.format(text)}<footer>All rights</footer>")
        assert document.title == "Valve"
        assert "".join(f"{heading}{text}" for heading, text in shown(document)).count("opens") == 9
        assert "Beware" in shown(document)[-1][1]
        assert not {"Menu", "Side", "Find", "Site", "rights"} & set(str(shown(document)).replace("'", " ").split())
    menu = "".join(f"<li><a href={i}.html>Page {i}</a>" for i in range(9))
    document = page(f"<div id=top>{menu}</div><h1 id=valve>Valve</h1><p>See <a href=x.html>pumps</a>.")
    assert (targets(document), document.sections[0].anchors) == (["x.html"], ("valve", "top"))
    assert len(targets(page(f"<h1>Contents</h1><ul>{menu}</ul>"))) == len(targets(page(f"<ul>{menu}</ul>"))) == 9


def test_an_empty_main_part_is_not_the_page():
    document = page(f"<main id=app></main><div><p>{'Pumps. ' * 50}</div>")
    assert shown(document)[0][1].startswith("Pumps.")
    assert (
        shown(page("<main><h1>Moved</h1><p>Gone to the shop and back.</main><p>" + "All rights. " * 9))[0][0] == "Moved"
    )


def test_ids_point_at_their_sections():
    document = page(
        "<body id=top><main><section id=intro><span id=old></span><h1>Intro"
        "<a class=headerlink href='#intro'>¶</a></h1>"
        "<p id=p1>Text.<section id=more><a name=alias></a><h2 id=own><a id=inner href='#own'>#</a> More</h2>"
        "x<b id=in>y</b></section></section></main><div id=out></div>"
    )
    assert [part.heading for part in document.sections] == ["Intro", "More"]
    assert document.sections[0].anchors == ("intro", "old", "p1", "top", "out")
    assert document.sections[1].anchors == ("own", "inner", "more", "alias", "in")


def test_signatures_of_code_are_sections():
    sign = "<dt class='sig py' id='pump.Motor'><em>class</em> <b>Motor</b>(rate)"
    (section,) = page(f"<dl>{sign}<a class=headerlink href='#pump.Motor'>¶</a><dd><p>Turns.</p></dd></dl>").sections
    assert (section.heading, section.symbols, section.anchors) == ("pump.Motor", ("pump.Motor",), ("pump.Motor",))
    assert [block.text for block in section.blocks] == ["class Motor(rate)", "Turns."]


def test_tables_lists_and_code():
    document = page(
        "<table><caption>Limits</caption><thead><tr><th>Unit<th>Max</thead><tr><td>Bar<td><p>6</p><p>7</p>"
        "<tr><td><a href=k.html>Kelvin</a><td></table><ul><li>one<ul><li>two</ul><li></ul><p>After</p>"
        "<dl><dt>Saw<dd>Cuts<dt>Axe<dd>Fells</dl>"
        "<table><tr><td class=linenos><pre>1\n2</pre><td><pre>"
        "<span>\n\nfor x:</span>\n    go()<br>end<div>a</div>b</pre></table>"
    )
    (section,) = document.sections
    assert [(b.text, b.header, b.is_tight, b.is_whole) for b in section.blocks] == [
        ("Limits", "", False, False),
        ("Bar | 6 7", "Unit | Max", False, True), ("Kelvin |", "Unit | Max", True, True),
        ("- one", "", False, False), ("- two", "", True, False), ("After", "", False, False),
        ("Saw", "", False, False), ("Cuts", "", True, False), ("Axe", "", False, False), ("Fells", "", True, False),
        ("for x:\n    go()\nend\na\nb", "", False, True),
    ]  # fmt: skip
    assert [link.target for link in section.blocks[2].links] == ["k.html"]


def test_links():
    document = page(
        "<base href='/en/'><h2><a href=' head.html '>Head</a></h2><a href=i.html><img src=i.png></a><p>a"
        "<a href='javascript:x()'>b</a><a href='mailto:a@b.c'>c</a><a href='#'>up</a>"
        "<a href='my%20page.html?q=1&amp;r'>d</a><map><area href=area.html></map>"
        "<iframe src=frame.html></iframe><p><a href=last.html><img></a>"
    )
    assert document.base == "/en/"
    assert targets(document) == ["head.html", "i.html", "my%20page.html?q=1&r", "area.html", "frame.html", "last.html"]
    assert document.sections[0].blocks[-1].text == "Head"
    assert targets(page("<frameset><frame src=a.html><frame src=b.html></frameset>")) == ["a.html", "b.html"]


def test_titles_redirects_and_addresses():
    head = "<title>Valve | Pump &amp; Co.</title><meta property=og:site_name content='Pump & Co.'>"
    assert page(f"<head>{head}<p>x").title == "Valve"
    assert page("<title>Pump &amp; Co. | A</title><p>x").title == "Pump & Co. | A"
    assert page("<p>x").title == "a"
    sites = "<title>Valve (Pump manual)</title><h1>Pump manual</h1><h2>2.1 Valve</h2><p>x"
    assert page(sites).title == page("<title>Valve - Pump manual</title><p>x<h2>Opening").title[:5] == "Valve"
    document = page("<title>Valves</title><meta http-equiv=Refresh content='0; URL=\"b.html?a&amp;copy=1\"'><body>")
    assert document.redirect == Link("b.html?a&copy=1", edge="redirect")
    assert document.sections == ()
    link = "<link rel=canonical href='https://x.org/en/{}'><p>x"
    assert page(link.format("a.html")).aliases == ("/en/a.html",)
    assert page(link.format("a/")).aliases == page(link.format("a/"), "a/index.html").aliases == ("/en/a/",)
    assert page(link.format("")).aliases == page("<link rel=canonical href='http://[x'>").aliases == ()


def test_encodings_and_pictures_in_texts():
    assert shown(page('<meta charset="iso-8859-1"><p>Größe'.encode("latin-1")))[0][1] == "Größe"
    assert shown(page("<?xml version='1.0' encoding='windows-1251'?><p>Привет".encode("cp1251")))[0][1] == "Привет"
    assert shown(page("<p>Größe".encode("utf-16")))[0][1] == "Größe"
    document = page(f"<p>See <img src='data:image/png;base64,{'A' * 9000}'> it <a href='data:text/x;base64,eA=='>x</a>")
    assert (shown(document), dict(document.dropped), targets(document)) == ([("", "See it x")], {"data URIs": 2}, [])
    document = page(f"<ul><li><pre>for x:\n{'a=b;' * 999}\n    go()</pre></ul>")
    assert (shown(document)[0][1], dict(document.dropped)) == ("for x:\n\n    go()", {"minified lines": 1})


def test_closed_elements_of_xhtml():
    document = page("<?xml version='1.0'?><head><title/><script src='x'/></head><a id='p1'/><p>Text<br/>b</p>")
    assert shown(document) == [("", "Text\nb")]
    assert document.sections[0].anchors == ("p1",)


@pytest.mark.parametrize(
    "content",
    [
        "<div>" * 300_000, "<!--" * 50_000, "<a " * 50_000, "<h1>a" * 20_000, "<h1>" * 20_000 + "</h2>" * 20_000 + "a",
        "<svg>a" * 50_000, "<dt class=sig id=x>" * 20_000, "<p id=a>" * 20_000, "<header>x" * 40_000, "a" * 10_000_000,
        "<table><tr><td>a" * 3_000, "<br>" * 50_000, "<pre>" + "x\n" * 500_000, f"&#{'9' * 5000};<![new[ x ]]>",
    ],
)  # fmt: skip
def test_long_and_deep_pages_are_read_to_the_end(content):
    with suppress(UnreadableError):
        page(content)


@given(st.integers(0, 2**32), st.sampled_from(["cut", "change", "noise"]))
def test_any_bytes_are_a_page_or_unreadable(seed, how):
    chance = random.Random(seed)
    tags = "<p>a<a href=b>c</a><table><tr><td>d<pre>e<h1 id=x>f<ul><li>g<dl><dt class=sig>h<math>&#0;<!--<svg><title>"
    content = bytearray("".join(chance.choices(tags.replace("<", "\n<").split("\n"), k=40)).encode())
    if how == "cut":
        content = content[: chance.randrange(len(content))]
    elif how == "change":
        content[chance.randrange(len(content))] = chance.randrange(256)
    else:
        content = bytearray(chance.randbytes(200))
    try:
        document = page(bytes(content))
    except UnreadableError:
        return
    assert all(
        block.text == block.text.strip() or block.is_whole for part in document.sections for block in part.blocks
    )
    assert all(block.text for part in document.sections for block in part.blocks)


def test_links_of_google_docs_lead_to_their_targets():
    page = "<main><p>See <a href='https://www.google.com/url?q=https://x.org/a%3Fb%3D1%23c&amp;sa=D&amp;ust=1'>it</a>.</p></main>"
    (document,) = read_html(page.encode(), "a.html")
    assert [link.target for link in document.sections[0].blocks[0].links] == ["https://x.org/a?b=1#c"]
