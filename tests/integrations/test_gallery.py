"""Dates and invalidations of memories in the gallery; stand-ins take the place of their libraries."""

import sys
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import lift_replacements, valid_at
from graphrerank.serving.schemas.documents import AddDocuments
from tests.support.pages import PAGES, blocks_of


def documents(tool: str, facts: list[Any], monkeypatch: pytest.MonkeyPatch, **modules: Any) -> Passages:
    """Run the page's function, check that the service takes its documents, and return their passages."""
    for name, content in modules.items():
        parts = name.split("__")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[0]))
        sys.modules[".".join(parts)].__dict__.update(content)
    (page,) = (page for page in PAGES if page.name == "gallery.md")
    (block,) = (block for block in blocks_of(page) if tool in block.code and "def documents(" in block.code)
    names: dict[str, Any] = {}
    exec(compile(block.code, str(block), "exec"), names)
    taken = AddDocuments(documents=list(names["documents"](facts))).documents
    metadata = Metadata([one.metadata for one in taken])
    return Passages([one.id for one in taken], [one.text for one in taken], metadata=metadata)


def valid(passages: Passages, time: str) -> list[str]:
    assert passages.metadata is not None
    passing = passages.metadata.where(valid_at(time, passages.metadata.times))
    return [passages.ids[node] for node in passing.nonzero()[0]]


def test_graphiti(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = timezone(timedelta(hours=2))
    times = {
        "a": (datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 5, 1, 1, tzinfo=zone), None),
        "b": (datetime(2024, 5, 1, 1, tzinfo=zone), None, None),
        "c": (None, None, datetime(2021, 1, 1, tzinfo=UTC)),
    }
    facts = [
        SimpleNamespace(uuid=key, fact="x", valid_at=start, invalid_at=end, expired_at=expired)
        for key, (start, end, expired) in times.items()
    ]
    passages = documents("graphiti_core", facts, monkeypatch, graphiti_core__edges={"EntityEdge": None})
    assert valid(passages, "2020-06-01") == ["a", "c"]
    assert valid(passages, "2024-04-30T22:59:59Z") == ["a"]
    assert valid(passages, "2024-04-30T23:00:00Z") == ["b"]


def test_cognee(monkeypatch: pytest.MonkeyPatch) -> None:
    def fact(key: str, date: str | None, *marks: tuple[str, str]) -> tuple[str, str, str, dict[str, Any]]:
        held = [{"conflict_id": conflict, "status": status} for conflict, status in marks]
        return "n", "m", "is_led_by", {"edge_object_id": key, "edge_text": key, "effective_date": date, "marks": held}

    edges = [
        fact("old", "2020-05-01", ("1", "superseded")),
        fact("new", "2024-05-01T10:00:00+00:00", ("1", "current"), ("2", "conflicting")),
        fact("other", None, ("2", "conflicting")),
        ("n", "m", "is_a", {}),
    ]
    reads = {"read_conflict_marks": lambda content: content["marks"]}
    passages = documents("fact_conflicts", edges, monkeypatch, cognee__modules__graph__utils__fact_conflicts=reads)
    assert passages.ids == ["old", "new", "other"]
    assert valid(passages, "2021-01-01") == ["old", "other"]
    assert passages.metadata is not None
    assert passages.metadata.record(1) == {
        "valid_from": "2024-05-01T10:00:00+00:00",
        "supersedes": ["old"],
        "contradicts": ["other"],
    }
    assert passages.metadata.record(2) == {"contradicts": ["new"]}
    lifted = lift_replacements(passages, torch.tensor([[0, 1]]), torch.tensor([[2.0, 1.0]]))
    assert lifted[0, 1] > lifted[0, 0]
