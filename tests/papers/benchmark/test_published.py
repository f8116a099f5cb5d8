"""The file of published rows."""

import json
from pathlib import Path

import pytest

from graphrerank_papers.benchmark.published import OURS, read_published

ROW = {"method": "M", "source": "S", "embedder": "E", "language_model": "L", "R@5": {"musique": 50.0}}


def test_ours_names_a_source_and_an_embedder_for_every_row() -> None:
    rows = read_published(OURS)
    assert {row.method for row in rows} == {"HippoRAG 2", "PropRAG", "BridgeRAG", "GFM-RAG"}
    assert all(row.source and row.embedder for row in rows)
    assert [row.recall["musique"] for row in rows if "musique" in row.recall] == [74.7, 78.3, 81.5, 59.3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "needed a JSON list of published rows"),
        ("{}", "needed a JSON list of published rows, got dict"),
        (json.dumps([ROW, {**ROW, "R@5": {"musique": "many"}}]), "row 2: `recall`: .* got 'many'"),
        (json.dumps([{**ROW, "R@5": {"musique": 101}}]), "row 1: `R@5` must be in percent, got 101"),
        (json.dumps([{"method": "M"}]), "row 1: needed the keys"),
    ],
)
def test_another_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "published.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_published(file)
