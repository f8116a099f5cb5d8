import json
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.artifacts.artifact import fastest_format, model_info
from graphrerank.cli.http_service import (
    load_corpus,
    page_settings,
    shared_encoder,
)
from graphrerank.corpus.edge_types import EDGE_TYPES, edge_type_of
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.models.manifest import parse_manifest, read_manifest
from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.serving.settings import PageSettings
from tests.support import ROOT
from tests.support.folders import write_dataset


def test_machine_code_is_served_where_there_is_any(tmp_path: Path) -> None:
    content = read_manifest(ROOT / "src" / "graphrerank" / "pretrained" / "attack").content
    files = {"model.pt": "0" * 64, "model.aot.pt2": "0" * 64}
    both = parse_manifest({**content, "artifact": {**content.get("artifact", {}), "sha256": files}}, "somewhere")
    plain = parse_manifest(
        {**content, "artifact": {**content.get("artifact", {}), "sha256": {"model.pt": "0" * 64}}}, "x"
    )
    assert fastest_format(both, "cpu") == "aot"
    assert fastest_format(both, "cuda") is None
    assert fastest_format(plain, "cpu") is None


def test_what_is_said_of_types_of_edges() -> None:
    content = read_manifest(ROOT / "src" / "graphrerank" / "pretrained" / "attack").content
    typed = {**content, "model": {**content["model"], "arguments": {"num_edge_types": 5}}}
    for manifest, are_read in ((parse_manifest(content, "a"), False), (parse_manifest(typed, "b"), True)):
        info = model_info(manifest)
        assert info["name"] == content["name"]
        assert info["edge_types"]["are_read"] is are_read
        names = info["edge_types"]["names"]
        assert list(names) == ["reference", "entity", "adjacency", "similarity", "other"]
        assert {EDGE_TYPES[edge_type_of(name)] for name in names["reference"]} == {"reference"}
        assert names["other"] == ["other"]


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
BM25 = """
_target_: graphrerank.pipelines.pipeline.Pipeline
_partial_: true
budget: 6
steps: [{_target_: graphrerank.pipelines.steps.VectorSearch, _partial_: true}]
"""
PASSAGES = ["red river", "red stone", "green river", "old stone bridge", "river bridge", "a red bridge", "metal", "ice"]


def test_a_corpus_folder_is_searched_as_its_data_set(tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "data",
        corpus=[{"_id": f"p{i}", "text": text} for i, text in enumerate(PASSAGES)],
        queries=[{"_id": "q", "text": "any"}],
        edges=[(f"p{i}", f"p{(i + 3) % 8}", "next") for i in range(8)],
        test=[("q", "p0")],
    )
    encoder = OmegaConf.create({"_target_": "tests.support.encoders.HashEncoder", "dim": 16, "by_word": True})
    settings = {
        "encoder": encoder,
        "retriever": OmegaConf.create({"_target_": "graphrerank.operators.bm25.BM25Retriever", "_partial_": True}),
        "pipeline": OmegaConf.create(PIPELINE),
        "compared": {"other": OmegaConf.create(PIPELINE)},
        "cache": tmp_path,
        "device": "cpu",
    }
    prepare_corpus(Dataset.from_folder(folder), tmp_path / "corpus", encoder=instantiate(encoder), vectors="float32")
    readers = {
        folder: "graphrerank.data.dataset.Dataset.from_folder",
        tmp_path / "corpus": "graphrerank.corpus_store.opening.open_corpus",
    }
    answers, encoders = [], []
    for path, reader in readers.items():
        corpus = load_corpus(path, data=OmegaConf.create({"_target_": reader}), **settings)
        request = SearchRequest(query="red bridge over the river", top_n=6, return_documents=True)
        assert list(corpus.compared) == ["other"]
        answers.append(SearchEngine(lambda _, found=corpus: found, path).answer({"a": request})["a"].results)
        encoders.append(corpus.encoder)
    assert len(answers[0]) == 6
    assert answers[0] == answers[1]
    assert encoders[0] is encoders[1]  # loaded once in a worker, whichever engine asks
    assert shared_encoder(OmegaConf.to_yaml(encoder, resolve=True)) is encoders[0]


def test_the_language_of_an_index(tmp_path: Path) -> None:
    rows = [{"_id": f"p{i}", "text": text} for i, text in enumerate(PASSAGES)]
    folder = write_dataset(tmp_path / "data", corpus=rows, queries=[{"_id": "q", "text": "any"}], test=[("q", "p0")])
    prepare_corpus(Dataset.from_folder(folder, language="finnish"), tmp_path / "corpus", encoder=None)
    reads = OmegaConf.create({"_target_": "graphrerank.data.dataset.Dataset.from_folder", "language": "auto"})
    opens = OmegaConf.create({"_target_": "graphrerank.corpus_store.opening.open_corpus"})
    settings: dict[str, Any] = {
        "encoder": None,
        "retriever": OmegaConf.create({"_target_": "graphrerank.operators.bm25.BM25Retriever", "_partial_": True}),
        "pipeline": OmegaConf.create(BM25),
        "compared": {},
        "cache": tmp_path,
        "device": "cpu",
    }
    used = [
        load_corpus(path, data=data, language=language, **settings).graph.passages.language
        for path, data, language in (
            (folder, reads, "auto"),
            (folder, reads, "german"),
            (tmp_path / "corpus", opens, "auto"),
            (tmp_path / "corpus", opens, "finnish"),
        )
    ]
    assert used == ["english", "german", "finnish", "finnish"]
    with pytest.raises(ValueError, match=r"`language` must be auto or finnish, in which .*corpus was prepared"):
        load_corpus(tmp_path / "corpus", data=opens, language="german", **settings)


def test_a_corpus_folder_without_principals_is_refused_where_callers_have_some(tmp_path: Path) -> None:
    rows = [{"_id": "p", "text": "a river", "metadata": {"principals": ["hr"]}}]
    folder = write_dataset(tmp_path / "data", corpus=rows, queries=[])
    prepare_corpus(Dataset.from_folder(folder, splits={}), tmp_path / "corpus", encoder=None)
    manifest = json.loads((tmp_path / "corpus" / "corpus.json").read_text())
    manifest["columns"] = {name: of for name, of in manifest["columns"].items() if not name.startswith("metadata")}
    (tmp_path / "corpus" / "corpus.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="of an older version, which kept no principals; prepare it again"):
        load_corpus(
            tmp_path / "corpus",
            data=OmegaConf.create({"_target_": "graphrerank.corpus_store.opening.open_corpus"}),
            encoder=None,
            retriever=OmegaConf.create({}),
            pipeline=OmegaConf.create(BM25),
            compared={},
            cache=tmp_path,
            device="cpu",
            permissions=PermissionSettings(header="X-Principals"),
        )


def test_the_page_offers_questions_of_the_corpus(tmp_path: Path) -> None:
    questions = [f"question {number}" for number in range(9)]
    records = [{"_id": f"q{number}", "text": text} for number, text in enumerate(questions)]
    folder = write_dataset(tmp_path / "data", corpus=[{"_id": "p", "text": "a"}], queries=records)
    chosen = OmegaConf.create({"page": True, "index": str(folder), "artifact": "runs/mine"})
    assert page_settings(chosen) == PageSettings("mine", searches=True, questions=questions[:4])
    assert page_settings(OmegaConf.create({"page": True, "index": None, "artifact": "base"})) == PageSettings("base")
    assert page_settings(OmegaConf.create({"page": False, "index": str(folder)})) is None
