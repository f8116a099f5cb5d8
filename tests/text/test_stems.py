from concurrent.futures import ThreadPoolExecutor

import pytest

from graphrerank.text import lead, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cities", "city"), ("classes", "class"), ("boxes", "box"), ("movies", "movie"), ("statuses", "status"),
        ("enrollment", "enrolled"), ("shipping", "Shipped"),
    ],
)  # fmt: skip
def test_forms_of_a_word_are_one(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    ("compound", "expected"),
    [
        ("orderNumber", ["ordernumb", "order", "number"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("NationalIDNumber", ["nationalidnumb", "nation", "id", "number"]),
        ("PRICE", ["price"]),
        ("area51", ["area51", "area", "51"]),
        ("2nd", ["2nd"]),
    ],
)
def test_compounds_give_their_parts_too(compound: str, expected: list[str]) -> None:
    assert words(compound) == expected


def test_stems_in_many_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(map(tuple, pool.map(words, ["movies enrolled shippedDate"] * 400))) == {
            tuple(words("movies enrolled shippedDate"))
        }


def test_words_and_lead() -> None:
    assert words("The Café_owner's 2nd song, über-alles!") == ["café", "owner", "s", "2nd", "song", "über", "all"]
    assert lead("No end") == "No end"
    assert lead("A title\nand a text. More.") == "A title"
    assert lead("v1.5 notes: what is new") == "v1.5 notes"
    assert lead("") == ""
