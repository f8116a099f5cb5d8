"""What pages say about themselves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrerank_documents.formats.front_matter import (
    DAMAGED_TOML,
    DAMAGED_YAML,
    FrontMatter,
    file_title,
    front_matter,
)
from graphrerank_documents.reading import read_content


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: 'The: page'\ndescription: >\n  In\n  one.\n"
        "aliases: [/old/, Name]\nslug: new\nn: {a: 1}\n---\nText",
        '+++\ntitle = "The: page"\ndescription = "In one."\naliases = ["/old/", "Name"]\nslug = "new"\n+++\nText',
        '{\n"title": "The: page", "description": "In one.", "aliases": ["/old/", "Name"], "slug": "new"}\nText',
    ],
)
def test_yaml_toml_and_json(text):
    said = front_matter(text, "a/b.md")
    assert (said.title, said.description, said.aliases) == ("The: page", "In one.", ("/old/", "Name", "/a/new"))
    assert text[said.length :].strip() == "Text"


def test_what_is_no_front_matter():
    for text in (
        "---\nA rule above, no settings.\n\n---\nx",
        "---\ntitle: a",
        "{/* a */}",
        "+++\na\n+++",
        "",
        "---\n- a\n---",
    ):
        assert front_matter(text, "a.md") == FrontMatter()
    assert front_matter("---\ntoc:\n  a: 1\n---\nx", "a.md").length == len("---\ntoc:\n  a: 1\n---")
    assert front_matter("---\ntitle: a: b\nslug: c\n---\n", "a.md").title == "a: b"  # no YAML, and often written


def test_addresses_relative_to_the_page():
    said = front_matter("---\nredirect_from: ../old/page/\npermalink: /x/\n---\n", "a/b/c.md")
    assert said.aliases == ("../old/page/", "/x/", "/a/old/page")


@pytest.mark.parametrize(
    "head",
    ["a: &a [x]\n"
     + "".join(f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a}]\n" for a, b in pairwise("abcdefghijkl")),
     "a: " + "[" * 19_000, "a: " + "{a: " * 4000, "- " * 9000],
)  # fmt: skip
def test_bombs(head):
    assert front_matter(f"---\n{head}\n---\n", "a.md").title == ""


@given(
    st.sampled_from(["---\n", "+++\n", "{"]),
    st.text("ab:-[]{}&*'\"\n =.#", max_size=60),
    st.sampled_from(["\n---", "\n+++", "}"]),
)
def test_any_text(start, text, end):
    said = front_matter(start + text + end, "a.md")
    assert 0 <= said.length <= len(start + text + end)


def test_titles_of_files():
    assert [file_title(name) for name in ("a/b.md", "a/_index.md", "README.md")] == ["b", "a", "README"]


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        ("---\ntitle: Pump: small\ntags: [a\n---\nText", (DAMAGED_YAML,)),
        ("+++\ntitle = Pump\n+++\nText", (DAMAGED_TOML,)),
        ("---\nx: " + "[\n" * 9000 + "\n---\nText", (DAMAGED_YAML,)),
        ("---\ntitle: Pump\n---\nText", ()),
        ("---\nA rule, no settings: [\n---\nText", ()),
    ],
)
def test_damaged_front_matter_is_named_in_the_report(text, damage):
    (document,) = read_content(text.encode(), "a.md").documents
    assert document.damage == damage
