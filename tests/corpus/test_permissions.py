"""Names that are mistaken for the field of principals."""

import pytest

from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.permissions import misplaced_principals

MISPLACED = [
    *({name: ["hr"]} for name in ("Principals", "principal", "PRINCIPALS ", "prinicpals", "princpals", "principalls")),
    *({name: ["hr"]} for name in ("allowed_principals", "principals[]", "\uff50rincipals", "princip-als")),
    {"metadata": {"principals": ["hr"]}},
    {"access": [{"lang": "en"}, {"Principal": None}]},
]


@pytest.mark.parametrize("record", MISPLACED)
def test_misplaced_and_misspelt_principals_are_refused(record) -> None:
    with pytest.raises(
        ValueError, match=r"metadata of passage 1: `metadata\..+` must be named `metadata\.principals` if it"
    ):
        _ = Metadata([{}, record]).is_restricted
    explicit = Metadata([{}, record | {"principals": ["law"]}])  # which decide
    assert explicit.visible({"hr"}).tolist() == [True, False]
    assert explicit.visible({"law"}).tolist() == [True, True]


@pytest.mark.parametrize("name", ["principle", "principles", "principality", "principally", "prince", ""])
def test_other_words_are_no_principals(name) -> None:
    assert not Metadata([{name: ["hr"]}]).is_restricted


def test_the_path_of_the_first_suspect_field() -> None:
    record = {"lang": "en", "access": [{"lang": "en"}, {"rules": {"Principal": 1}}], "principals_2": 3}
    assert misplaced_principals(record) == "access.rules.Principal"
    assert misplaced_principals([{"lang": "principals"}]) is None
