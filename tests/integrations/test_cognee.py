"""As a retriever of cognee, over its own graph and vector databases in files.

cognee has no encoder without a hub or an endpoint, so that hashed words take its place.
"""

import asyncio
import importlib
import re
import zlib
from typing import Any

import pytest

pytest.importorskip("cognee", reason="cognee, which wants an environment of its own")
import cognee
from cognee.infrastructure.databases.unified import get_unified_engine
from cognee.infrastructure.databases.vector.embeddings.EmbeddingEngine import EmbeddingResult
from cognee.low_level import DataPoint, setup
from cognee.modules.graph.cognee_graph.CogneeGraphElements import Edge as Triplet
from cognee.modules.graph.cognee_graph.CogneeGraphElements import Node
from cognee.modules.retrieval.base_retriever import BaseRetriever
from cognee.modules.retrieval.graph_completion_retriever import GraphCompletionRetriever
from cognee.modules.retrieval.registered_community_retrievers import registered_community_retrievers
from cognee.modules.search.types import SearchType
from cognee.tasks.storage import add_data_points

from graphrerank import GraphReranker
from graphrerank.integrations.cognee import GraphRerankRetriever, edges_of_triplets, text_of
from tests.support import ROOT
from tests.support.pages import blocks_of

QUESTIONS = ["Which worm spreads through USB sticks?", "Who wrote the worm?"]
SIZE = 64
INDEXED = {"index_fields": ["name"]}


class HashedWords:
    async def embed_text(self, text):
        vectors = []
        for entry in text:
            counts = [0.01] * SIZE
            for word in re.findall(r"\w+", entry.lower()):
                counts[zlib.crc32(word.encode()) % SIZE] += 1
            length = sum(count * count for count in counts) ** 0.5
            vectors.append([count / length for count in counts])
        return EmbeddingResult(vectors, tokens=0)

    def get_vector_size(self):
        return SIZE

    def get_batch_size(self):
        return SIZE


class Person(DataPoint):
    name: str
    description: str
    metadata: Any = INDEXED


class Malware(DataPoint):
    name: str
    description: str
    written_by: Person
    metadata: Any = INDEXED


async def remember():
    """Fill the memory: four facts by data points, and one with a date of effect, which cognee keeps on an edge."""
    await setup()
    ada, bob = Person(name="Ada", description="a baker"), Person(name="Bob", description="a cook")
    malware = [
        Malware(name="Stuxworm", description="a worm that spreads through USB sticks", written_by=ada),
        Malware(name="Mailer", description="a phishing mail", written_by=bob),
        Malware(name="Cake", description="a cake recipe that is no malware", written_by=bob),
        Malware(name="Crawler", description="a worm on removable drives", written_by=ada),
    ]
    await add_data_points([ada, bob, *malware])
    dated = {"edge_text": "Ada left Bob.", "effective_date": "2026-01-10"}
    await (await get_unified_engine()).graph.add_edges([(str(ada.id), str(bob.id), "left", dated)])


@pytest.fixture(scope="module")
def reranker():
    return GraphReranker.from_pretrained("base")  # it reads the types of edges


@pytest.fixture(scope="module")
def memory(reranker, tmp_path_factory):
    """Everything that is asked of one memory, in one event loop, to which its databases are bound."""
    root = tmp_path_factory.mktemp("cognee")
    cognee.config.system_root_directory(str(root / "system"))
    cognee.config.data_root_directory(str(root / "data"))
    encoders = importlib.import_module("cognee.infrastructure.databases.vector.embeddings.get_embedding_engine")

    async def ask():
        await remember()
        ours = GraphRerankRetriever(reranker, top_k=3)
        assert isinstance(ours, BaseRetriever)
        found = {
            "cognee's": await GraphCompletionRetriever(top_k=100).get_retrieved_objects(QUESTIONS[0]),
            "ours": await ours.get_retrieved_objects(QUESTIONS[0]),
            "all of ours": await GraphRerankRetriever(reranker, top_k=100).get_retrieved_objects(QUESTIONS[0]),
            "batch": await ours.get_retrieved_objects(query_batch=QUESTIONS),
            "cognee's batch": await GraphCompletionRetriever(top_k=100).get_retrieved_objects(query_batch=QUESTIONS),
        }
        found["context"] = await ours.get_context_from_objects(QUESTIONS[0], retrieved_objects=found["ours"])
        (block,) = [block for block in blocks_of(ROOT / "docs" / "adapters.md") if "use_reranker" in block.code]
        exec(compile(block.code, str(block), "exec"))
        found["search"] = await cognee.search(
            QUESTIONS[0], query_type=SearchType.GRAPH_COMPLETION, top_k=3, only_context=True
        )
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "create_embedding_engine", lambda *arguments, **settings: HashedWords())
        # set by `use_reranker`, undone after the fixture
        patch.setitem(registered_community_retrievers, SearchType.GRAPH_COMPLETION, None)
        return asyncio.run(ask())


def expected(reranker, question, triplets, place=0):
    """Texts and relevance of facts that the reranker ranks by their texts, edges and similarities."""
    edges = edges_of_triplets(triplets)
    parts = [(triplet.node1, triplet.node2, triplet) for triplet in triplets]
    ranking = reranker.rerank(
        question,
        [text_of(triplet) for triplet in triplets],
        scores=[sum(max(0, 1 - part.attributes["vector_distance"][place]) for part in found) for found in parts],
        edges=[(i, j) for i, j, _ in edges],
        edge_types=[kind for *_, kind in edges],
    )
    return [(text_of(triplets[i]), s) for i, s in zip(ranking.ids, ranking.relevance.tolist(), strict=True)]


def listed(triplets):
    return [(text_of(triplet), triplet.attributes["relevance_score"]) for triplet in triplets]


def same(found, wanted):
    assert [text for text, _ in found] == [text for text, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-5)


def test_facts_are_ranked_with_their_edges(reranker, memory):
    candidates = memory["cognee's"]
    assert len(candidates) == 5
    assert len(edges_of_triplets(candidates)) > 4
    wanted = expected(reranker, QUESTIONS[0], candidates)
    same(listed(memory["all of ours"]), wanted)
    same(listed(memory["ours"]), wanted[:3])
    assert "USB sticks" in wanted[0][0]


def test_a_date_is_read(memory):
    dated = [text for text, _ in listed(memory["all of ours"]) if text.startswith("Ada left Bob.")]
    assert dated == ["Ada left Bob.\nAda: a baker\nBob: a cook\n2026-01-10"]


def test_batch_against_its_own_candidates(reranker, memory):
    for place, question in enumerate(QUESTIONS):
        wanted = expected(reranker, question, memory["cognee's batch"][place], place)
        same(listed(memory["batch"][place]), wanted[:3])


def test_context_and_search_hold_the_best_facts(memory):
    best = memory["ours"]
    names = [f"{fact.node1.attributes['name']} --[{fact.attributes['relationship_type']}]-->" for fact in best]
    connections = memory["context"].split("Connections:\n")[1].splitlines()
    assert [line.split("> ")[0] + ">" for line in connections] == names
    assert memory["context"] in str(memory["search"]).replace("\\n", "\n")


def fact(first, second, *, date=None, sentence=None):
    attributes = {"relationship_type": "knows", "edge_text": sentence, "effective_date": date}
    return Triplet(first, second, attributes=attributes)


def test_edges_by_hand():
    ada, bob, eve = (Node(name, {"name": name, "type": "Entity"}) for name in ("Ada", "Bob", "Eve"))
    chunk, kind = Node("c", {"text": "Ada and Eve.", "type": "DocumentChunk"}), Node("k", {"type": "EntityType"})
    triplets = [
        fact(ada, bob, date="2026-03-01"),  # 0
        fact(chunk, ada),  # 1
        fact(chunk, eve),  # 2
        fact(ada, ada, date="2025-01-01"),  # 3
        fact(bob, kind),  # 4
        fact(eve, kind),  # 5
        fact(bob, ada, date="2027-01-01"),  # 6
    ]
    assert edges_of_triplets(triplets) == [
        (0, 1, "entity"),
        (0, 3, "adjacency"),  # the later of two facts of Ada follows the earlier one
        (0, 3, "entity"),
        (0, 4, "entity"),
        (0, 6, "adjacency"),
        (0, 6, "entity"),
        (1, 2, "adjacency"),  # one chunk
        (1, 3, "entity"),
        (1, 6, "entity"),
        (2, 5, "entity"),
        (3, 6, "entity"),
        (4, 5, "other"),  # one kind
        (4, 6, "entity"),
    ]
    assert edges_of_triplets([]) == []


def test_texts_by_hand():
    ada, chunk = Node("a", {"name": "Ada", "description": "Ada"}), Node("c", {"name": "x", "text": "Ada bakes."})
    assert text_of(fact(ada, chunk)) == "Ada knows x\nAda\nAda bakes."
    assert text_of(fact(ada, ada, sentence="Ada knows herself.", date="2026-01-10T08:00")) == (
        "Ada knows herself.\nAda\n2026-01-10"
    )


def test_no_candidates_are_refused(reranker):
    with pytest.raises(ValueError, match="`candidate_top_k` must be positive, got 0"):
        GraphRerankRetriever(reranker, candidate_top_k=0)
