from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.text import WordTokenizer
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings
from graphrerank_papers.ket.retrieval import SOLUTIONS, KETRetrieval, KETSearch
from tests.support.device import made_up_device, traffic

MakeDocuments = Callable[..., list[str]]
KINDS = ("entities", "relations", "graph", "keyword")
BuildIndex = Callable[..., KETIndex]
Build = Callable[..., Pipeline]


@pytest.fixture
def build_index(tmp_path: Path, hash_encoder: Any, name_extractor: Any, make_documents: MakeDocuments) -> BuildIndex:
    def build(solution: str = "ket_p", documents: list[str] | None = None, **settings: Any) -> KETIndex:
        builder = KETIndexBuilder(tmp_path, tokenizer=WordTokenizer(), encoder=hash_encoder, extractor=name_extractor)
        made = SOLUTIONS[solution].settings(KETSettings(**{"chunk_tokens": 24, "num_splits": 1, **settings}))
        return builder.build(make_documents(20) if documents is None else documents, made)

    return build


@pytest.fixture
def queries(hash_encoder: Any) -> torch.Tensor:
    return hash_encoder.encode([f"query {i}" for i in range(20)])


def test_twins_go_by_number(build_index: BuildIndex, make_documents: MakeDocuments, queries: torch.Tensor) -> None:
    documents = make_documents(10)
    index = build_index(documents=documents * 2, num_splits=0, join=False, core_share=1.0)
    for part in KETRetrieval(index, context_tokens=700, graph_share=0.2)(queries).parts:
        own = part["keyword"]
        assert own[1::2] == [node + 10 for node in own[0::2]][: len(own) // 2]


def test_shares_of_the_channels(build_index: BuildIndex, queries: torch.Tensor) -> None:
    for solution, share in (("ket_p", 400), ("hybrid_rag", 500)):
        index = build_index(solution)
        assert KETRetrieval(index, solution=solution, context_tokens=1000).limits["graph"] == share
        assert KETRetrieval(index, solution=solution, context_tokens=1000, graph_share=0.2).limits["graph"] == 200
    index = build_index()
    keywords = KETRetrieval(index, context_tokens=100, graph_share=0.0)(queries)
    assert all(part | {"keyword": []} == {kind: [] for kind in KINDS} for part in keywords.parts)
    skeleton = KETRetrieval(index, context_tokens=100, graph_share=1.0)(queries)
    assert not any(part["keyword"] for part in skeleton.parts)
    none = build_index(core_share=0.0)
    assert KETRetrieval(none, context_tokens=100)(queries).parts[0].keys() == {"keyword"}


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_on_a_device(solution: str, build_index: BuildIndex, queries: torch.Tensor) -> None:
    index, costs = build_index(solution), []
    here = KETRetrieval(index, solution=solution, context_tokens=200)(queries)
    with made_up_device() as device:
        retrieval = KETRetrieval(index, solution=solution, context_tokens=200, device=device)
        for asked in (queries, queries.repeat(3, 1)):
            before = traffic.now()
            there = retrieval(asked)
            costs.append(traffic - before)
        nodes = there.ranking.nodes.cpu()
    assert here.texts * 3 == there.texts
    assert torch.equal(here.ranking.nodes.repeat(3, 1), nodes)
    assert costs[0] == costs[1]


def test_arguments_out_of_range(build_index: BuildIndex) -> None:
    index = build_index()
    for settings, message in (
        ({"solution": "rag"}, r"`solution` must be one of .*, got 'rag'"),
        (
            {"solution": "text_rag"},
            r"`index` must be built with KETSettings\(.* for solution=text_rag, got KETSettings\(",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            KETRetrieval(index, **settings)
    with pytest.raises(ValueError, match=r"`queries` must be \[B, 6\], got \[2, 5\]"):
        KETRetrieval(index)(torch.zeros(2, 5))


@pytest.fixture
def build(tmp_path: Path, hash_encoder: Any, name_extractor: Any, make_documents: MakeDocuments) -> Build:
    def make(*, join: bool, solution: str) -> Pipeline:
        documents = [*make_documents(12), "", *make_documents(3, num_tokens=70, seed=1)]
        graph = CorpusGraph.from_edges([f"d{i}" for i in range(16)], documents, torch.tensor([[0, 1], [1, 2]]))
        parts = {"folder": tmp_path, "tokenizer": WordTokenizer(), "extractor": name_extractor, "solution": solution}
        index = KETSettings(chunk_tokens=24, num_splits=1, join=join)
        step = partial(KETSearch, **parts, index=index, context_tokens=200)
        return Pipeline(graph, steps=[step], budget=6, text_encoder=hash_encoder, batch_queries=4)

    return make


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_documents_by_their_best_chunk(
    solution: str, join: bool, build: Build, hash_encoder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline, texts = build(solution=solution, join=join), hash_encoder.queries([f"query {i}" for i in range(7)])
    assert capsys.readouterr().out.startswith("KET-RAG index: 16 documents, 498 tokens, ")
    (step,) = pipeline._steps
    found, contexts = pipeline.retrieve(texts).ranking, step.retrieval(texts.encoded)
    indptr, documents = step._indptr.tolist(), step._documents.tolist()
    for row in range(7):
        best: dict[int, float] = {}
        ranked = contexts.ranking.nodes[row].tolist(), contexts.ranking.scores[row].tolist()
        for chunk, score in zip(*ranked, strict=True):
            for document in documents[indptr[chunk] : indptr[chunk + 1]] if chunk >= 0 else []:
                best[document] = max(best.get(document, -2.0), score)
        order = sorted(best, key=lambda document: (-best[document], document))[:6]
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert nodes == order
        assert 12 not in nodes  # it has no word
        assert found.scores[row][: len(nodes)].tolist() == pytest.approx([best[document] for document in order])
        alone = pipeline.retrieve(texts.block(row, row + 1)).ranking
        assert torch.equal(alone.nodes[0], found.nodes[row])
        torch.testing.assert_close(alone.scores[0], found.scores[row])


def test_an_index_needs_an_encoder(tmp_path: Path) -> None:
    graph = CorpusGraph.from_edges(["a", "b"], ["a", "b"], torch.tensor([[0, 1]]))
    step = partial(KETSearch, folder=tmp_path, tokenizer=WordTokenizer(), index=KETSettings())
    with pytest.raises(ValueError, match=r"`text_encoder` must have a fingerprint to build an index .*, got None"):
        Pipeline(graph, steps=[step])
