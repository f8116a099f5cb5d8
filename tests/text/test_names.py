import pytest

from graphrerank.text import normalize_entity


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("The Beatles", "beatles"),
        ("  an   Apple ", "apple"),
        ("Lothair II's", "lothair ii"),
        ("the Joneses\u2019", "joneses"),
        ("U.S.A.", "usa"),
        ("Rock-and-Roll", "rock and roll"),
        ("O'Hara", "ohara"),
        ("AT&amp;T", "at t"),
        ("STRASSE", normalize_entity("straße")),
        ("北京", "北京"),
        ("—", ""),
        ("The The", ""),
    ],
)
def test_normalize_entity(name: str, normal: str) -> None:
    assert normalize_entity(name) == normal
    assert normalize_entity(normal) == normal
