from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.text import WordTokenizer
from graphrerank_papers.ket.index import KETSettings
from graphrerank_papers.ket.retrieval import SOLUTIONS
from graphrerank_papers.ket.search import KETSearch

MakeDocuments = Callable[..., list[str]]
Build = Callable[..., Pipeline]


@pytest.fixture
def graph(make_documents: MakeDocuments) -> CorpusGraph:
    documents = [*make_documents(12), "", *make_documents(3, num_tokens=70, seed=1)]
    return CorpusGraph.from_edges([f"d{i}" for i in range(16)], documents, torch.tensor([[0, 1], [1, 2]]))


@pytest.fixture
def build(tmp_path: Path, hash_encoder: Any, name_extractor: Any, graph: CorpusGraph) -> Build:
    def make(*, budget: int = 6, **settings: Any) -> Pipeline:
        index = KETSettings(chunk_tokens=24, num_splits=1, join=settings.pop("join", True))
        parts = {"folder": tmp_path, "tokenizer": WordTokenizer(), "extractor": name_extractor, "index": index}
        step = partial(KETSearch, **parts, context_tokens=200, **settings)
        return Pipeline(graph, steps=[step], budget=budget, text_encoder=hash_encoder, batch_queries=4)

    return make


@pytest.fixture
def queries(hash_encoder: Any) -> Queries:
    texts = [f"query {i}" for i in range(7)]
    return Queries([f"q{i}" for i in range(7)], texts, hash_encoder.encode(texts))


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_documents_by_their_best_chunk(
    solution: str, join: bool, build: Build, queries: Queries, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = build(solution=solution, join=join)
    assert capsys.readouterr().out.startswith("nodes: 16 documents of 498 tokens, ")
    (step,) = pipeline._steps
    assert isinstance(step, KETSearch)
    found, contexts = pipeline.retrieve(queries).ranking, step.retrieval(queries.encoded)
    indptr, documents = step._indptr.tolist(), step._documents.tolist()
    for row in range(7):
        best: dict[int, float] = {}
        for chunk, score in zip(
            contexts.ranking.nodes[row].tolist(), contexts.ranking.scores[row].tolist(), strict=True
        ):
            for document in documents[indptr[chunk] : indptr[chunk + 1]] if chunk >= 0 else []:
                best[document] = max(best.get(document, -2.0), score)
        order = sorted(best, key=lambda document: (-best[document], document))[:6]
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert nodes == order
        assert 12 not in nodes  # it has no word
        assert found.scores[row][: len(nodes)].tolist() == pytest.approx([best[document] for document in order])


def test_a_batch_equals_single_queries(build: Build, queries: Queries) -> None:
    pipeline = build()
    together = pipeline.retrieve(queries).ranking
    for row in range(7):
        alone = pipeline.retrieve(queries.block(row, row + 1)).ranking
        assert torch.equal(alone.nodes[0], together.nodes[row])
        torch.testing.assert_close(alone.scores[0], together.scores[row])


def test_an_index_needs_an_encoder(graph: CorpusGraph, tmp_path: Path) -> None:
    step = partial(KETSearch, folder=tmp_path, tokenizer=WordTokenizer(), index=KETSettings())
    with pytest.raises(ValueError, match=r"`text_encoder` must be given for an index, with a fingerprint .*, got None"):
        Pipeline(graph, steps=[step])


def test_no_such_solution(build: Build) -> None:
    with pytest.raises(ValueError, match=r"`solution` must be one of \['text_rag', .*\], got 'rag'"):
        build(solution="rag")
