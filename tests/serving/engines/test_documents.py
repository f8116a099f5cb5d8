"""Passages are added to a corpus folder and removed from it by the requests of a service."""

from functools import partial

import pytest
import torch
from pydantic import ValidationError

from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.corpus_store.growth import NewEdge, grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank.serving.engines.documents import DocumentsEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.documents import AddDocuments, RemoveDocuments
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.utils.files import sole_use
from tests.support.encoders import HashEncoder

LIMITS = Limits(documents=2, edges=2, text_chars=20, request_chars=30)
ONE = {"id": "secret", "text": "secret text"}


def write(folder, *, entities=None):
    graph = CorpusGraph.from_edges(["a", "b"], ["red apple", "green pear"], torch.tensor([[0, 1]]))
    graph = graph if entities is None else graph.with_entities(EntityIncidence.from_names(entities))
    qrels = {"test": Qrels(torch.tensor([0]), torch.tensor([0]), torch.ones(1))}
    return prepare_corpus(Dataset("fruit", graph, ["q"], ["red"], qrels), folder, encoder=HashEncoder())


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "corpus")
    (tmp_path / "now").symlink_to(tmp_path / "corpus")
    return tmp_path / "now"


def load(folder):
    graph = open_corpus(folder).graph
    pipeline = Pipeline(graph, steps=[partial(VectorSearch, retriever=partial(BM25Retriever))], budget=3)
    return SearchableCorpus(graph, pipeline, None)


def add(text, *, doc_id="c", **fields):
    return AddDocuments.model_validate({"documents": [{"id": doc_id, "text": text}], **fields})


def test_a_search_sees_what_was_answered_before(folder):
    search = SearchEngine(load, folder, look_seconds=1000)
    engine = DocumentsEngine(folder, HashEncoder)

    def best(query):
        answer = search.answer({"x": SearchRequest(query=query, top_n=1)})["x"]
        return answer.results[0].doc_id, answer.meta["index"]

    assert best("plum")[0] == "a"  # no text holds it
    remove = RemoveDocuments(ids=["a", "none"])
    done = engine.answer(
        {"x": add("blue plum", edges=[["c", "b"], ["c", "c"]]), "y": add("white gnu", doc_id="b"), "z": remove}
    )
    found = [(done[uid].added, done[uid].removed, done[uid].documents) for uid in "xyz"]
    assert found == [(1, 0, 3), (1, 1, 3), (0, 1, 2)]
    assert best("plum") == ("c", done["z"].meta["index"])
    assert best("gnu")[0] == "b"
    assert best("apple")[0] == "c"  # the first of those that are left
    assert engine.answer({"x": remove})["x"].removed == 0


def test_a_corpus_that_has_changed_much_is_compacted_and_a_title_is_found_in_texts(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    (source / "corpus.jsonl").write_text('{"_id": "a", "text": "On Metz and Rome."}\n')
    prepare_corpus(Dataset.from_folder(source, mentions=True, keep_derived=True), tmp_path / "corpus")
    monkeypatch.setattr("graphrerank.corpus_store.growth.COMPACT_LEAST", 1)
    job = AddDocuments.model_validate({"documents": [{"id": "b", "title": " Metz ", "text": "It fell."}]})
    engine = DocumentsEngine(tmp_path / "corpus", None)
    assert engine.answer({"x": job})["x"].added == 1
    assert engine._compaction.wait(120) == 0
    origin, neighbour = open_corpus(tmp_path / "corpus").graph.neighbours(torch.arange(2))
    assert (origin.tolist(), neighbour.tolist()) == ([0, 1], [1, 0])


def test_an_unknown_end_of_an_edge_is_refused_without_its_name(folder):
    refusal = DocumentsEngine(folder, HashEncoder).answer({"x": add("plum", edges=[["c", "secret"]])})["x"]
    assert (refusal.status_code, refusal.detail) == (
        422, "edges.0: must connect a document of the request with one of the corpus"
    )  # fmt: skip
    assert open_corpus(folder).graph.num_nodes == 2


def test_a_full_disk_is_told_and_leaves_the_corpus(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("graphrerank.corpus_store.growth.write_json", full)
        refusal = DocumentsEngine(folder, HashEncoder).answer({"x": add("plum")})["x"]
    assert refusal.status_code == 507
    assert open_corpus(folder, thorough=True).graph.num_nodes == 2


def test_a_corpus_that_takes_none_says_so(tmp_path):
    engine = DocumentsEngine(write(tmp_path / "corpus", entities=[["x"], ["x"]]), HashEncoder)
    assert engine.answer({"x": add("plum")})["x"].status_code == 409
    other = DocumentsEngine(write(tmp_path / "other"), lambda: HashEncoder(fingerprint="another"))
    assert other.answer({"x": add("plum")})["x"].status_code == 409


def test_who_waits_for_another_writer_gives_up_at_the_deadline(folder):
    looks = []

    def check():
        looks.append(1)
        if len(looks) > 3:
            raise TimeoutError

    with sole_use(folder.resolve()):
        assert DocumentsEngine(folder, HashEncoder).answer({"x": add("plum")}, check)["x"].status_code == 504


def test_a_request_becomes_passages_and_edges():
    edges = [["secret", "b"], ["b", "secret", 0.5, "citation"]]
    documents = [{**ONE, "title": "Title"}, {"id": "c", "text": "t"}]
    request = AddDocuments.model_validate({"documents": documents, "edges": edges}, context=LIMITS)
    assert request.documents[0].passage == "Title. secret text"
    assert request.edges == [NewEdge("secret", "b", 1.0, 4), NewEdge("b", "secret", 0.5, 0)]
    assert request.work()[1:3] == (2, 19)
    assert not request.bad_items
    forms = [["c", "b", "citation"], ["b", "c", None, "cites"], ["b", "c", 2], ["c", "c", {"weight": 3}]]
    request = AddDocuments.model_validate({"documents": documents, "edges": forms})
    assert request.edges == [
        NewEdge("c", "b", 1.0, 0), NewEdge("b", "c", 1.0, 0), NewEdge("b", "c", 2.0, 4), NewEdge("c", "c", 3.0, 4)
    ]  # fmt: skip
    assert request.bad_items == {SELF_LOOPS: 1, REPEATED_EDGES: 1}
    assert request.texts_to_encode() == ([], ["Title. secret text", "t"])
    assert 0 < request.work().seconds < 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": []}, "at least 1 item"),
        ({"ids": ["a", "b", "c"]}, "`ids` must have at most 2 entries, got 3"),
        ({"ids": [""]}, "at least 1 character"),
        (
            {"documents": [ONE, {**ONE, "id": "b"}, {**ONE, "id": "c"}]},
            "`documents` must have at most 2 entries, got 3",
        ),
        ({"documents": [ONE, ONE]}, "`documents` must have unique ids"),
        ({"documents": [{"id": " secret", "text": "t"}]}, "should match pattern"),
        ({"documents": [{"id": "secret" * 100, "text": "t"}]}, "at most 512 characters"),
        ({"documents": [{"id": 3, "text": "t"}]}, "valid string"),
        ({"documents": [{"id": "secret", "text": " "}]}, "document 0 must have a text"),
        ({"documents": [{"id": "secret", "text": "secret" * 4}]}, "document 0 must have at most 20 characters"),
        ({"documents": [{"id": i, "text": "s" * 19} for i in "ab"]}, "at most 30 characters, got 38"),
        ({"documents": [ONE], "edges": [["secret", "b"]] * 3}, "`edges` must have at most 2 entries"),
        ({"documents": [ONE], "edges": [["secret"]]}, "got another format at index 0"),
        ({"documents": [ONE], "edges": [["secret", 3]]}, "connect two ids, got an edge without two ids at index 0"),
        ({"documents": [ONE], "edges": [["secret", "b", 0]]}, "have a weight"),
        (
            {"documents": [ONE], "edges": [["a", "b"]]},
            "edge 0 must have at least one end among the documents of the request",
        ),
    ],
)
def test_what_is_refused(body, message):
    with pytest.raises(ValidationError) as caught:
        (RemoveDocuments if "ids" in body else AddDocuments).model_validate(body, context=LIMITS)
    errors = caught.value.errors(include_input=False, include_context=False, include_url=False)
    assert message in str(errors)
    assert "secret" not in str([error["msg"] for error in errors])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"metadata": {"Principals": ["hr"]}},
            r"`metadata\.Principals` must be named `metadata\.principals` if it restricts who may",
        ),
        (
            {"metadata": {"access": {"principals": []}}},
            r"`metadata\.access\.principals` must be",
        ),
        ({"metadata": {"metadata": {"principals": ["hr"]}}}, r"`metadata\.metadata\.principals` must be"),
        ({"metadata": {"valid_to": "soon"}}, r"`metadata\.valid_to`: expected a time in ISO 8601, .* got 'soon'"),
        ({"principals": ["hr"]}, "Extra inputs are not permitted"),
        ({"Metadata": {"principals": ["hr"]}}, "Extra inputs are not permitted"),
    ],
)
def test_what_would_make_a_document_public_by_mistake_is_refused(document, message):
    with pytest.raises(ValidationError, match=message):
        AddDocuments.model_validate({"documents": [{"id": "c", "text": "x", **document}]})


def test_edges_bring_no_principals():
    for more in ({"principals": ["hr"]}, {"weight": 1.0, "Principal": "hr"}):
        with pytest.raises(ValidationError, match=r"`edges` cannot be added with principals, got `\w+` at index 1"):
            add("x", edges=[["c", "a"], ["c", "b", more]])


def test_metadata_are_checked_before_a_corpus_folder_is_changed(folder):
    before = open_corpus(folder.resolve()).graph.num_nodes
    for record in ({"principal": ["hr"]}, {"valid_from": "31.1.2025"}):
        with pytest.raises(ValueError, match=r"`metadata` of 'd': `metadata\."):
            grow_corpus(folder.resolve(), ["c", "d"], ["x", "y"], metadata=[{}, record], encoder=HashEncoder())
    assert open_corpus(folder.resolve()).graph.num_nodes == before
