"""Pages of MediaWiki: dumps and files of wikitext."""

import json
from pathlib import Path

import pytest

from graphrerank_documents.document import Document, Link, UnreadableError
from graphrerank_documents.formats.mediawiki import read_dump, read_wikitext, without_templates
from graphrerank_documents.formats.xml import read_xml
from graphrerank_documents.index_folder import index_folder
from tests.support.documents import all_links, edges_of

NAMESPACES = (
    '<namespace key="0"/><namespace key="1">Talk</namespace><namespace key="6">Datei</namespace>'
    '<namespace key="10">Template</namespace><namespace key="14">Kategorie</namespace>'
)


def dump(*pages: tuple[str, int, str], redirects: dict[str, str] | None = None) -> bytes:
    parts = []
    for title, namespace, text in pages:
        target = (redirects or {}).get(title)
        redirect = f'<redirect title="{target}"/>' if target else ""
        escaped = text.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(
            f"<page><title>{title}</title><ns>{namespace}</ns><id>1</id>{redirect}<revision><id>2</id><text>old</text>"
            f'</revision><revision><id>3</id><text xml:space="preserve">{escaped}</text></revision></page>'
        )
    head = '<?xml version="1.0"?>\n<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">'
    namespaces = f"<siteinfo><sitename>P</sitename><namespaces>{NAMESPACES}</namespaces></siteinfo>"
    return f"{head}{namespaces}{''.join(parts)}</mediawiki>".encode()


PUMPS = dump(
    (
        "Pump",
        0,
        "A '''pump''' moves [[water]]. It is closed by a [[Shut-off valve|valve]].\n\n== Use ==\n"
        "Pumps are used in [[mine#Depth|mines]]. {{Infobox|name=Pump}}<ref>Book</ref>\n[[Category:Machines]]",
    ),
    ("Valve", 0, "A valve stops the flow of [[Water]] to a [[pump]]."),
    ("Shut-off valve", 0, "#REDIRECT [[Valve]]"),
    ("Stopcock", 0, "#REDIRECT [[Shut-off valve]]"),
    ("Water", 0, "Water is a liquid."),
    ("Mine", 0, "A mine is dug.\n\n== Depth ==\nSome are deep."),
    ("Talk:Mine", 1, "Is it?"),
    ("Template:Infobox", 10, '{| class="infobox" |}'),
    redirects={"Shut-off valve": "Valve"},
)


def texts_of(document: Document) -> list[str]:
    return [block.text for section in document.sections for block in section.blocks]


def page(text: str, name: str = "a/Pump_room.wiki") -> Document:
    (document,) = read_wikitext(text.encode(), name)
    return document


def test_a_dump_has_a_document_per_page(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "dump.xml").write_bytes(PUMPS)
    made = index_folder(folder, tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert [(row["title"], row["text"]) for row in rows] == [
        ("Pump", "A pump moves water. It is closed by a valve."),
        ("Pump > Use", "Pumps are used in mines. (Book)"),
        ("Valve", "A valve stops the flow of Water to a pump."),
        ("Water", "Water is a liquid."),
        ("Mine", "A mine is dug."),
        ("Mine > Depth", "Some are deep."),
    ]
    edges = [list(edge[:2]) for edge in edges_of(tmp_path / "out")]
    name = "dump.xml#"
    assert edges == [
        [f"{name}Pump", f"{name}Water"],
        [f"{name}Pump", f"{name}Valve"],
        [f"{name}Pump#use", f"{name}Mine#depth"],
        [f"{name}Valve", f"{name}Water"],
        [f"{name}Valve", f"{name}Pump"],
    ]
    assert made.dropped == {"pages of templates, talk and the interface": 2}
    assert "5 links within the folder: 5 resolved" in str(made)


def test_redirects_are_names_of_the_last_page() -> None:
    assert {each.title: each.aliases for each in read_dump(PUMPS, "d.xml") if each.aliases} == {
        "Valve": ("Shut-off valve", "Stopcock")
    }
    circle = dump(("A", 0, "#REDIRECT [[B]]"), ("B", 0, "#REDIRECT [[A]]"), ("C", 0, "Text."))
    assert [each.title for each in read_dump(circle, "d.xml")] == ["C"]


def test_markup_of_a_page() -> None:
    document = page(
        "'''Bold''' and ''italic'' [http://a.org the site] [//b.org] &amp; [[Datei]]<br>more <b>b</b> __TOC__\n"
        "* one [[Two|2]]s\n*# deep\n; term : meaning\n----\n"
        "== A [[Link]] ==\n<!-- no [[No]] -->{{a|{{b}}|[[c]]}}<nowiki>[[x]]</nowiki> <math>a < b</math>\n"
        "<syntaxhighlight lang='py'>\nx = [[1]]\n</syntaxhighlight>\n[[w:Pump]] [[de:Pumpe]] [[Foo (bar)|]]\n"
        "[[File:p.png|thumb|200px|A pump in a [[mine]]]]\n"
    )
    assert document.title == "Pump room"
    assert [section.heading for section in document.sections] == ["", "A Link"]
    assert texts_of(document) == [
        "Bold and italic the site & Datei more b",
        "- one 2s",
        "- deep",
        "- term : meaning",
        "[[x]] a < b",
        "x = [[1]]",
        "Foo A pump in a mine",
    ]
    assert [link.target for link in all_links(document)] == [
        *("http://a.org", "//b.org", "Datei", "Two", "Link", "c", "Foo (bar)", "mine"),
    ]


def test_tables_have_rows_and_captions() -> None:
    document = page(
        '{| class="wikitable"\n|+ Pumps\n! Name !! Bar\n|-\n| align="left" | [[Red]] || 6\n|-\n'
        "| Blue\n| 7\n|}\nAfter.\n"
    )
    blocks = document.sections[0].blocks
    assert [(block.text, block.header) for block in blocks] == [
        ("Pumps", ""),
        ("Red | 6", "Name | Bar"),
        ("Blue | 7", "Name | Bar"),
        ("After.", ""),
    ]
    assert [link.target for link in all_links(document)] == ["Red"]


def test_a_file_that_redirects_has_no_text() -> None:
    document = page("#REDIRECT [[Valve#Use]]")
    assert document.sections == ()
    assert document.redirect == Link("Valve#Use", 1, "page", "redirect")


def test_a_page_of_a_dump_that_redirects_to_a_section_leads_there() -> None:
    pages = dump(("Old", 0, "#REDIRECT [[Valve#Use]]"), ("Valve", 0, "Text.\n== Use ==\nOpen it."))
    redirects = [(each.title, each.redirect.target) for each in read_dump(pages, "d.xml") if each.redirect]
    assert redirects == [("Old", "Valve#Use")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {{b}} c", "a  c"),
        ("{{a|{{b|{{c}}}}}}d", "d"),
        ("{{a\n|b\n}}c", "\n\nc"),
        ("a }} {{ b", "a }} {{ b"),
        ("{{ {{a}} b", "{{  b"),
        ("{| {{a}} |}", "{|  |}"),
    ],
)
def test_templates_are_left_out(text: str, expected: str) -> None:
    assert without_templates(text) == expected


def test_a_broken_dump_is_not_read() -> None:
    with pytest.raises(UnreadableError, match="not XML"):
        read_xml(PUMPS[:-30], "dump.xml")


def test_entities_of_a_dump_are_not_resolved(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    page_xml = "<page><title>A</title><ns>0</ns><revision><text>a &x; b</text></revision></page>"
    content = f'<!DOCTYPE mediawiki [<!ENTITY x SYSTEM "file://{secret}">]>\n<mediawiki>{page_xml}</mediawiki>'
    try:
        documents = read_xml(content.encode(), "dump.xml")
    except UnreadableError:
        return
    assert "secret" not in str(documents)


def test_links_in_templates_are_found_without_the_text_of_the_templates() -> None:
    text = (
        "{{Infobox pump\n| maker = [[Acme|Acme Ltd]]\n| image = [[File:X.png|thumb|[[No page]]]]\n}}\n"
        "A pump.\n\n== Use ==\n{{Main|Tank|the valve#Use|selfref=yes}}\nFill it.{{cite|{{a|[[Book]]}}}}\n{{stub}}\n"
    )
    (document,) = read_wikitext(text.encode(), "Pump.wiki")
    texts = [[block.text for block in section.blocks] for section in document.sections]
    assert texts == [["A pump."], ["Fill it."]]
    links = [
        [(link.target, link.line) for block in section.blocks for link in block.links] for section in document.sections
    ]
    assert links == [[("Acme", 5), ("No page", 5)], [("Tank", 9), ("the valve#Use", 9), ("Book", 9)]]


def test_a_page_that_consists_of_templates_has_no_text() -> None:
    (document,) = read_wikitext(b"{{Main|Tank}}", "Pump.wiki")
    assert document.sections == ()
