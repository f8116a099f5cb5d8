"""Tables and pages of a result, for tests."""

from html.parser import HTMLParser

from graphrerank.evaluation.records import Replication
from graphrerank.evaluation.report import dataset_tables
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.tables import Table, records_table


def all_tables(result: EvaluationResult) -> dict[str, Table]:
    """Return all tables of a result by data set and title."""
    tables = {
        f"{name}: {table.title}": table for name, data in result.datasets.items() for table in dataset_tables(data)
    }
    return {**tables, **({"over all data sets": records_table(Replication, result.across)} if result.across else {})}


class Outline(HTMLParser):
    """Elements of a page, each of which must be closed, and texts by the element that holds them."""

    VOID = ("meta", "link", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        assert self.open == []

    def attributes(self, *names: str) -> list[str | None]:
        """Return the values of some attributes."""
        return [value for _, given in self.elements for name, value in given.items() if name in names]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)
