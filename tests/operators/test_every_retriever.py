"""Laws of every retriever: no query, single queries, more places than nodes, no place, no vector."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Retriever
from graphrerank.core.adapters import needs_vectors
from graphrerank.operators import bm25, expand, hybrid, splade
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.late_interaction import LateInteractionRetriever
from graphrerank.operators.splade import SpladeRetriever
from tests.operators.corpora import assert_equal, corpus, corpus_of, queries, queries_of

Build = Callable[..., Retriever]
EXPAND = {"base_k": 2, "num_seeds": 2}
RETRIEVERS: dict[str, Any] = {
    "bm25": partial(BM25Retriever),
    "dense": partial(DenseRetriever),
    "hybrid": partial(HybridRetriever),
    "hybrid_expand": partial(HybridExpandRetriever, **EXPAND),
    "bm25_expand": partial(ExpandRetriever, base=partial(BM25Retriever), **EXPAND),
    "splade": partial(SpladeRetriever, device="cpu"),
    "late_interaction": partial(LateInteractionRetriever, token_states=True, device="cpu"),
}


@pytest.fixture(params=RETRIEVERS)
def build(request: pytest.FixtureRequest, sparse_encoder: Path, tiny_encoder: Path) -> Build:
    models = {"splade": sparse_encoder, "late_interaction": tiny_encoder}
    model = {"model": str(models[request.param])} if request.param in models else {}
    return partial(RETRIEVERS[request.param], **model)


def test_any_number_of_queries_in_any_blocks(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever, asked = build(corpus(), top_k=5), queries()
    whole = retriever.retrieve(asked)
    assert whole.features.shape == (7, 5, len(retriever.feature_names))
    none = retriever.retrieve(asked.block(0, 0))
    assert (none.nodes.shape, none.nodes.dtype, none.features.shape[:2]) == ((0, 5), torch.int64, (0, 5))
    for row in range(7):
        assert_equal(retriever.retrieve(asked.block(row, row + 1)), whole.select(torch.tensor([row])))
    for size in (1, 45, 100):
        for module in (bm25, expand, hybrid, splade):
            monkeypatch.setattr(module, "BLOCK_SCORES", size)
        assert_equal(retriever.retrieve(asked), whole)


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_more_places_than_nodes(build: Build, num_nodes: int) -> None:
    found = build(corpus(num_nodes), top_k=8).retrieve(queries())
    assert found.nodes.sort(1).values.tolist() == [[-1] * (8 - num_nodes) + list(range(num_nodes))] * 7
    assert (found.scores[found.nodes < 0] == -torch.inf).all()
    assert (found.features[found.nodes < 0] == 0).all()


def test_what_is_missing_is_named(build: Build) -> None:
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        build(corpus(), top_k=0)
    if needs_vectors(build):
        with pytest.raises(ValueError, match="`graph` must have an embedding"):
            build(corpus_of(["fox"]))
        with pytest.raises(ValueError, match="`queries` must have vectors"):
            build(corpus(), top_k=5).retrieve(replace(queries(), vectors=None))
    else:
        bare = build(corpus_of(["fox", "dog"]), top_k=5).retrieve(queries_of(["fox"]))
        assert bare.nodes[0, 0] == 0
