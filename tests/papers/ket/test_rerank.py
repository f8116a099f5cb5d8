import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs import Ranking
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings
from graphrerank_papers.ket.rerank import chunk_corpus, pack_chunks
from graphrerank_papers.ket.retrieval import KETRetrieval

BuildIndex = Callable[..., KETIndex]


@pytest.fixture
def build_index(
    tmp_path: Path, hash_encoder: Any, name_extractor: Any, make_documents: Callable[..., list[str]]
) -> BuildIndex:
    def build(**settings: Any) -> KETIndex:
        builder = KETIndexBuilder(tmp_path, tokenizer=WordTokenizer(), encoder=hash_encoder, extractor=name_extractor)
        return builder.build(make_documents(12), KETSettings(**{"chunk_tokens": 24, "num_splits": 0, **settings}))

    return build


def test_chunks_are_a_corpus_of_the_chunk_graph_and_the_skeletons_entities(build_index: BuildIndex) -> None:
    index = build_index()
    graph = chunk_corpus(index)
    found = {
        (node, int(other))
        for node in range(graph.num_nodes)
        for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    }
    edges = [tuple(edge) for edge in index.chunk_graph.edges.tolist()]
    assert found == {*edges, *((b, a) for a, b in edges)}
    assert graph.texts == index.sub_chunk_texts.texts
    assert index.skeleton is not None
    assert graph.entities is not None
    chunks_of: dict[int, set[int]] = {}
    for entity, chunk in index.skeleton.entity_links.tolist():
        chunks_of.setdefault(entity, set()).add(chunk)
    shared = {pair for held in chunks_of.values() if 1 < len(held) <= 10 for pair in itertools.permutations(held, 2)}
    place, partner = graph.entities.partners(torch.arange(graph.num_nodes))
    assert set(zip(place.tolist(), partner.tolist(), strict=True)) == shared
    assert shared


def test_without_a_skeleton_there_are_no_entities(build_index: BuildIndex) -> None:
    assert chunk_corpus(build_index(core_share=0.0)).entities is None


def test_halved_chunks_are_refused(build_index: BuildIndex) -> None:
    with pytest.raises(ValueError, match=r"`index` must have whole chunks \(`num_splits` 0\), got 1"):
        chunk_corpus(build_index(num_splits=1))


@pytest.mark.parametrize("context_tokens", [1, 30, 77, 10_000])
def test_a_context_holds_the_first_chunks_that_fit(
    context_tokens: int, build_index: BuildIndex, hash_encoder: Any
) -> None:
    index = build_index()
    whole = KETRetrieval(index, context_tokens=200)(hash_encoder.encode(["one", "two", "three"])).ranking
    ranking = Ranking(whole.nodes.flip(1), whole.scores.flip(1))  # padding first
    found = pack_chunks(index, ranking, context_tokens)
    for row, text in enumerate(found.texts):
        expected: list[int] = []
        for node in [node for node in ranking.nodes[row].tolist() if node >= 0]:
            if int(index.sub_chunk_texts.num_tokens[[*expected, node]].sum()) > context_tokens:
                break
            expected.append(node)
        assert [node for node in found.ranking.nodes[row].tolist() if node >= 0] == expected
        assert text == "".join(f"{index.sub_chunk_texts.texts[node]}\n" for node in expected)
        scores = dict(zip(ranking.nodes[row].tolist(), ranking.scores[row].tolist(), strict=True))
        assert found.ranking.scores[row, : len(expected)].tolist() == [scores[node] for node in expected]
    assert found.num_tokens.tolist() == count_tokens(WordTokenizer(), found.texts)


def test_a_context_of_no_token_is_refused(build_index: BuildIndex) -> None:
    nothing = Ranking(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, 0))
    with pytest.raises(ValueError, match="`context_tokens` must be a positive integer, got 0"):
        pack_chunks(build_index(), nothing, 0)
