"""Data sets of ``ir_datasets``: a stand-in for the package, and the package itself with local files."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from graphrerank.data.loaders.ir_datasets import load_ir_dataset


class Text(NamedTuple):
    """A document or a query with one field."""

    id: str
    content: str

    def default_text(self) -> str:
        return self.content

    @property
    def doc_id(self) -> str:
        return self.id

    query_id = doc_id


class Titled(NamedTuple):
    """A document with a title."""

    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class Judged(NamedTuple):
    """A judgement."""

    query_id: str
    doc_id: str
    relevance: float


class Part:
    """One data set of the package, with the methods that the loader calls."""

    def __init__(self, docs: Any = None, queries: Any = None, qrels: Any = None) -> None:
        for name, content in (("docs", docs), ("queries", queries), ("qrels", qrels)):
            setattr(self, f"has_{name}", lambda content=content: content is not None)
            setattr(self, f"{name}_iter", lambda content=content: iter(content))


DOCS = [Text("a", "A"), Titled("b", "Bee", "It flies to A."), Text("e", "")]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    """Data sets of the stand-in, by id."""
    queries = [Text("1", "one?"), Text("2", "two?"), Text("3", "three?")]
    parts = {
        "x": Part(DOCS),
        "x/train": Part(DOCS, queries, [Judged("2", "b", 2), Judged("1", "a", -1), Judged("2", "a", 0)]),
        "x/test": Part(DOCS, queries, [Judged("3", "a", 1), Judged("3", "a", 1), Judged("1", "b", 0.5)]),
    }
    module = ModuleType("ir_datasets")
    module.load = parts.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    return parts


def test_splits_of_their_own_ids(package: dict[str, Part], tmp_path: Path) -> None:
    splits = {"train": "x/train", "test": "x/test"}
    dataset = load_ir_dataset("x", splits=splits, folder=tmp_path)
    assert dataset.name == "x"
    assert list(dataset.graph.node_ids) == ["a", "b"]
    assert list(dataset.graph.texts) == ["A", "Bee. It flies to A."]
    assert dataset.graph.num_edges == 0
    train, test = dataset.split("train"), dataset.split("test")
    judged = {
        name: {(dataset.query_ids[q], dataset.graph.node_ids[n]): g for q, n, g in zip(*rows, strict=True)}
        for name, rows in (
            ("train", (train.query.tolist(), train.node.tolist(), train.gain.tolist())),
            ("test", (test.query.tolist(), test.node.tolist(), test.gain.tolist())),
        )
    }
    assert judged == {"train": {("2", "b"): 2}, "test": {("3", "a"): 1, ("1", "b"): 0.5}}
    one = load_ir_dataset("x/test", folder=tmp_path)
    assert (one.name, list(one.splits)) == ("x-test", ["test"])


def test_a_converted_data_set_is_read_again_without_the_package(package: dict[str, Part], tmp_path: Path) -> None:
    first = load_ir_dataset("x/test", folder=tmp_path)
    package.clear()
    again = load_ir_dataset("x/test", folder=tmp_path, mentions=True)
    assert list(again.graph.node_ids) == list(first.graph.node_ids)
    with pytest.raises(ValueError, match="`id` must be the id of a data set of ir_datasets"):
        load_ir_dataset("x/test", folder=tmp_path, splits={"test": "x/other"})  # another folder


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, r"`id` must be the id of a data set of ir_datasets, such as beir/scifact/test, got 'y'"),
        (Part(DOCS, [], None), r"with qrels, got 'y', which has none"),
        (
            Part([*DOCS, Text("a", "again")], [Text("1", "?")], [Judged("1", "a", 1)]),
            r"corpus.jsonl, line 4: expected unique",
        ),
        (Part(DOCS, [], [Judged("1", "a", 1)]), r"y: judgements must refer to queries .* got one of query '1'"),
        (Part(DOCS, [Text("1", "?")], [Judged("1", "z", 1)]), r"test.tsv, line 2: expected an id of the corpus .*'z'"),
        (Part(DOCS, [Text("1", " ")], [Judged("1", "a", 1)]), r"queries.jsonl, line 1: expected a `text`"),
        (Part(DOCS, [Text("1", "?")], [Judged("1", "a", 1), Judged("1", "a", 2)]), r"got 1 and 2 for query '1'"),
        (Part(DOCS, [Text("1", "?")], [Judged("1", "a", float("nan"))]), r"y: relevances must be finite, got nan"),
    ],
)
def test_bad_data_sets(package: dict[str, Part], part: Part | None, message: str, tmp_path: Path) -> None:
    package |= {} if part is None else {"y": part}
    with pytest.raises(ValueError, match=message):
        load_ir_dataset("y", folder=tmp_path)


def test_an_interrupted_conversion_leaves_no_folder(package: dict[str, Part], tmp_path: Path) -> None:
    def broken() -> Any:
        yield DOCS[0]
        raise KeyboardInterrupt

    package["y"] = Part(DOCS, [Text("1", "?")], [Judged("1", "a", 1)])
    package["y"].docs_iter = broken  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        load_ir_dataset("y", folder=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(ValueError, match=r"data=ir_datasets needs ir_datasets, .* 'graphrerank\[ir-datasets\]'"):
        load_ir_dataset("beir/scifact/test", folder=tmp_path)


def test_the_package_itself(tmp_path: Path) -> None:
    ir_datasets = pytest.importorskip("ir_datasets", reason="ir_datasets is optional")
    (tmp_path / "docs.tsv").write_text("a\tThe first.\nb\tThe second.\n")
    (tmp_path / "queries.tsv").write_text("1\twhich?\n")
    (tmp_path / "qrels").write_text("1 0 b 2\n1 0 a 0\n")
    ir_datasets.registry.register(
        "graphrerank-test",
        ir_datasets.create_dataset(
            docs_tsv=str(tmp_path / "docs.tsv"),
            queries_tsv=str(tmp_path / "queries.tsv"),
            qrels_trec=str(tmp_path / "qrels"),
        ),
    )
    dataset = load_ir_dataset("graphrerank-test", folder=tmp_path / "converted")
    assert list(dataset.graph.texts) == ["The first.", "The second."]
    assert dataset.split("test").node.tolist() == [1]
    assert dataset.split("test").gain.tolist() == [2]
