"""What a reader sees of Markdown and its dialects, and where its links lead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrerank_documents.document import Block, Document, Link
from graphrerank_documents.formats.markdown import read_markdown


def read(text: str, name: str = "a/page.md") -> Document:
    (document,) = read_markdown(text.encode(), name)
    return document


def blocks(text: str) -> list[Block]:
    return [block for section in read(text).sections for block in section.blocks]


def test_sections_and_their_lines():
    text = "---\ntitle: T\n---\nintro\n\n# Guide\n\nSee [setup](setup.md#first).\nEnd [b](b.md).\n\n"
    document = read(f"{text}```sh\n# no heading\n```\nSetup\n---\n![x](y.png) done\n")
    assert (document.title, [(s.heading, s.line, s.end) for s in document.sections]) == (
        "T",
        [("", 1, 5), ("Guide", 6, 13), ("Setup", 14, 16)],
    )
    (first, code), (last,) = document.sections[1].blocks, document.sections[2].blocks
    assert (first.text, first.line) == ("See setup. End b.", 8)
    assert first.links == (Link("setup.md#first", 8), Link("b.md", 9))
    assert (code.text, code.line, code.is_whole) == ("# no heading", 12, True)
    assert (last.text, last.line, last.links) == ("x done", 16, ())


def test_lists_and_tables():
    text = (
        "Text:\n- one\n  more\n- two\n  1. in\n\n     behind\n\n| a | b |\n|---|---|\n| 1 | [y](o.md) |\n| 2 | `x` |\n"
    )
    (section,) = read(text).sections
    assert [(b.text, b.line, b.is_tight, b.is_whole, b.header) for b in section.blocks] == [
        ("Text:", 1, False, False, ""),
        ("- one more", 2, False, False, ""),
        ("- two", 4, True, False, ""),
        ("1. in", 5, False, False, ""),
        ("behind", 7, False, False, ""),
        ("1 | y", 11, False, True, "a | b"),
        ("2 | x", 12, True, True, "a | b"),
    ]
    assert [block.text for block in blocks("Term\n: What it\n  means\n: And")] == ["Term", "What it means", "And"]


def test_names_of_headings():
    def anchors(text: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(section.heading, section.anchors) for section in read(text).sections]

    assert anchors("# Attributes { #attributes }\n## `Set` *up* {: #set-up .cls }\n### A\n{: #b}\n") == [
        ("Attributes", ("attributes",)),
        ("Set up", ("set-up",)),
        ("A", ("b", "a")),
    ]
    assert anchors("# Step 2\nx\n# Step 2 ##\nx") == [("Step 2", ("step-2",)), ("Step 2", ("step-2-1", "step-2_1"))]
    assert anchors('<a name="x"></a>\n\n# A\n\n<p id="p">a</p>\n\ntext <a id="y"></a>\n\n- # B\n') == [
        ("A", ("a", "x", "p", "y", "b")),
    ]
    assert anchors("# [A](b.md) ![badge](c.png) <b>x</b> {/* #own */}") == [("A x", ("own", "a-x"))]
    assert anchors('<h1 align="center" id="i">The\n <i>page</i></h1>\n\na\n') == [("The page", ("i", "the-page"))]
    assert anchors("# ![A](b.md)\nTerm\n: x\n\n::: a.b.C\n") == [("A", ("a", "term", "a.b.C"))]
    (section,) = read("(lab)=\n# A\n\na").sections
    assert (section.labels, section.anchors) == (("lab",), ("a", "lab"))


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[a](b.md 'title') [c](<d e.md>) ![i](i.png) [f](g%20h.md)", ["b.md", "d e.md", "g%20h.md"]),
        ("[a][X y] [b][] and [b] but [no]\n\n[x  Y]: one.md 'T'\n[B]: <t w.md>", ["one.md", "t w.md", "t w.md"]),
        ("[p](sub/Foo_(bar).md) [![badge](x.png)](o.md) <a href='h.html'>h</a>",
         ["sub/Foo_(bar).md", "o.md", "h.html"]),
        ("[[Page]] [[dir/Page#Part|label]] [[#Here]] ![[Shown]] ![[i.png]]",
         ["Page", "dir/Page#Part", "#Here", "Shown"]),
        ("|a|\n|-|\n|[[Page\\|label]]|", ["Page"]),
        ("[[1]](#one) [[x]][x] [[x]]\n\n[x]: y.md", ["#one", "y.md", "y.md", "y.md"]),
        ("<https://a.b/c> https://d.e/f_g. <m@n.o>", ["https://a.b/c", "https://d.e/f_g", "mailto:m@n.o"]),
        ('[a]({{< ref "b c.md#d" >}} "t") [e]({{% relref "/f" %}})', ["b%20c.md#d", "/f"]),
        ("[a]({% link _x/b.md %}) [c]({{ site.baseurl }}/d/) [e]({{ '/f' | relative_url }})",
         ["/_x/b.md", "/d/", "/f"]),
        ("[a]({{ site.baseurl }}{% post_url 2020-01-02-b %}#c)", ["/_posts/2020-01-02-b#c"]),
        ('{{< card link="../b" title="A" >}}\n\n```{include} ../c.md\n```\n\n[[toc]] [[_TOC_]]', ["../b", "../c.md"]),
        ("[a][b]\n\n[b]: {% link c.md %}", ["/c.md"]),
        ("[a](b.md){:target='_blank'} [c](@site/d.md) [e](@/f.md)", ["b.md", "/d.md", "/f.md"]),
        ("{ref}`lab` {doc}`Text </d>` {py:class}`~pump.Motor`", ["lab", "/d", "pump.Motor"]),
        ("```{toctree}\n:maxdepth: 2\n\na\nT <sub/b>\nc/*\n```\ntext", ["a", "sub/b"]),
        ("## [A](b.md)\n## [C](d.md)\nx", ["b.md", "d.md"]),
        ("<p align=center>\n<a href='a.md'><img src=x alt=i></a>\n</p>", ["a.md"]),
        ("## [A](b.md)\n<div><a href=\"{{ 'c' | relative_url }}\">d</a></div>\n  [e]: f.md\n\n[e]",
         ["b.md", "c", "f.md"]),
        ("[a]({{ site.other }}/b) text ^id", []),
        ("<div class='note' markdown='1'>[a](b.md)\n</div>", ["b.md"]),
        ("> [a](b.md)\n\n1. [c](d.md)\n\n!!! note\n    [e](f.md)\n\n=== \"T\"\n\n    [g](h.md)",
         ["b.md", "d.md", "f.md", "h.md"]),
        ("`[a](b.md)` `[[c]]` ``{{< ref \"d\" >}}`` \\[e](f.md)", []),
        ("```toml\n[x]\n[[y]]\n```\n\n    [a](b.md)\n\n[x]: y.md", []),
        ("<!-- [a](b.md) <a href='c.md'> -->\n\n<script>'<a href=x>'</script>", []),
        ("{{< highlight go >}}\n[a](b.md)\n{{< /highlight >}}\n\n{% highlight x %}\n[c](d.md)\n{% endhighlight %}", []),
        ("    ![a](data:image/png;base64,aaaa)\n\n[b](data:text/html,x) [c](javascript:x) <a>d</a> [^1]\n\n[^1]: e",
         []),
    ],
)  # fmt: skip
def test_links(text, targets):
    assert [link.target for block in blocks(f"{text}\n") for link in block.links] == targets


def test_kinds_of_links():
    text = "[a](b) [[c]] {ref}`d` {doc}`e` {class}`f`\n\n```{toctree}\ng\n```\n"
    (section,) = read(text).sections
    assert [(link.target, link.line, link.kind) for link in section.blocks[0].links] == [
        ("b", 1, "path"), ("c", 1, "page"), ("d", 1, "label"), ("e", 1, "document"), ("f", 1, "symbol"),
        ("g", 4, "document"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a **b** _c_ ~~d~~ `e  f` &amp; \\* <b>g</b>h", ["a b c d e  f & * gh"]),
        ("a\\\nb  \nc<br>d", ["a\nb\nc\nd"]),
        ('!!! warning "Mind"\n    One.\n\n    Two.\n\n        code\n\nAfter.',
         ["Mind", "One.", "Two.", "code", "After."]),
        ('=== "Tab 1"\n\n    - a\n\n=== "Tab 2"\n\n    b', ["Tab 1", "- a", "Tab 2", "b"]),
        ("text\n:::tip[Do]\n\nb\n\n:::\n\n::: details Click *me*\nc\n:::", ["text", "Do", "b", "Click me", "c"]),
        (":::{note} Title\n:class: x\nA [b](c).\n:::\nd", ["Title", "A b.", "d"]),
        ("````{tip}\n```{warning}\na\n```\n````\n\n```{code-block} sh\n:linenos:\n\nls\n```", ["a", "ls"]),
        ("> [!NOTE]\n> a\n\n> [!info]- Title\n> b", ["a", "Title\nb"]),
        ("{{< tabs >}}\n{{% tab %}}\n\na {{ x }}\n\n{* ../y.py *}\n", ["a {{x}}"]),
        ("{{< code-toggle x=y >}}\na: b\n{{< /code-toggle >}}\n\n{% highlight x %}\n\na *b*", ["a: b", "a b"]),
        ("a\n{.cls}\n\n数据\n表 ^id\n\n<Listing caption=\"A `Box<T>`\">\n\nb", ["a", "数据表", "b"]),
        ('A {{< tip text="Pod" term_id="pod" >}} is\n\n{% tab title="T" %}\n\n'
         '{% code title="b" %}\n```\nc\n```\n{% endcode %}',
         ["A Pod is", "T", "b", "c"]),
        ("a[^1]\n\n[^1]: b c", ["a", "b c"]),
        ("<div>\n<p>One <b>two</b>\nthree<p>four\n<table><tr><th>a</th><th>b</th></tr><tr><td>1</table>\n</div>\n\nx",
         ["One two three", "four", "a | b", "1", "x"]),
        ("<pre>\n a &lt;\n   b\n</pre>", [" a <\n   b"]),
        ("import Tabs from '@theme/Tabs';\n\na\n\n```\nimport x from 'y'\n```", ["a", "import x from 'y'"]),
    ],
)  # fmt: skip
def test_what_a_reader_sees(text, texts):
    assert [block.text for block in blocks(text)] == texts


def test_mdx():
    text = """import Tabs from '@theme/Tabs'
import {A,
  B} from 'x'

export const y = {
  a: 1,
}

# Page {#own}

{/* left out */}

<Tabs values={[{label: 'a'}, {b: () => {1}}]} default="x">
  <Card title="Setup" href="/setup">
    Some **text** and [c](d.mdx) `a {b} `.
  </Card>

    Indented, but no code.
</Tabs>

```jsx
export const z = <A b={{c: 1}} />
```
"""
    document = read(text, "a.mdx")
    (section,) = document.sections
    assert (section.heading, section.line, section.anchors) == ("Page", 9, ("own", "page"))
    assert [block.text for block in section.blocks] == [
        "Setup", "Some text and c a {b} .", "Indented, but no code.", "export const z = <A b={{c: 1}} />",
    ]  # fmt: skip
    assert [link.target for block in section.blocks for link in block.links] == ["/setup", "d.mdx"]


def test_titles():
    document = read("---\ntitle: Section\ndescription: What it is about.\n---\n", "a/_index.md")
    assert (document.title, document.sections[0].blocks[0].text) == ("Section", "What it is about.")
    texts = ("## B\na\n# A\n", "a\n## B\n", "## B\na", "")
    assert [read(text).title for text in texts] == ["A", "page", "B", "page"]


def test_blobs():
    document = read(f"# A\n\n![chart](data:image/png;base64,{'QUJD' * 99})\n\n![b][c]\n\n[c]: data:a/b;base64,QUJD\n")
    assert [block.text for block in document.sections[0].blocks] == ["chart", "b"]
    assert document.dropped == {"data URIs": 2}


def test_long_files_are_read_with_their_lines():
    part = "## Head\n\n[a][late] `x` [b](c.md)\n\n```\n## no heading\n\n```\n"
    document = read(f"{part * 1500}\n[late]: d.md\n")
    assert [section.line for section in document.sections] == list(range(1, 12_001, 8))
    assert {tuple(link.target for link in section.blocks[0].links) for section in document.sections} == {
        ("d.md", "c.md")
    }
    assert document.sections[-1].blocks[1].line == 11_998


DIALECTS = """---
title: T
---
# A {#b}
[[a|b]] {{< ref "x" >}} [c](d){: .e} `f` {ref}`g` <a id="h"> ![i](j) [^k]
!!! note "l"
    - m
      > n
:::{tip} o
```{toctree}
p
```
:::
| q | r |
|---|---|
| s | t |
<div>
<Tab u={v}>
w ^x
: y

![z](a)
: b
(c)=
"""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*DIALECTS.split("\n"), *DIALECTS, "\n", "\n\n", "    "]), max_size=40),
    st.sampled_from("dx"),
)
def test_any_text(parts, kind):
    text = "".join(parts)
    document = read(text, f"a.m{kind}")
    before = 0
    for section in document.sections:
        assert before <= section.line <= section.end <= text.count("\n") + 1
        assert section.line <= min((block.line for block in section.blocks), default=section.line)
        assert all(block.text.strip() and block.text == block.text.rstrip() for block in section.blocks)
        before = section.line
    assert document.title


@pytest.mark.parametrize(
    "text",
    [
        "# x" + " " * 40_000 + "x", "<!--" * 20_000, "\n" * 40_000 + "x", "```\n" + "\n" * 40_000 + "x",
        "# " + "[](" * 10_000, ">" * 20_000, "[" * 20_000, "![" * 10_000, "*a " * 6_000, "- " * 10_000,
        "{" * 20_000,
        "{{<" * 6_000, "`" * 20_000, "<a " * 10_000, "<div>\n" + "<a id='" * 6_000, "[[" * 10_000,
        "import {" * 4_000,
        f"{'|x' * 250}\n{'|-' * 250}\n" + "|a\n" * 300,
        ":::{a}\n" * 1000, "!!! a\n" * 1000, "{% raw %}\n" * 600, "(" * 20_000, "[a]({{< ref " * 1000, "a\n: " * 1000,
    ],
)  # fmt: skip
def test_bombs(text):
    for name in ("a.md", "a.mdx"):
        read(text, name)


@pytest.mark.parametrize("end", ["{{< /code-toggle >}}", "{{</ code-toggle >}}", "{{</code-toggle>}}"])
def test_a_shortcode_with_code_ends_however_its_end_is_written(end):
    document = read(f"# A\n\n{{{{< code-toggle >}}}}\na = 1\n{end}\n\nText with [a link](b.md).\n")
    assert [block.text for block in document.sections[0].blocks] == ["a = 1", "Text with a link."]
