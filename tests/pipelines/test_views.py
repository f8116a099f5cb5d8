"""Pipelines over parts of a corpus, against pipelines over a corpus that is made of the part."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus_store.growth import grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.corpus_store.word_columns import with_words
from graphrerank.data.dataset import Dataset
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, PageRank, VectorSearch
from graphrerank.pipelines.views import Views
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from tests.support.encoders import HashEncoder

WORDS = [f"word{number}" for number in range(40)] + ["the", "of", "Rivers", "river"]
SCORER = partial(CheckpointScorer, checkpoint="base", device="cpu")
STEPS = {
    "base": [partial(VectorSearch, retriever=partial(HybridExpandRetriever, base_k=8, num_seeds=4)),
             partial(GraphRerank, scorer=SCORER)],
    "pagerank": [partial(VectorSearch, top_k=5, retriever=HybridRetriever), PageRank],
}  # fmt: skip


def encoder() -> HashEncoder:
    return HashEncoder(dim=32, by_word=True)


def drawn_graph(size: int = 80, seed: int = 0) -> CorpusGraph:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + ". " + rng.choice(WORDS) for _ in range(size)]
    pairs = torch.randint(0, size, (3 * size, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weight = torch.rand(len(pairs), generator=generator) + 0.1
    types = torch.randint(0, 5, (len(pairs),), generator=generator)
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(size)], texts, pairs, weight, edge_type=types)
    return graph.with_passages(metadata=Metadata([{"team": rng.choice("abc"), "year": i} for i in range(size)]))


def rebuilt(graph: CorpusGraph, kept: list[int]) -> CorpusGraph:
    """Build the graph of some passages from its lists, without `select`."""
    number = torch.full((graph.num_nodes,), -1)
    number[kept] = torch.arange(len(kept))
    edges, weight, types = graph.typed_edges()
    inside = (number[edges] >= 0).all(1)
    texts = [graph.texts[node] for node in kept]
    ids = [graph.node_ids[node] for node in kept]
    made = CorpusGraph.from_edges(
        ids, texts, number[edges[inside]], weight[inside], edge_type=types[inside], undirected=False
    )
    return made.with_embedding(encoder().encode(texts))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("home", ["memory", "folder", "grown folder"])
def test_a_filtered_search_is_that_of_a_corpus_of_what_passes(tmp_path, steps, home) -> None:
    graph = drawn_graph()
    kept = [i for i in range(80) if graph.passages.metadata.records[i]["team"] != "c"]
    number = {node_id: i for i, node_id in enumerate(graph.node_ids)}
    if home == "memory":
        whole = with_words(graph.with_embedding(encoder().encode(graph.texts)))
    else:
        dataset = Dataset("drawn", graph, ["q"], ["x"], {})
        prepare_corpus(dataset, tmp_path / "corpus", encoder=encoder(), vectors="float32")
        if home == "grown folder":
            again = [i for i in kept if i % 7 == 0]  # removed, and added with other words and no edge
            grow_corpus(
                tmp_path / "corpus",
                [graph.node_ids[i] for i in again],
                [f"{graph.texts[i]} rivers" for i in again],
                metadata=[graph.passages.metadata.records[i] for i in again],
                replace=True,
                encoder=encoder(),
                title_lengths=[0] * len(again),
                compact=False,
            )
            kept = [i for i in kept if i % 7]
        whole = open_corpus(tmp_path / "corpus").graph
    expected = rebuilt(graph, kept)
    conditions = {"not": {"team": "c"}}
    if home == "grown folder":
        conditions["year"] = [i for i in range(80) if i % 7]
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=4)) for _ in range(6)]
    queries = Queries([str(i) for i in range(6)], texts, encoder().encode(texts))
    pipeline = Pipeline(whole, steps=STEPS[steps], budget=20)
    found = pipeline.retrieve(queries, filter=conditions).ranking
    there = Pipeline(expected, steps=STEPS[steps], budget=20).retrieve(queries).ranking
    ids = [[expected.node_ids[node] for node in row if node >= 0] for row in there.nodes.tolist()]
    assert [[whole.node_ids[node] for node in row if node >= 0] for row in found.nodes.tolist()] == ids
    assert torch.equal(found.scores, there.scores)
    nodes = whole.numbers_passing(conditions)
    part = whole.select(nodes)
    compacted = pipeline.over(replace(part, passages=part.passages.compacted())).retrieve(queries).ranking
    assert torch.equal(nodes[compacted.nodes], found.nodes)
    assert torch.equal(compacted.scores, found.scores)
    assert set(number) >= {one for row in ids for one in row}


def test_entities_of_a_part_are_those_that_two_of_its_passages_share() -> None:
    names = [["metz", "rome"], ["metz"], ["rome", "oslo"], ["rome", "oslo"], []]
    kept = torch.tensor([0, 2, 3, 4])
    found = EntityIncidence.from_names(names).select(kept)
    expected = EntityIncidence.from_names([names[i] for i in kept.tolist()])
    assert list(found.names) == list(expected.names)
    for name in ("indptr", "indices", "sizes", "holder_ptr", "holders"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


def test_nothing_passes() -> None:
    graph = drawn_graph(20)
    pipeline = Pipeline(graph.with_embedding(encoder().encode(graph.texts)), steps=STEPS["pagerank"], budget=5)
    queries = Queries(["q"], ["word1"], encoder().encode(["word1"]))
    found = pipeline.retrieve(queries, filter={"team": ["a", "b"], "year": {"gt": 100}})
    assert found.ranking.nodes.tolist() == [[-1] * 5]
    with pytest.raises(ValueError, match=r"`filter\.taem` must be a field .*known fields are \['team', 'year'\]"):
        pipeline.retrieve(queries, filter={"taem": "a"})


def test_views_are_kept_by_what_they_hold_within_a_bound() -> None:
    built: list[int] = []
    views = Views[int](10)

    def get(*nodes: int) -> None:
        views.get(nodes, lambda: torch.tensor(nodes), lambda held: built.append(len(held)) or len(built))

    get(1, 2)
    get(1, 2)
    get(*range(9))
    get(*range(10))  # the first two are too many with it
    get(*range(10))
    get(1, 2)
    assert built == [2, 9, 10, 2]
