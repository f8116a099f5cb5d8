import pytest

from graphrerank.text import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        ("J. R. R. Tolkien wrote it. It sold.", ["J. R. R. Tolkien wrote it.", "It sold."]),
        ("Mr. Smith, e.g. the U.S. one, left.", ["Mr. Smith, e.g. the U.S. one, left."]),
        ('"Stop!" He ran. (Why?) Ok', ['"Stop!"', "He ran.", "(Why?)", "Ok"]),
        ("It cost 3.50 dollars... and more. Yes", ["It cost 3.50 dollars... and more.", "Yes"]),
        ("Heading\n\nText of it.", ["Heading", "Text of it."]),
        ("他来了。她走了！", ["他来了。", "她走了！"]),  # noqa: RUF001
        ("  ", []),
    ],
)
def test_split_sentences(text: str, sentences: list[str]) -> None:
    assert [text[start:stop] for start, stop in split_sentences(text)] == sentences
