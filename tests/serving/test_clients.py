"""Clients of other projects against ``python serve.py artifact=base``, each skipped where it is not installed.

``pip install --no-deps --target DIR -r .ci/clients.txt`` installs them in a folder for ``PYTHONPATH``. They are in
no extra, because some need other versions of packages of the development environment.
"""

import pytest

from graphrerank import GraphReranker
from tests.support.running import running

pytestmark = pytest.mark.slow  # a running service

QUERY = "spreads by removable media"
DOCUMENTS = ["a cake", "malware on removable media", "a dog"]
LITELLM_BASES = {  # provider -> path of `api_base`
    "cohere": "",
    "jina_ai": "",
    "hosted_vllm": "",
    "huggingface": "",
    "voyage": "/voyage",
    "infinity": "/infinity",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), "artifact=base", "encoder=none") as service:
        yield service


@pytest.fixture(scope="module")
def expected():
    """Texts and probabilities of the ranked documents, best first."""
    ranking = GraphReranker.from_pretrained("base").rerank(QUERY, DOCUMENTS)
    return [(DOCUMENTS[index], score) for index, score in zip(ranking.ids, ranking.relevance.tolist(), strict=True)]


def assert_same(results, expected):
    assert [text for text, _ in results] == [text for text, _ in expected]
    assert [score for _, score in results] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.fixture(scope="module")
def litellm():
    environment = pytest.MonkeyPatch()
    environment.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise the import downloads a table of prices
    yield pytest.importorskip("litellm", reason="litellm is optional")
    environment.undo()


@pytest.mark.parametrize("top_n", [2, None])
@pytest.mark.parametrize("provider", LITELLM_BASES)
def test_litellm(service, expected, litellm, provider, top_n):
    response = litellm.rerank(
        model=f"{provider}/base",
        query=QUERY,
        documents=DOCUMENTS,
        top_n=top_n,
        return_documents=True,
        api_key="any key",
        api_base=service.url + LITELLM_BASES[provider],
    )
    results = [(each["document"]["text"], each["relevance_score"]) for each in response.results]
    assert [DOCUMENTS[each["index"]] for each in response.results] == [text for text, _ in results]
    assert_same(results, expected[:top_n])


def test_litellm_with_voyages_limit_needs_no_path(service, expected, litellm):
    arguments = {"query": QUERY, "documents": DOCUMENTS, "top_n": 2, "api_key": "any key", "api_base": service.url}
    results = litellm.rerank(model="voyage/base", **arguments).results
    assert_same([(DOCUMENTS[each["index"]], each["relevance_score"]) for each in results], expected[:2])


@pytest.mark.parametrize("provider", LITELLM_BASES)
def test_litellm_shows_why_a_request_is_refused(service, litellm, provider):
    arguments = {"query": " ", "documents": DOCUMENTS, "api_key": "any key", "num_retries": 0}
    with pytest.raises(
        (litellm.exceptions.BadRequestError, litellm.exceptions.APIError), match="`query` must be a non-blank string"
    ):
        litellm.rerank(model=f"{provider}/base", api_base=service.url + LITELLM_BASES[provider], **arguments)


def test_langchains_cohere_reranker(service, expected):
    module = pytest.importorskip("langchain_cohere", reason="langchain-cohere is optional")
    documents = pytest.importorskip("langchain_core.documents", reason="langchain-core is optional")
    reranker = module.CohereRerank(model="base", cohere_api_key="any key", base_url=service.url, top_n=2)
    ranked = reranker.compress_documents([documents.Document(text) for text in DOCUMENTS], QUERY)
    assert_same([(each.page_content, each.metadata["relevance_score"]) for each in ranked], expected[:2])


def llama_index_nodes():
    schema = pytest.importorskip("llama_index.core.schema", reason="llama-index-core is optional")
    return [schema.NodeWithScore(node=schema.TextNode(text=text)) for text in DOCUMENTS]


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [("cohere_rerank", "CohereRerank", ""), ("jinaai_rerank", "JinaRerank", "/v1")],
)
def test_llama_index(service, expected, module, name, path):
    package = f"llama_index.postprocessor.{module}"
    reranker_class = getattr(pytest.importorskip(package, reason=f"{package} is optional"), name)
    reranker = reranker_class(base_url=service.url + path, api_key="any key", top_n=2)
    ranked = reranker.postprocess_nodes(llama_index_nodes(), query_str=QUERY)
    assert_same([(each.node.text, each.score) for each in ranked], expected[:2])


def test_llama_index_shows_why_jinas_request_is_refused(service):
    package = "llama_index.postprocessor.jinaai_rerank"
    module = pytest.importorskip(package, reason=f"{package} is optional")
    for path, message in (("/v1", "`query` must be a non-blank string"), ("/v5", "Not Found")):
        reranker = module.JinaRerank(base_url=service.url + path, api_key="any key")
        with pytest.raises(RuntimeError, match=message):
            reranker.postprocess_nodes(llama_index_nodes(), query_str=" ")
