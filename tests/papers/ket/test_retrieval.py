from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.text import WordTokenizer
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings
from graphrerank_papers.ket.retrieval import SOLUTIONS, KETRetrieval

MakeDocuments = Callable[..., list[str]]
BuildIndex = Callable[..., KETIndex]


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


def test_each_solution_has_a_share_of_its_own_unless_one_is_given(build_index: BuildIndex) -> None:
    for solution, share in (("ket_p", 400), ("ket_u", 400), ("hybrid_rag", 500)):
        index = build_index(solution)
        assert KETRetrieval(index, solution=solution, context_tokens=1000).limits["graph"] == share
        assert KETRetrieval(index, solution=solution, context_tokens=1000, graph_share=0.2).limits["graph"] == 200


def test_twins_go_by_number(build_index: BuildIndex, make_documents: MakeDocuments, queries: torch.Tensor) -> None:
    documents = make_documents(10)
    index = build_index(documents=documents * 2, num_splits=0, join=False, core_share=1.0)
    nodes = KETRetrieval(index, context_tokens=700, graph_share=0.2)(queries).parts["keyword"]
    for row in nodes.tolist():
        own = [node for node in row if node >= 0]
        assert own[1::2] == [node + 10 for node in own[0::2]][: len(own) // 2]


def test_shares_of_nothing(build_index: BuildIndex, queries: torch.Tensor) -> None:
    index = build_index()
    keywords = KETRetrieval(index, context_tokens=100, graph_share=0.0)(queries)
    assert set(keywords.parts) == {"entities", "relations", "graph", "keyword"}
    assert not any((keywords.parts[name] >= 0).any() for name in ("entities", "relations", "graph"))
    skeleton = KETRetrieval(index, context_tokens=100, graph_share=1.0)(queries)
    assert not (skeleton.parts["keyword"] >= 0).any()
    none = build_index(core_share=0.0)
    assert KETRetrieval(none, context_tokens=100)(queries).parts.keys() == {"keyword"}


def test_no_queries(build_index: BuildIndex) -> None:
    found = KETRetrieval(build_index())(torch.zeros(0, 6))
    assert (list(found.texts), found.ranking.nodes.shape[0], found.num_tokens.tolist()) == ([], 0, [])


@pytest.mark.parametrize("solution", ["ket_p", "hybrid_rag", "knng_rag"])
def test_all_state_is_in_buffers(solution: str, build_index: BuildIndex) -> None:
    retrieval = KETRetrieval(build_index(solution), solution=solution)
    modules = dict(retrieval.named_modules())
    assert set(modules) == {"", "channels", *(f"channels.{name}" for name in SOLUTIONS[solution].channels)}
    for module in modules.values():
        assert [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_on_a_gpu(solution: str, build_index: BuildIndex, queries: torch.Tensor) -> None:
    index = build_index(solution)
    here = KETRetrieval(index, solution=solution, context_tokens=200)(queries)
    there = KETRetrieval(index, solution=solution, context_tokens=200).cuda()(queries.cuda())
    assert here.texts == there.texts
    assert torch.equal(here.ranking.nodes, there.ranking.nodes.cpu())


def test_arguments_out_of_range(build_index: BuildIndex) -> None:
    index = build_index()
    for settings, message in (
        ({"context_tokens": 0}, "`context_tokens` must be a positive integer, got 0"),
        ({"graph_share": 1.1}, r"`graph_share` must lie in \[0, 1\], got 1.1"),
        ({"num_seeds": 0}, "`num_seeds` must be a positive integer, got 0"),
        ({"solution": "rag"}, r"`solution` must be one of .*, got 'rag'"),
        ({"solution": "text_rag"}, r"`index` must be built with KETSettings\(.* for text_rag, got KETSettings\("),
    ):
        with pytest.raises(ValueError, match=message):
            KETRetrieval(index, **settings)
    with pytest.raises(ValueError, match=r"`queries` must be \[B, 6\], got \[2, 5\]"):
        KETRetrieval(index)(torch.zeros(2, 5))
    other = replace(index, settings=replace(index.settings, core_selection="random"))
    with pytest.raises(ValueError, match="for ket_p, got"):
        KETRetrieval(other)
