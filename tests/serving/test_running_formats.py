"""What serves over HTTP, whatever its format and wherever its weights came from, ranks alike."""

import shutil
from dataclasses import replace

import httpx
import pytest

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.serving.export import export_artifact
from graphrerank.serving.formats import COMPILERS, FORMATS
from tests.serving.conftest import TYPED
from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

BODY = {
    "query": "spreads by removable media",
    "documents": ["a cake", "malware on removable media", "infected media spread it", "a dog"],
    "edges": [[1, 2], [2, 3]],
}


TYPES = (("reference", "entity"), ("similarity", "adjacency"))  # of its edges


def ranked(service, body=BODY) -> tuple[list[int], list[float]]:
    response = httpx.post(f"{service.url}/v2/rerank", json=body, timeout=60)
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    return [result["index"] for result in results], [result["relevance_score"] for result in results]


def test_every_format_ranks_alike_over_http(make_checkpoint, tmp_path):
    """By types of edges too, machine code among them."""
    pytest.importorskip("onnxruntime", reason="onnx is optional")
    compiler = any(map(shutil.which, COMPILERS))
    formats = [name for name in FORMATS if compiler or name != "aot"]
    checkpoint = make_checkpoint(features="scores", **TYPED)
    calibration = {"method": "logistic", "slope": 1.5, "intercept": -0.5}
    checkpoint = replace(checkpoint, manifest=checkpoint.manifest.with_entries(calibration=calibration))
    folder = export_artifact(checkpoint, tmp_path / "artifact", formats, num_batches=20)
    reranker, pairs = GraphReranker(checkpoint), BODY["edges"]
    expected = [reranker.rerank(BODY["query"], BODY["documents"], edges=pairs, edge_types=types) for types in TYPES]
    highest = [max(ranking.probabilities.tolist()) for ranking in expected]
    assert abs(highest[0] - highest[1]) > 1e-3
    for name in formats:
        with running(tmp_path, f"artifact={folder}", "encoder=none", f"format={name}") as service:
            for types, ranking in zip(TYPES, expected, strict=True):
                edges = [[*pair, 1.0, one] for pair, one in zip(pairs, types, strict=True)]
                order, scores = ranked(service, BODY | {"edges": edges})
                assert order == list(ranking.ids), name
                assert scores == pytest.approx(ranking.probabilities.tolist(), abs=1e-5), name


def test_a_model_of_the_hub_is_served_without_a_program_of_its_own(tmp_path):
    """The hub's own client and its cache, without a network."""
    repository = tmp_path / "hub" / "models--someone--reranker"
    there = shutil.copytree(PRETRAINED / "attack", repository / "snapshots" / ("c" * 40))
    (there / "model.pt").write_bytes(b"an untrusted program")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c" * 40)
    environment = {
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "GRAPHRERANK_CACHE": str(tmp_path / "cache"),
    }
    expected = GraphReranker.from_pretrained("attack").rerank(BODY["query"], BODY["documents"], edges=BODY["edges"])
    with running(tmp_path, "artifact=someone/reranker", "encoder=none", environment=environment) as service:
        order, scores = ranked(service)
    assert order == list(expected.ids)
    assert scores == pytest.approx(expected.probabilities.tolist(), abs=1e-5)
