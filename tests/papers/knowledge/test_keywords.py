import pytest

from graphrerank_papers.knowledge.keywords import find_keywords


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("The of and it's DON\u2019T we'll", []),
        ("Paris, paris; PARIS's", ["paris"]),
        ("In 1957 a B. C. plan", ["1957", "plan"]),
        ("Straße und Bahrām", ["strasse", "und", "bahrām"]),
        ("東京 は 大都市", ["東京", "は", "大都市"]),
        ("well-known rock'n'roll_band", ["known", "rock'n'roll", "band"]),
    ],
)
def test_find_keywords(text: str, words: list[str]) -> None:
    assert find_keywords(text) == words
