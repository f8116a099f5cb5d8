from functools import partial
from pathlib import Path

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.hints import expansion_hints
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.parts import Parts
from tests.support.folders import write_dataset

EXPAND = partial(HybridExpandRetriever, top_k=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passages = [{"_id": "a", "title": "", "text": "one"}, {"_id": "b", "title": "", "text": "two"}]
    return write_dataset(
        tmp_path / "plain", corpus=passages, queries=[{"_id": "q", "text": "which?"}], test=[("q", "a")]
    )


def test_a_corpus_without_edges_names_the_files_that_lie_unread(folder: Path) -> None:
    (folder / "edges.tsv").unlink(missing_ok=True)
    settings = {"path": str(folder), "edges": None, "entities": None}
    (hint,) = expansion_hints(Dataset.from_folder(folder), settings, EXPAND)
    assert "plain has no edges to expand along: data.edges=auto" in hint
    (folder / "edges_cites.tsv").write_text("a\tb\tcites\n")
    (folder / "entities.jsonl").write_text('{"_id": "a", "entities": ["Rome"]}\n')
    (hint,) = expansion_hints(Dataset.from_folder(folder), settings, EXPAND)
    assert "edges_cites.tsv lies beside it (data.edges=[edges_cites.tsv])" in hint
    assert "entities.jsonl lies beside it (data.entities=file)" in hint


def test_no_hint_where_nothing_is_amiss(folder: Path) -> None:
    settings = {"path": str(folder)}
    assert list(expansion_hints(Dataset.from_folder(folder), settings, partial(HybridRetriever, top_k=5))) == []
    (folder / "edges.tsv").write_text("a\tb\tnext\n")
    assert list(expansion_hints(Dataset.from_folder(folder), settings, EXPAND)) == []
    assert list(expansion_hints(Dataset.from_folder(folder, edges="auto"), settings, EXPAND)) == []


def test_loading_a_data_set_prints_the_hint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Parts().load(str(folder), encoder=None, retriever=partial(BM25Retriever, top_k=2), reads_vectors=False)
    assert capsys.readouterr().err == ""
    expanding = partial(ExpandRetriever, base=partial(BM25Retriever, top_k=2), similarity_weight=0)
    Parts().load(str(folder), encoder=None, retriever=expanding, reads_vectors=False)
    assert "hint: plain has no edges to expand along" in capsys.readouterr().err
