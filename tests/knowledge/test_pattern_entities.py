"""Names, identifiers, amounts and dates by their spelling."""

import pytest

from graphrerank.knowledge.pattern_entities import PatternEntityExtractor


def names(text: str) -> list[str]:
    (knowledge,) = PatternEntityExtractor().extract([text])
    return knowledge.names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("all in lower case, without numbers", []),
        ("In Paris, Barack Obama met H. S. Rawail.", ["Paris", "Barack Obama", "H. S. Rawail"]),
        ("Later Lothair II of Tuscany died.", ["Later Lothair II of Tuscany"]),
        ("The end. Both Pears and Nero Claudius", ["Pears", "Nero Claudius"]),
        ("the San José de la Cruz of Ångström Čapek", ["San José de la Cruz of Ångström Čapek"]),
        ("у Москве и на Красной Площади", ["Москве", "Красной Площади"]),  # noqa: RUF001
        ("call os.path.join, foo_bar(), parseJson or std::move", ["os.path.join", "foo_bar", "parseJson", "std::move"]),
        ("e.g. a dose of 5 mg, 30 °C, 12.5% or $5 million", ["5 mg", "30 °C", "12.5%", "$5 million"]),
        ("born 12 March 1999 or March 12, 1999, in 1999", ["12 March 1999", "March 12, 1999"]),
        ("levels of IL-6 and of HIV-1", ["IL-6", "HIV-1"]),
    ],
)
def test_spelling(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("text", ["x" * 200_000, "ab12" * 50_000, "1234567," * 20_000, "1:1." * 30_000])
def test_a_long_row_is_read_once(text: str) -> None:
    """Were it read from each of its places on, this would take minutes."""
    assert len(PatternEntityExtractor().extract([text])) == 1
