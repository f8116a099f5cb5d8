import pytest

from graphrerank.cli.schema import list_override


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
    assert list_override(argument, "report") == expected
