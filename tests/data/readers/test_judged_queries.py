from itertools import chain
from pathlib import Path

import pytest

from graphrerank.data import load_folder
from graphrerank.data.readers.auto_splits import divide_queries
from tests.support.folders import write_dataset

TEXTS = [f"What does {name} number {i * i} do?" for i, name in enumerate(["Ada", "Bo", "Cy", "Di", "Ed"] * 12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [(f"q{i}", f"p{i // 4}") for i in range(50)]
    return write_dataset(
        tmp_path / "mine",
        corpus=[{"_id": f"p{i}", "text": f"passage {i}"} for i in range(20)],
        queries=[{"_id": f"q{i}", "text": text, "metadata": {"answer": str(i)}} for i, text in enumerate(TEXTS)],
        train=rows[:20],
        other=rows[20:],
    )


def test_auto_divides_the_judged_queries_of_all_files(folder: Path) -> None:
    dataset = load_folder(folder, splits="auto")
    assert list(dataset.query_texts) == TEXTS[:50]
    expected = divide_queries(TEXTS[:50])
    assert list(dataset.splits) == ["train", "val", "test"]
    for name, qrels in dataset.splits.items():
        assert qrels.queries.tolist() == [i for i, split in enumerate(expected) if split == name]
        assert qrels.node.tolist() == [query // 4 for query in qrels.query.tolist()]
    assert dataset.answers["q3"] == ["3"]
    assert load_folder(folder, splits="auto").fingerprint == dataset.fingerprint


def test_auto_documents_keeps_the_queries_of_a_document_together(folder: Path) -> None:
    dataset = load_folder(folder, splits="auto_documents")
    nodes = [set(qrels.node.tolist()) for qrels in dataset.splits.values()]
    assert sum(map(len, nodes)) == len(set(chain(*nodes))) == 13
    assert dataset.fingerprint != load_folder(folder, splits="auto").fingerprint
