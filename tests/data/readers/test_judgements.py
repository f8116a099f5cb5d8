from itertools import chain
from pathlib import Path

import pytest

from graphrerank.data.dataset import Dataset
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
    dataset = Dataset.from_folder(folder, splits="auto")
    assert list(dataset.query_texts) == TEXTS[:50]
    expected = divide_queries(TEXTS[:50])
    assert list(dataset.splits) == ["train", "val", "test"]
    for name, qrels in dataset.splits.items():
        assert qrels.queries.tolist() == [i for i, split in enumerate(expected) if split == name]
        assert qrels.node.tolist() == [query // 4 for query in qrels.query.tolist()]
    assert dataset.answers["q3"] == ["3"]
    assert Dataset.from_folder(folder, splits="auto").fingerprint == dataset.fingerprint


def test_auto_documents_keeps_the_queries_of_a_document_together(folder: Path) -> None:
    dataset = Dataset.from_folder(folder, splits="auto_documents")
    nodes = [set(qrels.node.tolist()) for qrels in dataset.splits.values()]
    assert sum(map(len, nodes)) == len(set(chain(*nodes))) == 13
    assert dataset.fingerprint != Dataset.from_folder(folder, splits="auto").fingerprint


CSV = (
    'query-id,corpus-id,score,query,text\nq0,p0,1,"Which, one?","two\nlines"\nq0,p1,0,,\nq1,p2,,,not judged\n'
    "q2,p3,2,,\n"
)


@pytest.mark.parametrize("text", [CSV, "\ufeff" + CSV.replace("\n", "\r\n"), CSV.replace(",", ";")])
def test_a_judged_pool(folder: Path, text: str) -> None:
    for path in (folder / "qrels").iterdir():
        path.unlink()
    (folder / "qrels" / "test.csv").write_text(text, encoding="utf-8", newline="")
    qrels = Dataset.from_folder(folder).splits["test"]
    assert list(zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True)) == [
        (0, 0, 1.0),
        (2, 3, 2.0),
    ]


def test_a_pool_with_errors_names_the_line(folder: Path) -> None:
    path = folder / "qrels" / "pool.csv"
    for text, message in (
        (CSV.replace("p3", "none"), r"pool\.csv, line 6: needed a corpus-id of the corpus, found 'none'"),
        (CSV.replace("p3,2", "p3,yes"), r"pool\.csv, line 6: needed a score of 0 or more, found 'yes'"),
        (CSV.replace("score", "grade"), r"pool\.csv, line 1: needed the header 'query-id corpus-id score'"),
        (CSV.splitlines()[0], r"pool\.csv: needed a score above 0 in at least one row"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Dataset.from_folder(folder)
    path.unlink()
    (folder / "qrels" / "train.csv").write_text(CSV, encoding="utf-8")
    with pytest.raises(ValueError, match=r"train\.tsv: needed one file of a split, found train\.csv too"):
        Dataset.from_folder(folder)
