import re

import pytest

from graphrerank.cli.arguments import read_arguments


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("report=runs/a,runs/b", "report=['runs/a','runs/b']"),
        ("report=runs/a b,c's", r"report=['runs/a b','c\'s']"),
        ("report=[runs/a,runs/b]", "report=[runs/a,runs/b]"),
        ("report=runs/a", "report=['runs/a']"),
        ("datasets=a,b", "datasets=a,b"),
        ("-m", "-m"),
    ],
)
def test_a_list_may_be_written_with_commas(argument: str, expected: str) -> None:
    assert read_arguments(["seed=1", argument]) == ["seed=1", expected]


@pytest.mark.parametrize(
    ("argument", "new"),
    [
        ("ket.solutions=[ket_p]", "job.solutions"),
        ("~adapter.data.scifact", "job.data.scifact"),
        ("+adapter.settings.max_epochs=8", "job.settings.max_epochs"),
        ("tables=null", "job"),
        ("rows=granker_head", "recipe"),
    ],
)
def test_a_key_of_an_earlier_version_names_the_new_one(argument: str, new: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"must be written as `{new}`, got {argument!r}")):
        read_arguments([argument])
