"""Who sends a request, and what the service then searches; tokens are made as an identity provider makes them."""

import base64
import json
import shutil
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from starlette.datastructures import Headers

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus_store.growth import grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank.serving.auth import NAMED, Caller, PermissionSettings, User, authenticate, names_in_header
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Refusal
from graphrerank.serving.engines.documents import DocumentsEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.standard_routes import ADD_DOCUMENTS, INSPECT, REMOVE_DOCUMENTS, SEARCH
from graphrerank.utils.checks import UserError
from tests.support.client import TestClient

jwt = pytest.importorskip("jwt")
KEY = "k" * 32
TOKENS = {"algorithm": "HS256", "key": KEY, "audience": "search"}
CONTENT = {"aud": "search", "principals": ["hr"]}
RECORDS = [{}, {"principals": ["hr"]}, {"principals": ["hr", "law"]}, {"principals": []}]


def token(key=KEY, algorithm="HS256", expires=60, **changes):
    content = {"exp": int(time.time()) + expires, **CONTENT, **changes}
    return jwt.encode({name: part for name, part in content.items() if part is not None}, key, algorithm=algorithm)


def unsigned():
    parts = [{"alg": "none", "typ": "JWT"}, {"exp": int(time.time()) + 60, **CONTENT}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Folder of four passages: one public, one for `hr`, one for `hr` and `law`, one for nobody."""
    graph = CorpusGraph.from_edges(list("abcd"), ["red pear", "red plum", "red apple", "red fig"], torch.zeros(0, 2))
    dataset = Dataset("fruit", graph.with_passages(metadata=Metadata(RECORDS)), [], [], {})
    return prepare_corpus(dataset, tmp_path_factory.mktemp("auth") / "corpus")


@pytest.fixture
def make_service(corpus, tmp_path):
    """Serve a copy of the folder, which a test may change."""
    folder = shutil.copytree(corpus, tmp_path / "corpus")

    def load(path):
        opened = open_corpus(path)
        pipeline = Pipeline(opened.graph, steps=[partial(VectorSearch, retriever=partial(BM25Retriever))], budget=9)
        return SearchableCorpus(opened.graph, pipeline, None, see=opened.seen_by, has_permissions=True)

    def make(api_key=None, **permissions):
        search = SearchEngine(load, folder)
        settings = ServiceSettings(api_key=api_key, permissions=PermissionSettings(**permissions))
        documents = DocumentsEngine(folder, None, knows_callers=settings.permissions.are_set)
        engines = {"search": search, "inspect": InspectEngine(search), "documents": documents}
        routes = [SEARCH, INSPECT, ADD_DOCUMENTS, REMOVE_DOCUMENTS]
        app = create_app(routes, Batcher(engines, settings.limits), settings, info={})
        return TestClient(app, base_url="http://localhost:8000")

    make.folder = folder
    return make


def found(client, headers=(), **fields):
    response = client.post("/search", json={"query": "red", **fields}, headers=dict(headers))
    assert response.status_code == 200, response.text
    assert "index" not in response.json()["meta"]
    return [one["doc_id"] for one in response.json()["results"]]


def bearer(given):
    return {"authorization": f"Bearer {given}"}


def test_a_token_says_what_is_searched(make_service):
    client = make_service(**TOKENS)
    assert found(client) == ["a"]
    assert found(client, bearer(token())) == ["a", "b", "c"]
    assert found(client, bearer(token(principals=["law", "x"]))) == ["a", "c"]
    assert found(client, bearer(token(principals="hr law"))) == ["a", "b", "c"]
    assert found(client, bearer(token(principals=None))) == ["a"]
    assert found(client, bearer(token(aud=["other", "search"]))) == ["a", "b", "c"]
    inspected = client.post("/inspect", json={"query": "red"}, headers=bearer(token(principals=["law"]))).json()
    assert [node["doc_id"] for node in inspected["nodes"]] == ["a", "c"]
    dotted = make_service(**TOKENS, claim="https://we.example/roles")
    assert found(dotted, bearer(token(**{"https://we.example/roles": ["law"]}))) == ["a", "c"]
    assert found(dotted, bearer(token())) == ["a"]
    nested = make_service(**TOKENS, claim="realm.roles", issuer="we")
    assert found(nested, bearer(token(iss="we"))) == ["a"]
    assert found(nested, bearer(token(principals=None, realm={"roles": ["hr"]}, iss="we"))) == ["a", "b", "c"]


WRONG = {
    "expired": lambda: token(expires=-1),
    "of another key": lambda: token(key="x" * 32),
    "unsigned": unsigned,
    "without audience": lambda: token(aud=None),
    "of another audience": lambda: token(aud="other"),
    "without an end": lambda: token(exp=None),
    "of another algorithm": lambda: token(key="k" * 64, algorithm="HS512"),
    "with principals that are no names": lambda: token(principals=[["hr"]]),
    "not before later": lambda: token(nbf=int(time.time()) + 60),
    "no token": lambda: "x",
    "empty": lambda: "",
    "of an empty subject": lambda: token(sub=""),
    "of a blank subject": lambda: token(sub=" \t"),
    "of a subject that is half a character": lambda: token(sub="\ud800"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_token_is_refused_without_detail(make_service, kind):
    client = make_service(**TOKENS)
    for path in ("/search", "/inspect", "/info"):
        method = client.get if path == "/info" else partial(client.post, json={"query": "red"})
        answer = method(path, headers=bearer(WRONG[kind]()))
        assert answer.status_code == 401
        assert answer.json()["message"] == "invalid token or principals header"
        assert answer.json()["detail"] == [{"loc": [], "msg": answer.json()["message"], "type": "http_401"}]
    assert client.get("/health", headers=bearer("x")).status_code == 200


def test_headers_that_can_be_read_in_two_ways_are_refused(make_service):
    client = make_service(**TOKENS)
    body = json.dumps({"query": "red"})
    twice = [("authorization", f"Bearer {token()}"), ("authorization", f"Bearer {token(principals=['law'])}")]
    assert client.post("/search", content=body, headers=twice).status_code == 401
    assert client.post("/search", content=body, headers={"authorization": f"Basic {token()}"}).status_code == 401
    proxied = make_service(header="X-Principals")
    twice = [("x-principals", "hr"), ("x-principals", "law")]
    assert proxied.post("/search", content=body, headers=twice).status_code == 401


def test_a_public_key_checks_tokens(make_service):
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    client = make_service(algorithm="RS256", key=pem.decode(), audience="search")
    assert found(client, bearer(token(key=private, algorithm="RS256"))) == ["a", "b", "c"]
    # the public key as the secret of HS256, which PyJWT would not sign with
    import hashlib
    import hmac

    head, content, _ = token().split(".")
    mac = hmac.new(pem, f"{head}.{content}".encode(), hashlib.sha256).digest()
    forged = f"{head}.{content}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert client.post("/search", json={"query": "red"}, headers=bearer(forged)).status_code == 401


def test_a_proxys_header(make_service):
    client = make_service(header="X-Principals")
    assert found(client) == ["a"]
    assert found(client, {"X-Principals": "x, law "}) == ["a", "c"]
    assert found(client, {"X-Principals": ""}) == ["a"]
    assert found(client, bearer(token())) == ["a"]


def test_names_with_commas_in_a_header_stand_between_quotes():
    header = r""""CN=HR,OU=Groups", law,,"say \\ \"hi\"" """
    assert names_in_header(header) == ["CN=HR,OU=Groups", "law", "", r'say \ "hi"']
    assert names_in_header("Zo\u00eb".encode().decode("latin-1")) == ["Zo\u00eb"]
    for odd in ('"hr', 'hr"', '"a"b', '"a\\', "a\xff", 'a,"b" c'):
        with pytest.raises(Refusal) as error:
            names_in_header(odd)
        assert error.value.status_code == 401


def test_a_subject_is_not_the_holder_of_principals(make_service):
    """Users are pairs of a kind and a name, and so apart whatever either of them contains."""
    settings = PermissionSettings(**TOKENS)

    def user(**changes):
        return authenticate(settings, Headers(bearer(token(**changes)))).user

    users = [
        user(sub="a,b"),
        user(sub='["a", "b"]'),
        user(sub='principals:["a", "b"]'),
        user(principals=["a", "b"]),
        user(principals=["a,b"]),
        user(principals=["a", "b", "c"]),
        User(NAMED, "a,b"),
    ]
    assert len({one.key for one in users}) == len(users)
    assert user(principals=["b", "a"]) == user(principals=["a", "b", "a"])
    header = PermissionSettings(header="X-Principals")
    assert authenticate(header, Headers({"X-Principals": "b, a"})).user == user(principals=["a", "b"])
    trusting = SearchRequest(query="x", principals=["a", "b"])
    trusting.sent_by(authenticate(PermissionSettings(trust_body=True), Headers()))
    assert trusting.caller.user == user(principals=["a", "b"])
    strangers = [
        authenticate(settings, Headers()),
        authenticate(settings, Headers(bearer(token(principals=None)))),
        Caller(),
    ]
    assert [caller.known_user for caller in strangers] == [None] * 3
    assert authenticate(settings, Headers(bearer(token(sub="a", principals=None)))).known_user == "sub:a"


def test_principals_of_a_list_are_taken_as_they_are(make_service):
    """A group whose name has blanks around it is not the group without them."""
    client = make_service(**TOKENS)
    assert found(client, bearer(token(principals=[" hr", "law "]))) == ["a"]
    assert found(client, bearer(token(principals=["hr,law"]))) == ["a"]


def test_bodies_are_trusted_only_where_it_is_set(make_service):
    client = make_service(**TOKENS)
    refused = client.post("/search", json={"query": "red", "principals": ["hr"]}, headers=bearer(token()))
    assert refused.status_code == 422
    assert "principals: must come from the token or the proxy's header" in refused.json()["message"]
    trusting = make_service(trust_body=True)
    assert found(trusting, principals=["law"]) == ["a", "c"]
    assert found(trusting) == ["a"]
    new = {"documents": [{"id": "e", "text": "red melon"}]}
    assert trusting.post("/documents", json=new).status_code == 403
    assert trusting.post("/documents", json={**new, "principals": ["write"]}).status_code == 200
    assert trusting.request("DELETE", "/documents", json={"ids": ["e"], "principals": ["write"]}).status_code == 200
    assert found(make_service()) == ["a"]  # nothing is set


def test_the_key_and_a_token(make_service):
    client = make_service(api_key="secret", **TOKENS)
    assert client.post("/search", json={"query": "red"}, headers=bearer(token())).status_code == 401
    assert client.post("/search", json={"query": "red"}, headers=bearer("secret")).status_code == 401
    assert found(client, {"x-api-key": "secret"}) == ["a"]
    assert found(client, {"x-api-key": "secret", **bearer(token())}) == ["a", "b", "c"]


def test_adding_and_deleting_need_the_principal_write(make_service):
    client = make_service(**TOKENS)
    new = {"documents": [{"id": "e", "text": "red melon", "metadata": {"principals": ["law"]}}]}
    for headers in ({}, bearer(token())):
        assert client.post("/documents", json=new, headers=headers).status_code == 403
        assert client.request("DELETE", "/documents", json={"ids": ["a"]}, headers=headers).status_code == 403
    writer = bearer(token(principals=["write"]))
    added = client.post("/documents", json=new, headers=writer)
    assert added.status_code == 200, added.text
    assert found(client, bearer(token(principals=["law"]))) == ["a", "c", "e"]
    assert found(client, writer) == ["a"]
    assert client.request("DELETE", "/documents", json={"ids": ["a"]}, headers=writer).status_code == 200
    assert found(client) == []
    bad = {"documents": [{"id": "f", "text": "x", "metadata": {"principals": "law"}}]}
    refused = client.post("/documents", json=bad, headers=writer)
    assert (refused.status_code, "`principals` must be a list of strings" in refused.json()["message"]) == (422, True)


def test_writing_is_refused_before_anything_is_encoded(make_service, monkeypatch):
    monkeypatch.setattr(Batcher, "ask", lambda *_, **__: pytest.fail("the request came to an engine"))
    new = {"documents": [{"id": "e", "text": "red melon"}]}
    assert make_service(**TOKENS).post("/documents", json=new, headers=bearer(token())).status_code == 403


def test_nobody_writes_to_a_corpus_of_principals_that_nobody_has(make_service):
    client = make_service()
    new, old = {"documents": [{"id": "a", "text": "red melon"}]}, {"ids": ["d"]}
    refused = [client.post("/documents", json=new), client.request("DELETE", "/documents", json=old)]
    assert [answer.status_code for answer in refused] == [403, 403]
    assert "changes require the principal `write`" in refused[1].json()["message"]


@pytest.mark.parametrize("path", ["/search", "/inspect"])
def test_errors_of_a_database_are_for_the_logs_alone(make_service, monkeypatch, path):
    def fail(*_):
        raise UserError("collection 'secret': needed the 1,000 passages of the corpus, found 7")

    monkeypatch.setattr(BM25Retriever, "retrieve", fail)
    answer = make_service(**TOKENS).post(path, json={"query": "red"}, headers=bearer(token()))
    assert answer.status_code == 500
    assert not {"secret", "1,000"} & {*answer.text.replace("'", " ").split()}


@pytest.mark.parametrize("path", ["/search", "/inspect"])
@pytest.mark.parametrize("given", [{"filter": {"lang": "de"}}, {"as_of": "0001-01-01T00:00:00+14:00"}])
def test_what_does_not_fit_is_named(make_service, path, given):
    answer = make_service(**TOKENS).post(path, json={"query": "red", **given}, headers=bearer(token()))
    assert answer.status_code == 422
    assert ("`filter.lang`" if "filter" in given else "`as_of`") in answer.json()["message"]


def test_a_folder_of_an_older_version_takes_no_principals(make_service, tmp_path):
    folder = make_service.folder
    manifest = json.loads((folder / "corpus.json").read_text())
    manifest["columns"] = {name: of for name, of in manifest["columns"].items() if not name.startswith("metadata")}
    (folder / "corpus.json").write_text(json.dumps(manifest))
    with pytest.raises(
        ValueError, match="was written by an older version without principals; prepare the corpus again"
    ):
        grow_corpus(folder, ["x"], ["text"], metadata=[{"principals": ["a"]}])


def test_changed_principals_are_prepared_again(make_service):
    folder = make_service.folder
    dataset = open_corpus(folder)
    metadata = Metadata([{}, {}, {}, {}])
    changed = replace(dataset, graph=dataset.graph.with_passages(metadata=metadata))
    prepare_corpus(changed, folder)
    assert not open_corpus(folder).graph.is_guarded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "none"}, "`permissions.algorithm` must be one of"),
        ({"algorithm": "HS256", "key": KEY}, "`permissions.key` and `permissions.audience` must be set"),
        ({"algorithm": "HS256", "audience": "x", "key": "short"}, "at least 32 bytes for HS256, got 5"),
        ({"algorithm": "RS256", "audience": "x", "key": KEY}, "a public key in PEM format for RS256"),
        ({**TOKENS, "header": "X"}, "`permissions.header` must be null if `permissions.algorithm` is set"),
        ({"statistics": "all"}, "`permissions.statistics` must be one of"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        PermissionSettings(**settings)


def test_a_key_is_in_no_text():
    assert KEY not in repr(ServiceSettings(permissions=PermissionSettings(**TOKENS)))
