"""Links that formats and tools write in their own way lead to their targets. Each case is a folder of small files."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphrerank_documents.index_folder import index_folder
from tests.support.documents import edges_of
from tests.support.files import write_files, zip_of

pytestmark = pytest.mark.usefixtures("parses_here")

ID = "6500aaaa-1111-2222-3333-444455556666"
NOTION = "fedcba9876543210fedcba9876543210"
WORD = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


def docx(body: str, **parts: str) -> bytes:
    """A Word document with a body and other parts, such as comments."""
    document = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
    return zip_of({"word/document.xml": document} | {f"word/{name}.xml": part for name, part in parts.items()})


def run(*parts: str) -> str:
    return f"<w:p>{''.join(f'<w:r>{part}</w:r>' for part in parts)}</w:p>"


def field(instructions: str, text: str) -> tuple[str, ...]:
    kinds = [f'<w:fldChar w:fldCharType="{kind}"/>' for kind in ("begin", "separate", "end")]
    return kinds[0], f"<w:instrText>{instructions}</w:instrText>", kinds[1], f"<w:t>{text}</w:t>", kinds[2]


CASES: dict[str, tuple[Mapping[str, str | bytes], set[tuple[str, str]]]] = {
    "components": (
        {
            "src/App.vue": "<script>\nimport B from '@/B.vue'\nimport './go'\n</script>\n<template><B/></template>",
            "src/B.vue": "<template><p>A button</p></template>",
            "src/go.ts": "export function go() {}\n",
            "src/main.ts": "import App from './App.vue'\nexport const x = App\n",
        },
        {
            ("src/App.vue", "src/B.vue"),
            ("src/App.vue", "src/go.ts"),
            ("src/main.ts", "src/App.vue"),
        },
    ),
    "svelte": (
        {"A.svelte": "<script>\n  import B from './B.svelte';\n</script>\n<B/>", "B.svelte": "<p>text</p>"},
        {("A.svelte", "B.svelte")},
    ),
    "logseq": (
        {
            "pages/My Page.md": f"title:: My Title\nalias:: MT, Second\n\n- a block\n  id:: {ID}\n",
            "pages/a___b.md": f"- [[MT]] [[My Title]] (({ID}))\n",
            "journals/2024_03_02.md": "- [[a/b]]\n",
            "pages/c.md": "- [[Mar 2nd, 2024]] [[2024-03-02]]\n",
            "pages/d.md": f"## Terms\n\t- [[c]]\n\t- more\n\t\t- [the block]((({ID})))\n",
            "pages/e.org": f"text (({ID})) [[Mar 2nd, 2024]]\n",
            "pages/f.md": "title:: config.edn\n\n- [label]([[c]])\n",
            "pages/g.md": "- [[config.edn]]\n",
            "config.edn": "{}",
        },
        {
            ("pages/a___b.md", "pages/My Page.md"),
            ("journals/2024_03_02.md", "pages/a___b.md"),
            ("pages/c.md", "journals/2024_03_02.md"),
            ("pages/d.md#terms", "pages/c.md"),
            ("pages/d.md#terms", "pages/My Page.md"),
            ("pages/e.org", "pages/My Page.md"),
            ("pages/e.org", "journals/2024_03_02.md"),
            ("pages/f.md", "pages/c.md"),
            ("pages/g.md", "pages/f.md"),
        },
    ),
    "obsidian": (
        {
            "a.md": "[[b^x1]] [[Sq]uare]] [s](with space.md)",
            "b.md": "text ^x1",
            "Sq]uare.md": "s",
            "with space.md": "w",
        },
        {("a.md", "b.md"), ("a.md", "Sq]uare.md"), ("a.md", "with space.md")},
    ),
    "ids of notes": (
        {
            "a.org": "[[denote:20240101T000000][d]]",
            "20240101T000000--x__t.org": "x",
            "202401011200 Z.md": "[[202401011300]]",
            "202401011300 Y.md": "y",
        },
        {("a.org", "20240101T000000--x__t.org"), ("202401011200 Z.md", "202401011300 Y.md")},
    ),
    "includes": (
        {
            "mkdocs.yml": "site_name: x\n",
            "docs/sub/a.md": 'Text\n\n--8<-- "parts/b.md"\n',
            "docs/parts/b.md": "b",
            "book/c.md": "Text\n\n```rust\n{{#rustdoc_include d.rs:2:4}}\n```\n",
            "book/d.rs": "fn main() {}\n",
            "q/e.qmd": "{{< include _f.qmd >}}\n",
            "q/_f.qmd": "f",
            "v/g.md": "Text\n\n<!--@include: ./h.md-->\n",
            "v/h.md": "h",
        },
        {
            ("docs/sub/a.md", "docs/parts/b.md"),
            ("book/c.md", "book/d.rs"),
            ("q/e.qmd", "q/_f.qmd"),
            ("v/g.md", "v/h.md"),
        },
    ),
    "docusaurus": (
        {"docs/1-a.md": "---\nid: overview\n---\ntext", "docs/b.md": "[o](./overview) [p](/docs/overview)"},
        {("docs/b.md", "docs/1-a.md")},
    ),
    "notion": (
        {
            f"Sub page {NOTION}.md": "# Sub\n\ntext",
            "a.md": f"[web](https://www.notion.so/Sub-page-{NOTION}?pvs=4)",
            "DB 11111111111111111111111111111111.csv": f"Name,Related\nRow,Sub page (https://www.notion.so/Sub-page-{NOTION})\n",
        },
        {
            ("a.md", f"Sub page {NOTION}.md#sub"),
            ("DB 11111111111111111111111111111111.csv#2", f"Sub page {NOTION}.md#sub"),
        },
    ),
    "confluence": (
        {
            "67890.html": "<p>The text of a page</p>",
            "Page-two_67891.html": "<p>Another text of a page</p>",
            "a.md": "[x](/pages/viewpage.action?pageId=67890) [y](https://c.org/wiki/spaces/S/pages/67891/Page+two)",
        },
        {("a.md", "67890.html"), ("a.md", "Page-two_67891.html")},
    ),
    "org": (
        {
            "a.org": "* One\n[[the target]]\n* Two\ntext <<the target>>\n",
            "b.org": ':PROPERTIES:\n:ROAM_ALIASES: "Alias One" two\n:END:\n#+title: B\ntext\n',
            "c.org": "[[roam:Alias One]]",
        },
        {("a.org#one", "a.org#two"), ("c.org", "b.org")},
    ),
    "antora": (
        {
            "modules/ROOT/pages/a.adoc": "= A\n:page-aliases: old.adoc, sub/older.adoc\n\ntext\n",
            "modules/ROOT/pages/b.adoc": "xref:old.adoc[o]",
            "modules/ROOT/pages/c.adoc": "xref:sub/older.adoc[o]",
        },
        {
            ("modules/ROOT/pages/b.adoc", "modules/ROOT/pages/a.adoc#_a"),
            ("modules/ROOT/pages/c.adoc", "modules/ROOT/pages/a.adoc#_a"),
        },
    ),
    "sphinx": (
        {
            "a.rst": ".. csv-table:: Rows\n   :file: d.csv\n",
            "d.csv": "id,text\nx,one\n",
            "b.md": "[c](path:c.py)",
            "c.py": "X = 1\n",
        },
        {("a.rst", "d.csv#x"), ("b.md", "c.py")},
    ),
    "latex": (
        {
            "a.tex": "\\import{ch/}{one}\n\nSee \\parencite[p.~2]{knuth} and \\cite{x}.",
            "ch/one.tex": "one",
            "r.bib": '@comment{c}\n@book{knuth,\n  title = {The {Art}},\n  author = "Knuth, D.", year = 1968\n}\n',
        },
        {("a.tex", "ch/one.tex"), ("a.tex", "r.bib#knuth")},
    ),
    "word": (
        {
            "a.docx": docx(run("<w:t>see </w:t>", *field(' HYPERLINK "page.md" \\l "sec" ', "the page"))),
            "page.md": "# P\n\n## Sec\n\nx",
        },
        {("a.docx", "page.md#sec")},
    ),
    "old notebook": (
        {
            "a.ipynb": json.dumps(
                {
                    "cells": [
                        {"cell_type": "markdown", "source": "[b](b.ipynb#Part)"},
                        {"cell_type": "raw", "source": "raw text"},
                    ]
                }
            ),
            "b.ipynb": json.dumps(
                {
                    "worksheets": [
                        {
                            "cells": [
                                {"cell_type": "heading", "level": 1, "source": "Part"},
                                {"cell_type": "code", "input": "x = 1"},
                            ]
                        }
                    ]
                }
            ),
        },
        {("a.ipynb", "b.ipynb#part")},
    ),
    "files without suffix": ({"README": "text", "a.md": "[r](README)"}, {("a.md", "README")}),
}


@pytest.mark.parametrize("name", CASES)
def test_links_lead_to_their_targets(name: str, tmp_path: Path) -> None:
    files, expected = CASES[name]
    made = index_folder(write_files(tmp_path / "source", files), tmp_path / "out", workers=1)
    assert {edge[:2] for edge in edges_of(tmp_path / "out")} == expected
    assert (made.links.dead, made.links.dead_imports) == ([], ())


def test_text_of_notes_comments_and_nested_tables_of_a_word_document(tmp_path: Path) -> None:
    nested = f"<w:tbl><w:tr><w:tc>{run('<w:t>inner</w:t>')}</w:tc></w:tr></w:tbl>"
    table = f"<w:tbl><w:tr><w:tc>{run('<w:t>A</w:t>')}{nested}</w:tc><w:tc>{run('<w:t>B</w:t>')}</w:tc></w:tr></w:tbl>"
    marks = run("<w:t>text</w:t>", '<w:endnoteReference w:id="2"/>', '<w:commentReference w:id="0"/>')
    endnotes = f'<w:endnotes {WORD}><w:endnote w:id="2">{run("<w:t>An end note</w:t>")}</w:endnote></w:endnotes>'
    comments = f'<w:comments {WORD}><w:comment w:id="0">{run("<w:t>A comment</w:t>")}</w:comment></w:comments>'
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.docx").write_bytes(docx(marks + table, endnotes=endnotes, comments=comments))
    index_folder(tmp_path / "source", tmp_path / "out", workers=1)
    text = json.loads((tmp_path / "out" / "corpus.jsonl").read_text())["text"]
    assert text.count("inner") == 1
    assert text.startswith("text\n\nAn end note\n\nA comment")
