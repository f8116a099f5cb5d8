import sys
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from graphrerank.data.readers.ir_datasets import load_ir_dataset


class Text(NamedTuple):
    """A document or a query."""

    id: str
    text: str

    def default_text(self) -> str:
        return self.text

    @property
    def doc_id(self) -> str:
        return self.id

    query_id = doc_id


class Qrel(NamedTuple):
    query_id: str
    doc_id: str
    relevance: float


class Part:
    """One data set of the package, with the calls that we make."""

    def __init__(self, docs: Any = None, queries: Any = None, qrels: Any = None) -> None:
        for name, content in (("docs", docs), ("queries", queries), ("qrels", qrels)):
            setattr(self, f"has_{name}", lambda content=content: content is not None)
            setattr(self, f"{name}_iter", lambda content=content: iter(content))


DOCS = [Text("a", "A"), Text("b", " B "), Text("e", "")]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    queries = [Text("1", "one?"), Text("2", "two?"), Text("3", "three?")]
    parts = {
        "x": Part(DOCS),
        "x/train": Part(DOCS, queries, [Qrel("2", "b", 2), Qrel("1", "a", -1), Qrel("2", "a", 0)]),
        "x/test": Part(DOCS, queries, [Qrel("3", "a", 1), Qrel("3", "a", 1), Qrel("1", "b", 1)]),
    }
    module = ModuleType("ir_datasets")
    module.load = parts.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    return parts


def test_splits_of_their_own_ids(package: dict[str, Part]) -> None:
    dataset = load_ir_dataset("x", splits={"train": "x/train", "test": "x/test"})
    assert dataset.name == "x"
    assert list(dataset.graph.node_ids) == ["a", "b"]
    assert list(dataset.graph.texts) == ["A", "B"]
    assert dataset.graph.num_edges == 0
    assert list(dataset.query_ids) == ["2", "3", "1"]
    assert list(dataset.query_texts) == ["two?", "three?", "one?"]
    train, test = dataset.split("train"), dataset.split("test")
    assert (train.query.tolist(), train.node.tolist(), train.gain.tolist()) == ([0], [1], [2])
    assert (test.query.tolist(), test.node.tolist(), test.gain.tolist()) == ([1, 2], [0, 1], [1, 1])
    one = load_ir_dataset("x/test")
    assert (one.name, list(one.splits), list(one.query_ids)) == ("x-test", ["test"], ["3", "1"])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, r"`id` must be a data set of ir_datasets, got 'y'"),
        (Part(DOCS, [], None), r"with qrels, got 'y', which has none"),
        (Part([*DOCS, Text("a", "again")], [], []), r"y: needed each document once, found 'a' a second time"),
        (Part(DOCS, [], [Qrel("1", "a", 1)]), r"y: needed judgements of its own queries, found one of '1'"),
        (Part(DOCS, [Text("1", "?")], [Qrel("1", "z", 1)]), r"needed judgements of documents in the corpus"),
        (Part(DOCS, [Text("1", " ")], [Qrel("1", "a", 1)]), r"y: needed a text for each query, found none for '1'"),
        (Part(DOCS, [Text("1", "?")], [Qrel("1", "a", 1), Qrel("1", "a", 2)]), r"needed one relevance of 'a'"),
        (Part(DOCS, [Text("1", "?")], [Qrel("1", "a", float("nan"))]), r"y: needed finite relevances"),
        (Part(DOCS, [], []), r"`splits` must each hold a judgement, got none in 'test'"),
    ],
)
def test_bad_data_sets(package: dict[str, Part], part: Part | None, message: str) -> None:
    package |= {} if part is None else {"y": part}
    with pytest.raises(ValueError, match=message):
        load_ir_dataset("y")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(ValueError, match=r"data=ir_datasets needs ir_datasets, .* 'graphrerank\[ir-datasets\]'"):
        load_ir_dataset("beir/scifact/test")
