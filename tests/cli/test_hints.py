from pathlib import Path

import pytest

from graphrerank.cli.hints import expansion_hints
from graphrerank.data.dataset import Dataset
from tests.support.folders import write_dataset

EXPAND = {"_target_": "graphrerank.operators.hybrid_expand.HybridExpandRetriever"}


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
    assert list(expansion_hints(Dataset.from_folder(folder), settings, {"_target_": "x.HybridRetriever"})) == []
    (folder / "edges.tsv").write_text("a\tb\tnext\n")
    assert list(expansion_hints(Dataset.from_folder(folder), settings, EXPAND)) == []
    assert list(expansion_hints(Dataset.from_folder(folder, edges="auto"), settings, EXPAND)) == []
