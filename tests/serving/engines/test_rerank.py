import itertools
import shutil
from dataclasses import replace

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.artifacts.artifact import Artifact, load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import COMPILERS
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.operators.bm25 import BM25
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.serving.engine import answer_all
from graphrerank.serving.engines.rerank import RerankEngine, load_rerank_engine
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.rerank import RerankRequest
from tests.artifacts.conftest import SMALL
from tests.support.device import made_up_device, traffic

QUERY = "who wrote the red book"
DOCUMENTS = ["the red book", "a green pear", "who is who", "the author wrote it", "the red book", "?"]
EDGES = [[3, 0], [3, 4, 2.5], [1, 2]]


def eager(checkpoint) -> Artifact:
    """A checkpoint as an artifact, without an export."""
    return Artifact(checkpoint.model, checkpoint.manifest, checkpoint.path)


@pytest.fixture(scope="module")
def engine(artifact, encoder):
    return RerankEngine(artifact, encoder)


def ask(engine, documents=DOCUMENTS, edges=None, **fields):
    request = RerankRequest(query=QUERY, documents=documents, edges=edges, **fields)
    return engine.rerank({"a": request})["a"].results


def by_index(results):
    return torch.tensor([r.relevance_score for r in sorted(results, key=lambda r: r.index)])


@pytest.mark.parametrize("features", ["scores", "paper", "full"])
@pytest.mark.parametrize("scores", [None, [0.5, 3.0, -1.0, 0.5, 0.0, 2.0]])
def test_against_eager_by_hand(make_checkpoint, encoder, features, scores):
    checkpoint = make_checkpoint(features=features, edge_features=True)
    engine = RerankEngine(eager(checkpoint), encoder)
    query, nodes = encoder.encode([QUERY]), encoder.encode(DOCUMENTS)
    bm25 = BM25(DOCUMENTS).score_all([QUERY])[0]
    bm25, dense = bm25 / bm25.max(), nodes @ query[0]
    base = 0.4 * bm25 + 0.6 * dense if scores is None else torch.tensor(scores)
    edge_index = torch.tensor([[3, 0, 3, 4, 1, 2], [0, 3, 4, 3, 2, 1]])
    edge_weight = torch.tensor([1.0, 1.0, 2.5, 2.5, 1.0, 1.0])
    x = torch.stack([base, bm25, dense], dim=1)
    expected = checkpoint.model(x, query, nodes, edge_index, edge_weight, torch.tensor([0, 6]))

    results = ask(engine, edges=EDGES, scores=scores)
    torch.testing.assert_close(by_index(results), expected, rtol=0, atol=1e-5)
    assert [r.index for r in results] == sorted(range(6), key=lambda i: (-by_index(results)[i].item(), i))


def test_a_device_answers_as_the_cpu_does(make_checkpoint, encoder):
    artifact = eager(make_checkpoint(edge_features=True))
    requests = {f"r{i}": RerankRequest(query=QUERY, documents=DOCUMENTS[i:], edges=[[0, 1]]) for i in range(3)}
    expected, costs = RerankEngine(eager(make_checkpoint(edge_features=True)), encoder).rerank(requests), []
    with made_up_device() as device:
        engine = RerankEngine(artifact, encoder, device=str(device))
        for count in (1, 3):
            before = traffic.now()
            found = engine.rerank({uid: requests[uid] for uid in list(requests)[:count]})
            costs.append(traffic - before)
    for uid, response in expected.items():
        torch.testing.assert_close(by_index(found[uid].results), by_index(response.results))
    assert costs[0].transfers == costs[1].transfers > 0


def test_a_batch_equals_single_requests(engine):
    requests = {
        f"r{i}": RerankRequest(
            query=f"{QUERY} {i}",
            documents=DOCUMENTS[i % 3 :] * (1 + i % 4),
            edges=[[0, 1 + i % 2]],
            top_n=None if i % 2 else 2,
        )
        for i in range(12)
    }
    together = engine.rerank(requests)
    for uid, request in requests.items():
        alone = engine.rerank({uid: request})[uid]
        assert together[uid].id == uid
        assert [r.index for r in together[uid].results] == [r.index for r in alone.results]
        torch.testing.assert_close(by_index(together[uid].results), by_index(alone.results), rtol=0, atol=1e-5)


@pytest.mark.parametrize("copies", [2, 3, 5])
@pytest.mark.parametrize("linked", [False, True])
def test_equal_documents_of_the_shipped_model_are_tied(copies, linked):
    """To the last bit, wherever they stand in the request."""
    engine = RerankEngine(load_artifact(PRETRAINED / "base", "torchscript"))
    for first in itertools.permutations(DOCUMENTS[:3]):
        documents = [*first, *first[: copies - 1] * 2, *first[1:] * (copies - 2)]
        pairs = itertools.combinations(range(len(documents)), 2)
        edges = [[i, j] for i, j in pairs if documents[i] != documents[j]] if linked else None
        scores = by_index(ask(engine, documents, edges))
        assert len(set(zip(documents, scores.tolist(), strict=True))) == 3


def test_edges_change_the_answer(engine):
    without = by_index(ask(engine))
    assert torch.equal(without, by_index(ask(engine, edges=[])))
    touched = (by_index(ask(engine, edges=[[0, 3]])) - without).abs() > 1e-4
    assert touched.tolist() == [True, False, False, True, False, False]
    joined = by_index(ask(engine, entities=[["red book"], [], [], ["red book"], [], []]))
    assert not torch.allclose(joined, without)
    chunks = by_index(ask(engine, doc_ids=["d", "e", "e", "d", "f", "f"], chunk_ids=[0, 0, 9, 1, 0, 9]))
    torch.testing.assert_close(chunks, by_index(ask(engine, edges=[[0, 3]])))


def test_relabelling_documents_permutes_scores(engine):
    place = [4, 2, 0, 5, 1, 3]  # document i goes to place[i]
    documents = [DOCUMENTS[place.index(i)] for i in range(6)]
    edges = [[place[i], place[j], *weight] for i, j, *weight in EDGES]
    distinct = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]  # ranks of ties would follow the order
    moved = [distinct[place.index(i)] for i in range(6)]
    torch.testing.assert_close(
        by_index(ask(engine, documents, edges, scores=moved))[place],
        by_index(ask(engine, edges=EDGES, scores=distinct)),
    )


def test_vectors_of_a_request_take_the_encoders_place(engine, encoder):
    vectors = encoder.encode([QUERY, *DOCUMENTS])
    given = ask(engine, query_vector=vectors[0].tolist(), vectors=vectors[1:].tolist())
    torch.testing.assert_close(by_index(given), by_index(ask(engine)))
    other = ask(engine, query_vector=vectors[1].tolist(), vectors=vectors[1:].tolist())
    assert not torch.allclose(by_index(other), by_index(given))


def test_scores_alone_need_no_documents(artifact):
    engine, eager = RerankEngine(artifact), GraphReranker.from_pretrained(artifact.folder)
    scores = [0.5, 3.0, -1.0, 0.25]
    expected = eager.rerank(QUERY, scores=scores, edges=[[3, 0]])
    found = ask(engine, None, [[3, 0]], scores=scores, return_documents=True)
    assert [r.index for r in found] == list(expected.ids)
    assert [r.relevance_score for r in found] == pytest.approx(expected.scores.tolist(), abs=1e-5)
    assert found[0].document is None


@pytest.mark.parametrize("formats", [["torchscript"], pytest.param(["onnx", "aot"], marks=pytest.mark.slow)])
def test_types_of_edges_against_eager_in_every_format(tmp_path, make_checkpoint, formats):
    pytest.importorskip("onnxruntime", reason="onnx is optional")
    formats = [name for name in formats if name != "aot" or any(map(shutil.which, COMPILERS))]
    checkpoint = make_checkpoint(edge_features=True, num_edge_types=5, **SMALL)
    folder = export_artifact(checkpoint, tmp_path / "artifact", formats, num_batches=8)
    reranker, scores = GraphReranker(checkpoint), [0.5, 3.0, -1.0, 0.25]
    edges, types = [[3, 0], [0, 3], [1, 2]], ["cites", "knn", "other"]
    given = [[i, j, 1, name] for (i, j), name in zip(edges, types, strict=True)]
    for name in formats:
        engine, found = RerankEngine(load_artifact(folder, name)), {}
        engine.warm_up()
        for kind, request, expected in (
            ("typed", given, reranker.rerank(QUERY, scores=scores, edges=edges, edge_types=types)),
            ("without types", [[3, 0], [1, 2]], reranker.rerank(QUERY, scores=scores, edges=edges)),
        ):
            results = found[kind] = ask(engine, None, request, scores=scores, explain=True)
            assert [r.index for r in results] == list(expected.ids)
            assert [r.relevance_score for r in results] == pytest.approx(expected.scores.tolist(), abs=1e-5)
        shown = {(effect.edge, effect.type) for result in found["typed"] for effect in result.explanation.edges}
        assert shown == {((0, 3), "reference"), ((0, 3), "similarity"), ((1, 2), "other")}
        untyped = by_index(found["without types"]).tolist()
        assert by_index(found["typed"]).tolist() != pytest.approx(untyped, abs=1e-3)


def test_a_model_that_reads_no_types_merges_edges(engine):
    given = [[3, 0, 1, "cites"], [0, 3, 2, "knn"], [1, 2, 0.5, "likes"]]
    scores = [0.1, 0.5, 0.4, 0.3, 0.2, 0.6]
    typed, merged = (
        ask(engine, edges=edges, scores=scores, explain=True) for edges in (given, [[3, 0, 2], [1, 2, 0.5]])
    )
    assert by_index(typed).tolist() == by_index(merged).tolist()
    assert {effect.type for result in typed for effect in result.explanation.edges} == {None}


def test_explanations(artifact, engine, encoder):
    results = ask(engine, edges=EDGES, explain=True, scores=[0.1, 0.5, 0.4, 0.3, 0.2, 0.6])
    full = by_index(results)
    assert {r.index: r.explanation.base_rank for r in results} == {0: 6, 1: 2, 2: 3, 3: 4, 4: 5, 5: 1}
    for result in results:
        why = result.explanation
        assert why.gcs_part + why.learned_part == why.score == pytest.approx(result.relevance_score, abs=1e-5)
        assert why.probability is None  # this model is not calibrated
        for effect in why.edges:
            left = [edge for edge in EDGES if set(edge[:2]) != set(effect.edge)]
            without = by_index(ask(engine, edges=left, scores=[0.1, 0.5, 0.4, 0.3, 0.2, 0.6]))
            assert effect.effect == pytest.approx((full - without)[result.index].item(), abs=1e-5)
    assert {r.index: len(r.explanation.edges) for r in results}[5] == 0  # joined with nothing
    assert any(r.explanation.edges for r in results)


def test_another_encoder_or_retriever_is_refused(artifact, encoder, make_checkpoint):
    other = type(encoder)()
    other.fingerprint = "0" * 64
    RerankEngine(artifact, other)  # it reads cosines, of any encoder
    retriever = {**artifact.manifest.content["retriever"], "feature_names": ["dense_score"]}
    with pytest.raises(ValueError, match=r"the features of the model must be 'base_score' followed by"):
        RerankEngine(replace(artifact, manifest=artifact.manifest.with_entries(retriever=retriever)), encoder)
    reads_vectors = eager(make_checkpoint(features="paper"))
    with pytest.raises(ValueError, match=r"`encoder` must be that of the training of .*, hash .*, got None"):
        RerankEngine(reads_vectors)
    with pytest.raises(ValueError, match=r"hash \(ffffffffffff\), got hash \(000000000000\)\. Only"):
        RerankEngine(reads_vectors, other)


def test_models_of_expanded_candidates_are_served(make_checkpoint, encoder):
    """Nothing is expanded here: the features of a walk are 0, as for the candidates of a base ranking."""
    names = list(HybridExpandRetriever.feature_names)
    checkpoint = make_checkpoint(num_scores=len(names))
    retriever = {**checkpoint.manifest.content["retriever"], "choice": "hybrid_expand", "feature_names": names}
    manifest = checkpoint.manifest.with_entries(retriever=retriever, features=checkpoint.model.feature_names(names))
    checkpoint = replace(checkpoint, manifest=manifest)
    engine = RerankEngine(eager(checkpoint), encoder)
    query, nodes = encoder.encode([QUERY]), encoder.encode(DOCUMENTS)
    bm25 = BM25(DOCUMENTS).score_all([QUERY])[0]
    x = torch.stack([torch.arange(6.0), bm25 / bm25.max(), nodes @ query[0], *torch.zeros(4, 6)], dim=1)
    none = torch.zeros(0, 0)
    edge_index, weight = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)
    expected = checkpoint.model(x, none, none, edge_index, weight, torch.tensor([0, 6]))
    torch.testing.assert_close(by_index(ask(engine, scores=[0, 1, 2, 3, 4, 5])), expected, rtol=0, atol=1e-5)


def test_a_failing_encoder_is_not_the_clients_fault(artifact, encoder, caplog):
    class Broken(type(encoder)):
        def encode(self, texts):
            return super().encode(texts) * float("nan")

    results = answer_all(
        RerankEngine(artifact, Broken(fingerprint=encoder.fingerprint, dim=encoder.dim)),
        {"a": RerankRequest(query="secret", documents=["secret"])},
    )
    assert results["a"].status_code == 500
    assert "secret" not in results["a"].detail


def test_vectors_of_texts_that_come_again_are_kept(artifact, encoder, monkeypatch):
    engine = load_rerank_engine(artifact.folder, lambda: encoder, Limits(), "cpu")
    asked = []
    encode = type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda self, texts: asked.extend(texts) or encode(self, texts))
    first = by_index(ask(engine))
    assert len(asked) == 1 + len(set(DOCUMENTS))
    assert torch.equal(by_index(ask(engine)), first)
    assert len(asked) == 1 + len(set(DOCUMENTS))


GERMAN = ["Die alten Häuser an dem Fluss sind aus Stein.", "Der Fluss fließt durch die Stadt und ist nicht tief."]


@pytest.mark.parametrize(
    ("setting", "asked", "used"),
    [("auto", None, "german"), ("auto", "none", "none"), ("english", None, "english"), ("english", "auto", "english")],
)
def test_words_are_matched_in_the_language_of_request_setting_or_documents(artifact, setting, asked, used):
    engine = RerankEngine(artifact, language=setting)
    request = RerankRequest(query="Haus", documents=GERMAN * 3, language=asked)
    answer = engine.rerank({"a": request})["a"]
    ranking = GraphReranker.from_pretrained(artifact.folder).rerank("Haus", GERMAN * 3, language=used)
    assert answer.meta["language"] == used
    assert [result.index for result in answer.results] == ranking.indices.tolist()
    scores = {result.index: result.relevance_score for result in answer.results}
    assert (scores[0] > scores[1]) == (used == "german")  # "Häuser" and "Haus" have one stem
    assert "language" not in engine.rerank({"a": RerankRequest(query="q", scores=[1.0, 2.0])})["a"].meta
