import math
from html.parser import HTMLParser

from graphrerank.evaluation.html.elements import Cell, Markup, join, table, tag


class Texts(HTMLParser):
    """Collects what a browser would show and the attributes that it would see."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HOSTILE = "<script>\"&' </table>"


def test_text_and_attributes_come_back_as_they_were() -> None:
    parser = Texts()
    parser.feed(tag("td", HOSTILE, class_=HOSTILE, data_value=1.0))
    assert parser.tags == [("td", {"class": HOSTILE, "data-value": "1"})]
    assert "".join(parser.texts) == HOSTILE


def test_markup_is_not_escaped_twice() -> None:
    inner = tag("b", "<")
    assert isinstance(inner, Markup)
    assert tag("p", inner, "<") == "<p><b>&lt;</b>&lt;</p>"
    assert join(tag("br"), "&") == "<br>&amp;"


def test_a_table_sorts_by_whole_numbers_not_by_what_it_shows() -> None:
    rows = [[Cell(HOSTILE), Cell("0.33", 1 / 3, note="0.1 to 0.5")], [Cell("b"), Cell("-", math.nan, strong=True)]]
    parser = Texts()
    parser.feed(table(["name", "score"], rows, caption="All"))
    cells = [attributes for name, attributes in parser.tags if name in ("td", "th")]
    assert [one.get("scope") for one in cells] == ["col", "col", "row", None, "row", None]
    assert [one.get("data-value") for one in cells[2:]] == [None, repr(1 / 3), None, None]
    assert [one.get("data-kind") for one in cells[:2]] == ["text", "number"]
    assert parser.texts == ["All", "name", "score", HOSTILE, "0.33", "0.1 to 0.5", "b", "-"]
