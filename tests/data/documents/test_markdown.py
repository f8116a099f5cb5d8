"""Sections and links of Markdown."""

import pytest


def test_markdown(read):
    content = (
        "intro\n\n# Guide\n\nSee [setup](setup.md#first).\n\n```sh\n# no heading\n```\n## Setup ##\n![x](y.png) done\n"
    )
    (document,) = read("a.md", content)
    assert document.title == "Guide"
    assert [section.heading for section in document.sections] == ["", "Guide", "Setup"]
    assert document.sections[1].links == ((4, "setup.md#first"),)
    assert "# no heading" in document.sections[1].text
    assert document.sections[2].links == ()


def test_front_matter_underlined_headings_and_fences_in_fences(read):
    content = "---\ntitle: 'The page'\ntags: [a]\n---\nText.\n\nFirst `part`\n=====\n\n"
    content += "~~~\n```\n# code\n~~~\n\na | b\n---\n- x\n---\n"
    (document,) = read("a.md", content.replace("\n", "\r\n"))
    assert document.title == "The page"
    assert [section.heading for section in document.sections] == ["", "First part", "a | b"]
    assert document.sections[0].text == "Text."
    assert document.sections[2].text == "- x\n---"
    (document,) = read("b.md", "---\n\nno settings\n\n---\n")
    assert document.sections[0].text.startswith("---\n\nno settings")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[a](b.md 'title') [c](<d e.md>) ![i](i.png) [f](g%20h.md)", ["b.md", "d e.md", "g%20h.md"]),
        ("[a][X y] [b][] and [b] but [no]\n\n[x  Y]: one.md 'T'\n[B]: <t w.md>", ["one.md", "t w.md", "t w.md"]),
        ("[[Page]] [[dir/Page#Part|label]] [[#Here]]", ["[[Page]]", "[[dir/Page#Part]]", "[[#Here]]"]),
    ],
)  # fmt: skip
def test_links_of_markdown(read, text, targets):
    (document,) = read("a.md", text)
    links = document.sections[0].links
    assert [target for _, target in links] == targets
    assert all(text[place] == "[" for place, _ in links)


def test_what_markdown_does_not_show(read):
    front = '---\ntitle: "My: page"\ntags:\n  - a\n---\n'
    content = f"{front}<!-- a\nnote -->\n# Guide\none <!-- b --> two\n```\n<!-- code -->\n```\n<!-- c -->"
    (document,) = read("a.md", content)
    assert document.title == "My: page"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("", ""),
        ("Guide", "one  two\n```\n<!-- code -->\n```"),
    ]
    (document,) = read("b.md", "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it")
    assert document.sections[0].text == "---\nA rule above, and no settings.\n\n---\n\nEnd <!-- of it"
