import time
from functools import partial

import pytest
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.operators import BM25Retriever
from graphrerank.pipelines import Pipeline, VectorSearch
from graphrerank.serving.search_engine import SearchableCorpus, SearchEngine, SearchRequest, corpus_version


def load(folder):
    texts = (folder / "corpus.txt").read_text().splitlines()
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(len(texts))], texts, torch.zeros(0, 2))
    pipeline = Pipeline(graph, steps=[partial(VectorSearch, retriever=partial(BM25Retriever))], budget=3)
    return SearchableCorpus(graph, pipeline, None)


def ask(engine, query, **fields):
    return engine.answer({"a": SearchRequest(query=query, **fields)})["a"].model_dump(exclude_none=True)


@pytest.fixture
def folder(tmp_path):
    for name, lines in (("one", "red apple\ngreen pear\nred pear"), ("two", "blue plum\nred plum")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.txt").write_text(lines)
    (tmp_path / "now").symlink_to(tmp_path / "one")
    return tmp_path


def test_a_batch_of_searches(folder):
    engine = SearchEngine(load, folder / "now")
    engine.warm_up()
    answers = engine.answer({"a": SearchRequest(query="apple", top_n=1), "b": SearchRequest(query="green")})
    first, second = (answers[uid].model_dump(exclude_none=True) for uid in "ab")
    assert [one["doc_id"] for one in first["results"]] == ["d0"]
    assert second["results"][0]["doc_id"] == "d1"
    assert "document" not in second["results"][0]
    assert first["meta"] == second["meta"] == {"index": corpus_version(folder / "one")}
    assert ask(engine, "apple", return_documents=True)["results"][0]["document"] == {"text": "red apple"}


def wait_for(engine, version):
    for _ in range(500):
        if ask(engine, "red")["meta"]["index"] == version:
            return
        time.sleep(0.01)
    raise AssertionError("the corpus was not taken over")


def test_a_new_corpus_takes_the_place_of_the_old_one(folder, caplog):
    engine = SearchEngine(load, folder / "now", look_seconds=0.02)
    other = folder / "next"
    other.symlink_to(folder / "two")
    other.replace(folder / "now")  # as one step
    wait_for(engine, corpus_version(folder / "two"))
    assert ask(engine, "plum")["results"][0]["doc_id"] in ("d0", "d1")
    (folder / "two" / "corpus.txt").unlink()  # what cannot be loaded leaves the old one
    (folder / "two" / "corpus.csv").write_text("red plum")
    time.sleep(0.2)
    assert ask(engine, "blue")["results"][0]["doc_id"] == "d0"
    assert "corpus could not be loaded" in caplog.text
    (folder / "two" / "corpus.txt").write_text("white plum")
    wait_for(engine, corpus_version(folder / "two"))
    assert len(ask(engine, "plum")["results"]) == 1


def test_the_first_corpus_must_be_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        SearchEngine(load, tmp_path)
