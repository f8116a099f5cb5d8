"""The corpus that a service searches."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graphrerank.cli.http_service import default_pipeline
from graphrerank.config.components import ComponentFactory
from graphrerank.config.yaml_components import (
    as_yaml,
    build_cached_encoder,
    build_from_yaml,
    build_pipeline,
    read_dataset,
)
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.models.manifest import read_manifest
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import scorer_of
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.serving.setup.corpus import load_corpus
from graphrerank.serving.setup.once_per_process import OncePerProcess
from tests.support.folders import write_dataset

PIPELINE = """
_target_: graphrerank.pipelines.pipeline.Pipeline
_partial_: true
budget: 6
steps:
  - _target_: graphrerank.pipelines.steps.VectorSearch
    _partial_: true
    retriever:
      _target_: graphrerank.operators.expand.HybridExpandRetriever
      _partial_: true
      base_k: 3
      num_seeds: 2
  - _target_: graphrerank.pipelines.steps.GraphRerank
    _partial_: true
    scorer:
      _target_: graphrerank.rerank.checkpoint_scorer.CheckpointScorer
      _partial_: true
      checkpoint: base
      device: cpu
"""
BM25_RETRIEVER = """
_target_: graphrerank.operators.bm25.BM25Retriever
_partial_: true
"""
WITHOUT_MODEL = partial(Pipeline, steps=[VectorSearch], budget=6, retriever=BM25Retriever)
CALIBRATIONS = [read_manifest(PRETRAINED / name).calibration for name in ("attack", "base")]
PASSAGES = ["red river", "red stone", "green river", "old stone bridge", "river bridge", "a red bridge", "metal", "ice"]


def test_a_corpus_folder_is_searched_as_its_data_set(tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "data",
        corpus=[{"_id": f"p{i}", "text": text} for i, text in enumerate(PASSAGES)],
        queries=[{"_id": "q", "text": "any"}],
        edges=[(f"p{i}", f"p{(i + 3) % 8}", "next") for i in range(8)],
        test=[("q", "p0")],
    )
    encoder = as_yaml({"_target_": "tests.support.encoders.HashEncoder", "dim": 16, "by_word": True})
    shared = OncePerProcess(partial(build_cached_encoder, encoder))
    make_pipeline = partial(build_pipeline, PIPELINE, BM25_RETRIEVER, checkpoint="attack")
    settings: dict[str, Any] = {
        "make_encoder": partial(build_from_yaml, encoder),
        "query_encoder": shared,
        "make_pipeline": make_pipeline,
        "compared": {"other": partial(build_pipeline, PIPELINE, BM25_RETRIEVER)},
        "cache": tmp_path,
    }
    prepare_corpus(
        Dataset.from_folder(folder), tmp_path / "corpus", encoder=build_from_yaml(encoder), vectors="float32"
    )
    readers = {
        folder: "graphrerank.data.dataset.Dataset.from_folder",
        tmp_path / "corpus": "graphrerank.corpus_store.opening.open_corpus",
    }
    answers, encoders = [], []
    for path, reader in readers.items():
        corpus = load_corpus(path, read_dataset=partial(read_dataset, as_yaml({"_target_": reader})), **settings)
        scorers = [scorer_of(pipeline.last_step) for pipeline in (corpus.pipeline, corpus.compared["other"])]
        assert [scorer.calibration for scorer in scorers] == CALIBRATIONS
        request = SearchRequest(query="red bridge over the river", top_n=6, return_documents=True)
        assert list(corpus.compared) == ["other"]
        answers.append(SearchEngine(lambda _, found=corpus: found, path).answer({"a": request})["a"].results)
        encoders.append(corpus.encoder)
    assert len(answers[0]) == 6
    assert answers[0] == answers[1]
    assert encoders[0] is encoders[1]  # loaded once in a worker, whichever engine asks
    assert shared() is encoders[0]


def test_a_corpus_without_vectors_is_searched_by_words_and_edges(tmp_path: Path) -> None:
    rows = [{"_id": "a", "text": "The red bridge over the river."}, {"_id": "b", "text": "Built in 1920."}]
    rows += [{"_id": f"p{i}", "text": f"Bread number {i}."} for i in range(80)]
    folder = write_dataset(tmp_path / "data", corpus=rows, queries=[], edges=[("a", "b", "next")])
    prepare_corpus(Dataset.from_folder(folder, splits={}), tmp_path / "corpus", encoder=None)
    parts = ComponentFactory()
    assert default_pipeline(has_encoder=True) == "expand_then_rerank"
    pipeline = as_yaml(parts.settings("pipeline", default_pipeline(has_encoder=False)))
    make_pipeline = partial(build_pipeline, pipeline, BM25_RETRIEVER, checkpoint="base")
    corpus = load_corpus(tmp_path / "corpus", make_pipeline=make_pipeline, cache=tmp_path)
    request = SearchRequest(query="red bridge", top_n=2)
    results = SearchEngine(lambda _: corpus, tmp_path).answer({"a": request})["a"].results
    assert {result.doc_id for result in results} == {"a", "b"}  # b has no word of the query


def test_the_language_of_an_index(tmp_path: Path) -> None:
    rows = [{"_id": f"p{i}", "text": text} for i, text in enumerate(PASSAGES)]
    folder = write_dataset(tmp_path / "data", corpus=rows, queries=[{"_id": "q", "text": "any"}], test=[("q", "p0")])
    prepare_corpus(Dataset.from_folder(folder, language="finnish"), tmp_path / "corpus", encoder=None)
    load = partial(load_corpus, make_pipeline=WITHOUT_MODEL, cache=tmp_path)
    used = [
        load(path, language=language).graph.passages.language
        for path, language in (
            (folder, "auto"),
            (folder, "german"),
            (tmp_path / "corpus", "auto"),
            (tmp_path / "corpus", "finnish"),
        )
    ]
    assert used == ["english", "german", "finnish", "finnish"]
    with pytest.raises(
        ValueError, match=r"`language` must be auto or finnish, the language in which .*corpus was prepared"
    ):
        load(tmp_path / "corpus", language="german")


def test_a_corpus_folder_without_principals_is_refused_where_callers_have_some(tmp_path: Path) -> None:
    rows = [{"_id": "p", "text": "a river", "metadata": {"principals": ["hr"]}}]
    folder = write_dataset(tmp_path / "data", corpus=rows, queries=[])
    prepare_corpus(Dataset.from_folder(folder, splits={}), tmp_path / "corpus", encoder=None)
    manifest = json.loads((tmp_path / "corpus" / "corpus.json").read_text())
    manifest["columns"] = {name: of for name, of in manifest["columns"].items() if not name.startswith("metadata")}
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="was prepared by an older version, which did not store principals"):
        load_corpus(
            tmp_path / "corpus",
            make_pipeline=WITHOUT_MODEL,
            cache=tmp_path,
            permissions=PermissionSettings(header="X-Principals"),
        )
