"""Names of headings, as the documentation and the tests of their tools have them."""

import pytest

from graphrerank_documents.formats.slugs import Slugs, github_slug


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("alpha", "alpha"),
        ("UPPER bad ! good", "upper-bad--good"),
        ("What's new in 2.0?", "whats-new-in-20"),
        ("C++ & C#: __init__", "c--c-__init__"),
        ("I ♥ unicode", "i--unicode"),
        ("Dash-dash – en", "dash-dash--en"),  # noqa: RUF001
        ("😄 emoji", "-emoji"),
        ("Профили пользователей", "профили-пользователей"),
        ("Größe: é", "größe-é"),
        ("हिन्दी में", "हिन्दी-में"),
        ("数据。表", "数据表"),
    ],
)
def test_against_github(heading, slug):
    assert github_slug(heading) == slug


def test_repeated_headings():
    slugs = Slugs()
    assert [slugs.of(heading)[0] for heading in ("a", "a", "a-1", "a")] == ["a", "a-1", "a-1-1", "a-2"]
    assert slugs.of("a") == ["a-3", "a_3", "a-3"][:2]


def test_other_tools():
    assert Slugs().of("1. Größe & Maß") == ["1-größe--maß", "1-groe-ma", "_1-große-maß"]
