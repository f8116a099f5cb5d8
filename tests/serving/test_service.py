import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.operators import BM25, HybridExpandRetriever
from graphrerank.serving import RerankService, create_app, export_artifact, load_artifact, serve_http, service

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

QUERY = "who wrote the red book"
DOCUMENTS = ["the red book", "a green pear", "who is who", "the author wrote it", "the red book", ""]
EDGES = [[3, 0], [3, 4, 2.5], [1, 2], [0, 3, 1]]
BODY = {"query": QUERY, "documents": DOCUMENTS}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory, make_checkpoint):
    folder = tmp_path_factory.mktemp("service") / "artifact"
    return load_artifact(export_artifact(make_checkpoint(edge_features=True), folder))


@pytest.fixture(scope="module")
def reranker(artifact, encoder):
    return RerankService(artifact, encoder)


@pytest.fixture(scope="module")
def client(reranker):
    return TestClient(create_app(reranker), raise_server_exceptions=False)


def by_index(results):
    return torch.tensor([r["score"] for r in sorted(results, key=lambda r: r["index"])])


@pytest.mark.parametrize("features", ["scores", "paper", "full"])
@pytest.mark.parametrize("scores", [None, [0.5, 3.0, -1.0, 0.5, 0.0, 2.0]])
def test_against_eager_by_hand(tmp_path, make_checkpoint, encoder, features, scores):
    checkpoint = make_checkpoint(features=features, edge_features=True)
    reranker = RerankService(load_artifact(export_artifact(checkpoint, tmp_path / "artifact")), encoder)
    query, nodes = encoder.encode([QUERY]), encoder.encode(DOCUMENTS)
    bm25 = BM25(DOCUMENTS).score_all([QUERY])[0]
    bm25, dense = bm25 / bm25.max(), nodes @ query[0]
    base = 0.4 * bm25 + 0.6 * dense if scores is None else torch.tensor(scores)
    edge_index = torch.tensor([[3, 0, 3, 4, 1, 2], [0, 3, 4, 3, 2, 1]])
    edge_weight = torch.tensor([1.0, 1.0, 2.5, 2.5, 1.0, 1.0])
    x = torch.stack([base, bm25, dense], dim=1)
    expected = checkpoint.model(x, query, nodes, edge_index, edge_weight, torch.tensor([0, 6]))

    results = reranker.rerank(QUERY, DOCUMENTS, EDGES, scores)
    torch.testing.assert_close(by_index(results), expected, rtol=0, atol=1e-5)
    order = [r["index"] for r in results]
    assert order == sorted(range(6), key=lambda i: (-by_index(results)[i].item(), i))


def test_answer_over_http(client, reranker):
    response = client.post("/rerank", json={**BODY, "edges": EDGES, "top_n": 2})
    assert response.status_code == 200
    assert response.json() == {"results": reranker.rerank(QUERY, DOCUMENTS, EDGES, top_n=2), "model": "test-model"}
    assert len(response.json()["results"]) == 2
    everything = reranker.rerank(QUERY, DOCUMENTS, EDGES, top_n=50)
    assert sorted(r["index"] for r in everything) == list(range(6))
    assert everything[:2] == response.json()["results"]
    assert client.get("/health").json() == {"status": "ok", "model": "test-model"}


def test_edges_change_the_answer(reranker):
    without = by_index(reranker.rerank(QUERY, DOCUMENTS))
    assert torch.equal(without, by_index(reranker.rerank(QUERY, DOCUMENTS, [])))
    touched = (by_index(reranker.rerank(QUERY, DOCUMENTS, [[0, 3]])) - without).abs() > 1e-4
    assert touched.tolist() == [True, False, False, True, False, False]
    lighter = by_index(reranker.rerank(QUERY, DOCUMENTS, [[0, 3, 0.5]]))
    assert not torch.allclose(lighter, by_index(reranker.rerank(QUERY, DOCUMENTS, [[3, 0, 2]])))


def test_scores_change_the_answer(reranker):
    given = by_index(reranker.rerank(QUERY, DOCUMENTS, scores=[5, 4, 3, 2, 1, 0]))
    assert not torch.allclose(given, by_index(reranker.rerank(QUERY, DOCUMENTS)))


def test_ties_by_index_and_a_single_document(tmp_path, make_checkpoint, encoder):
    checkpoint = make_checkpoint(features="paper")
    torch.nn.init.zeros_(checkpoint.model.lin_out.weight)  # every score is the bias
    reranker = RerankService(load_artifact(export_artifact(checkpoint, tmp_path / "artifact")), encoder)
    assert [r["index"] for r in reranker.rerank(QUERY, DOCUMENTS, EDGES)] == list(range(6))
    assert [r["index"] for r in reranker.rerank("?", [""])] == [0]


def test_relabelling_documents_permutes_scores(reranker):
    place = [4, 2, 0, 5, 1, 3]  # document i goes to place[i]
    documents = [DOCUMENTS[place.index(i)] for i in range(6)]
    edges = [[place[i], place[j], *weight] for i, j, *weight in EDGES]
    distinct = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]  # ranks of ties would follow the order
    moved = [distinct[place.index(i)] for i in range(6)]
    torch.testing.assert_close(
        by_index(reranker.rerank(QUERY, documents, edges, moved))[place],
        by_index(reranker.rerank(QUERY, DOCUMENTS, EDGES, distinct)),
    )


def test_limits_are_answered(client):
    documents = [f"document {i}" for i in range(1000)]
    edges = [[i % 1000, (i * 7 + 1 + i // 1000) % 1000] for i in range(101_000)]
    edges = [edge for edge in edges if edge[0] != edge[1]][:100_000]
    scores = [1e30 * (-1) ** i for i in range(1000)]
    response = client.post("/rerank", json={"query": "q", "documents": documents, "edges": edges, "scores": scores})
    assert response.status_code == 200
    assert len(response.json()["results"]) == 1000
    extreme = client.post("/rerank", json={**BODY, "edges": [[0, 1, 1e9], [1, 2, 1e-9]]})
    assert extreme.status_code == 200


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"documents": []}, "documents", "at least 1 item"),
        ({"documents": ["x"] * 1001}, "documents", "at most 1000 items"),
        ({"documents": ["x", 3]}, "documents", "valid string"),
        ({"documents": "x"}, "documents", "valid list"),
        ({"query": ""}, "query", "at least 1 character"),
        ({"query": None}, "query", "valid string"),
        ({"query": "\ud800"}, "query", "valid string"),
        ({"edges": [[0, 6]]}, "edges", r"join documents 0 to 5, got \[0, 6\] at place 0"),
        ({"edges": [[0, 1], [2, 2, 0.5]]}, "edges", r"join two different documents, got \[2, 2\] at place 1"),
        ({"edges": [[-1, 0]]}, "edges", "greater than or equal to 0"),
        ({"edges": [[0, 10**30]]}, "edges", "join documents 0 to 5"),
        ({"edges": [[0, 1.5]]}, "edges", "valid integer"),
        ({"edges": [[True, 0]]}, "edges", "valid integer"),
        ({"edges": [["0", 1]]}, "edges", "valid integer"),
        ({"edges": [[0]]}, "edges", "Field required"),
        ({"edges": [7]}, "edges", "valid tuple"),
        ({"edges": [[0, 1, 1, 1]]}, "edges", "at most 3 items"),
        ({"edges": [[0, 1, 0]]}, "edges", r"greater than or equal to 0\.000000001"),
        ({"edges": [[0, 1, 1e10]]}, "edges", "less than or equal to"),
        ({"edges": [[0, 1, float("nan")]]}, "edges", "finite number"),
        ({"edges": [[0, 1]] * 100_001}, "edges", "at most 100000 items"),
        ({"scores": [1.0] * 5}, "scores", r"one entry per document \(6\), got 5"),
        ({"scores": []}, "scores", r"one entry per document \(6\), got 0"),
        ({"scores": [1.0] * 5 + [float("nan")]}, "scores", "finite number"),
        ({"scores": [1.0] * 5 + [float("-inf")]}, "scores", "finite number|greater than or equal"),
        ({"scores": [1.0] * 5 + [1e39]}, "scores", "less than or equal to"),
        ({"scores": [1.0] * 5 + [None]}, "scores", "valid number"),
        ({"top_n": 0}, "top_n", "greater than or equal to 1"),
        ({"top_n": 1.5}, "top_n", "valid integer"),
        ({"topn": 1}, "topn", "not permitted"),
    ],
)
def test_bad_requests_are_refused_by_field(client, reranker, change, field, message):
    body = {**BODY, **change}
    response = client.post("/rerank", content=json.dumps(body), headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    detail = response.json()["detail"]
    assert all(error["loc"][:2] == ["body", field] for error in detail)
    assert len(detail) <= 2
    assert all(set(error) == {"loc", "msg", "type"} for error in detail)  # no echo of the request
    texts = " ".join(error["msg"] for error in detail)
    with pytest.raises(ValueError, match=message):  # the same words over HTTP and in Python
        raise ValueError(texts)
    if set(change) <= {"query", "documents", "edges", "scores", "top_n"}:
        with pytest.raises(ValueError, match=message):
            reranker.rerank(**body)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"query": "q"}', b"\xff", b'{"\\ud800": 1}'])
def test_bodies_that_are_no_request(client, content):
    response = client.post("/rerank", content=content, headers={"content-type": "application/json"})
    assert response.status_code in {400, 422}


def test_a_failing_encoder_is_not_the_clients_fault(artifact, encoder):
    class Broken(type(encoder)):
        def encode(self, texts):
            return super().encode(texts) * float("nan")

    client = TestClient(create_app(RerankService(artifact, Broken())), raise_server_exceptions=False)
    assert client.post("/rerank", json=BODY).status_code == 500


def test_threads_answer_as_one_does(client, reranker):
    bodies = [
        {"query": f"{QUERY} {i}", "documents": DOCUMENTS[i % 3 :] * (1 + i % 4), "edges": [[0, 1 + i % 2]]}
        for i in range(48)
    ]
    expected = [reranker.rerank(**body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda body: client.post("/rerank", json=body).json()["results"], bodies))
    assert found == expected


def test_the_encoder_is_never_used_by_two_threads(artifact, encoder):
    class Alone(type(encoder)):
        inside = 0
        most = 0

        def encode(self, texts):
            self.inside += 1
            self.most = max(self.most, self.inside)
            vectors = super().encode(texts)
            self.inside -= 1
            return vectors

    alone = Alone()
    reranker = RerankService(artifact, alone)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: reranker.rerank(QUERY, DOCUMENTS * 4), range(32)))
    assert alone.most == 1


def test_another_encoder_or_retriever_is_refused(artifact, encoder):
    other = type(encoder)()
    other.fingerprint = "0" * 64
    with pytest.raises(ValueError, match=f"fingerprint {'f' * 64}.*got 'fake' with fingerprint {'0' * 64}"):
        RerankService(artifact, other)
    retriever = {**artifact.manifest["retriever"], "feature_names": ["dense_score"]}
    with pytest.raises(ValueError, match=r"trained on \['dense_score'\]"):
        RerankService(replace(artifact, manifest={**artifact.manifest, "retriever": retriever}), encoder)
    retriever = {**artifact.manifest["retriever"], "arguments": {}}
    with pytest.raises(ValueError, match=r"`retriever\.arguments\.bm25_weight`"):
        RerankService(replace(artifact, manifest={**artifact.manifest, "retriever": retriever}), encoder)


def test_models_of_expanded_candidates_are_served(tmp_path, make_checkpoint, encoder):
    """Nothing is expanded here: the features of a walk are 0, as for the candidates of a base ranking."""
    names = list(HybridExpandRetriever.feature_names)
    checkpoint = make_checkpoint(num_scores=len(names))
    checkpoint.manifest["retriever"] |= {"choice": "hybrid_expand", "feature_names": names}
    checkpoint.manifest["features"] = checkpoint.model.feature_names(names)
    reranker = RerankService(load_artifact(export_artifact(checkpoint, tmp_path / "artifact")), encoder)
    query, nodes = encoder.encode([QUERY]), encoder.encode(DOCUMENTS)
    bm25 = BM25(DOCUMENTS).score_all([QUERY])[0]
    x = torch.stack([torch.arange(6.0), bm25 / bm25.max(), nodes @ query[0], *torch.zeros(4, 6)], dim=1)
    none = torch.zeros(0, 0)
    edge_index, weight = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)
    expected = checkpoint.model(x, none, none, edge_index, weight, torch.tensor([0, 6]))
    found = by_index(reranker.rerank(QUERY, DOCUMENTS, scores=[0, 1, 2, 3, 4, 5]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_without_an_encoder(artifact, reranker, make_checkpoint, tmp_path):
    service = RerankService(artifact, None)
    eager = GraphReranker.from_pretrained(artifact.folder)
    for scores in (None, [0.5, 3.0, -1.0, 0.25, 0.0, 2.0]):
        found = service.rerank(QUERY, DOCUMENTS, [[3, 0], [1, 2]], scores)
        expected = eager.rerank(QUERY, DOCUMENTS, scores=scores, edges=[[3, 0], [1, 2]])
        assert [result["index"] for result in found] == list(expected.ids)
        assert [result["score"] for result in found] == pytest.approx(expected.scores.tolist(), abs=1e-5)
        assert found != reranker.rerank(QUERY, DOCUMENTS, [[3, 0], [1, 2]], scores)
    reads_vectors = load_artifact(export_artifact(make_checkpoint(features="paper"), tmp_path / "artifact"))
    with pytest.raises(ValueError, match="`encoder` must be 'fake': the model 'test-model' reads its vectors"):
        RerankService(reads_vectors, None)


def test_serve_http_is_uvicorn(monkeypatch, reranker):
    calls = []
    monkeypatch.setattr(service.uvicorn, "run", lambda app, **options: calls.append((app, options)))
    app = create_app(reranker)
    serve_http(app, port=0)
    ((served, options),) = calls
    streams = {handler["stream"] for handler in options.pop("log_config")["handlers"].values()}
    assert served is app
    assert options == {"host": "127.0.0.1", "port": 0}
    assert streams == {"ext://sys.stderr"}  # standard output is the door's
