from pathlib import Path
from typing import Any

import pytest

from graphrerank.graphs import CorpusGraph
from graphrerank.operators.lance_store import LanceStore
from graphrerank.operators.vector_store import fill_store
from tests.operators.stores import DIM, corpus

pytest.importorskip("lancedb")


def store(folder: Path, **settings: Any) -> LanceStore:
    defaults: dict[str, Any] = {"content": "x", "num_nodes": 130, "dim": DIM, "half": False, "index": "flat"}
    return LanceStore(folder, **defaults | {"num_probes": 16, "full_text": True} | settings)


def filled(folder: Path, graph: CorpusGraph, **settings: Any) -> LanceStore:
    made = store(folder, **settings)
    with made.alone():
        fill_store(made, graph, batch=40)
    return made


@pytest.mark.parametrize("settings", [{"content": "y"}, {"dim": 4}, {"half": True}])
def test_a_table_of_another_corpus_or_encoder_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    filled(tmp_path, corpus(130))
    with pytest.raises(ValueError, match=f"{tmp_path}: holds another corpus, or vectors of another encoder"):
        store(tmp_path, **settings).count()


def test_somebody_elses_table_is_refused(tmp_path: Path) -> None:
    import lancedb

    lancedb.connect(tmp_path).create_table("passages", [{"text": "a", "vector": [1.0] * DIM}])
    with pytest.raises(ValueError, match="holds another corpus"):
        store(tmp_path).count()


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    filled(tmp_path, corpus(130))
    for file in (tmp_path / "passages.lance" / "_versions").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(ValueError, match=f"{tmp_path}: LanceDB cannot read or write the table"):
        store(tmp_path).count()


def test_a_stopped_filling_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, add, starts = corpus(130), LanceStore.add, []

    def stops(self: LanceStore, start: int, *rest: Any) -> None:
        starts.append(start)
        if len(starts) == 3:
            raise KeyboardInterrupt
        add(self, start, *rest)

    monkeypatch.setattr(LanceStore, "add", stops)
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path, graph)
    assert not store(tmp_path).is_finished
    made = filled(tmp_path, graph)
    assert starts == [0, 40, 80, 80, 120]
    assert made.is_finished
    nodes, _ = made.search_texts(["number129"], 5)
    assert nodes.tolist() == [[129, -1, -1, -1, -1]]


def test_one_that_is_complete_is_not_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, corpus(130))
    monkeypatch.setattr(LanceStore, "add", None)
    assert filled(tmp_path, corpus(130)).count() == 130


def test_more_passages_than_the_corpus_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, corpus(130))
    with pytest.raises(ValueError, match="needed the 120 passages of the corpus, found 130"):
        filled(tmp_path, corpus(120))


def test_a_lone_surrogate_is_stored(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.add(0, ["a"], ["harbour \ud800"], corpus(1).encoded.numpy())
    made.finish()
    assert made.search_texts(["harbour"], 1)[0].tolist() == [[0]]
