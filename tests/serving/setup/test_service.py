"""A service that is set up from plain arguments."""

import pickle
from functools import partial
from pathlib import Path

import pytest

from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.app import create_app
from graphrerank.serving.batching import Batcher
from graphrerank.serving.feedback_log import FeedbackSettings
from graphrerank.serving.server import Service, load_engines
from graphrerank.serving.settings import PageSettings, ServiceSettings
from graphrerank.serving.setup.corpus import load_corpus
from graphrerank.serving.setup.service import (
    IndexedCorpus,
    RerankerLoading,
    ServedArtifacts,
    rerank_service,
)
from tests.support.client import TestClient
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset

BASE, ATTACK = PRETRAINED / "base", PRETRAINED / "attack"
ENCODER = partial(HashEncoder, dim=16, by_word=True)
RERANKING = partial(
    Pipeline,
    steps=[
        partial(VectorSearch, retriever=HybridRetriever),
        partial(GraphRerank, scorer=partial(CheckpointScorer, device="cpu")),
    ],
    budget=4,
)
SEARCHING = partial(Pipeline, steps=[VectorSearch], budget=4, retriever=BM25Retriever)
PASSAGES = ["red river", "red stone", "green river", "old stone bridge"]


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("setup")
    rows = [{"_id": f"p{number}", "text": text} for number, text in enumerate(PASSAGES)]
    dataset = write_dataset(folder / "data", corpus=rows, queries=[], edges=[("p0", "p3", "next")])
    prepare_corpus(Dataset.from_folder(dataset, splits={}), folder / "corpus", encoder=ENCODER(), vectors="float32")
    return folder / "corpus"


def index(folder: Path, cache: Path, pipeline: partial[Pipeline] = RERANKING, *, takes_documents: bool = True):
    make_pipeline = partial(pipeline, checkpoint=str(BASE))
    load = partial(load_corpus, make_pipeline=make_pipeline, make_encoder=ENCODER, cache=cache)
    return IndexedCorpus(folder, load, ENCODER, takes_documents=takes_documents)


def client_of(service: Service) -> TestClient:
    """Build the engines of a service as a worker does, from a pickle, and answer by them in this process."""
    service = pickle.loads(pickle.dumps(service))
    engines = load_engines(service.factories, service.settings.num_threads)
    batcher = Batcher(engines, service.settings.limits)
    app = create_app(service.routes, batcher, service.settings, info=service.info)
    return TestClient(app, base_url="http://localhost:8000")


def paths(service: Service) -> list[str]:
    return [f"{route.method} {path}" for route in service.routes for path in route.paths]


def test_documents_of_requests_are_reranked(tmp_path: Path) -> None:
    service = rerank_service(ServedArtifacts(BASE), ServiceSettings(), loading=RerankerLoading(ENCODER))
    assert paths(service) == [
        *("POST /v1/rerank", "POST /v2/rerank", "POST /rerank"),
        *("POST /infinity/rerank", "POST /voyage/v1/rerank"),
    ]
    body = {"query": "a red river", "documents": PASSAGES, "edges": [[0, 3]]}
    answer = client_of(service).post("/v2/rerank", json=body).json()
    assert answer["results"][0]["index"] == 0
    assert answer["meta"]["model"] == service.info["name"]


def test_each_setting_adds_its_routes_and_engines(corpus_folder: Path, tmp_path: Path) -> None:
    settings = ServiceSettings(page=PageSettings("base"), feedback=FeedbackSettings(path=str(tmp_path / "log")))
    service = rerank_service(ServedArtifacts(BASE, shadow=ATTACK), settings, index=index(corpus_folder, tmp_path))
    assert paths(service)[5:] == [
        *("POST /feedback", "DELETE /feedback", "POST /search", "POST /inspect"),
        *("POST /documents", "DELETE /documents"),
    ]
    assert list(service.factories) == [
        *("rerank", "shadow of rerank", "feedback", "search", "shadow of search", "inspect", "documents"),
    ]
    fixed = rerank_service(
        ServedArtifacts(BASE), ServiceSettings(), index=index(corpus_folder, tmp_path, takes_documents=False)
    )
    assert list(fixed.factories) == ["rerank", "search"]


def test_a_corpus_is_searched_by_the_artifact_and_loaded_once(corpus_folder: Path, tmp_path: Path) -> None:
    settings = ServiceSettings(page=PageSettings("base"))
    service = rerank_service(
        ServedArtifacts(BASE), settings, loading=RerankerLoading(ENCODER), index=index(corpus_folder, tmp_path)
    )
    client = client_of(service)
    found = client.post("/search", json={"query": "a red river"}).json()["results"]
    assert found[0]["doc_id"] == "p0"
    inspected = client.post("/inspect", json={"query": "a red river", "record": True}).json()
    ranking = inspected["rankings"][-1]
    assert [inspected["nodes"][node]["doc_id"] for node in ranking["nodes"]] == [each["doc_id"] for each in found]

    live, make_inspection = pickle.loads(pickle.dumps([service.factories[kind] for kind in ("search", "inspect")]))
    assert make_inspection()._search is live().live.search


def test_interleaving_needs_a_log() -> None:
    with pytest.raises(ValueError, match=r"`feedback.path` must be set if `interleave` is set"):
        rerank_service(ServedArtifacts(BASE, rival=ATTACK), ServiceSettings())


def test_artifacts_are_compared_by_pipelines_that_end_with_them(corpus_folder: Path, tmp_path: Path) -> None:
    corpus = index(corpus_folder, tmp_path, SEARCHING)
    alone = rerank_service(ServedArtifacts(BASE), ServiceSettings(), index=corpus)
    assert alone.factories["search"]().live.scorer is None
    compared = rerank_service(ServedArtifacts(BASE, shadow=ATTACK), ServiceSettings(), index=corpus)
    with pytest.raises(ValueError, match="require a `pipeline` whose last step is the artifact's reranker"):
        compared.factories["search"]()
