from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank_papers.kgp import KnowledgeGraphPrompting

Build = Callable[..., Pipeline]


@pytest.fixture
def graph(hash_encoder: Any) -> CorpusGraph:
    texts = [f"passage {i}" for i in range(40)]
    edges = torch.randint(0, 34, (60, 2), generator=torch.Generator().manual_seed(0))
    corpus = CorpusGraph.from_edges([f"n{i}" for i in range(40)], texts, edges[edges[:, 0] != edges[:, 1]])
    return corpus.with_embedding(hash_encoder.encode(texts))


@pytest.fixture
def pipeline(graph: CorpusGraph, hash_encoder: Any) -> Build:
    def make(**settings: Any) -> Pipeline:
        steps = [VectorSearch, partial(KnowledgeGraphPrompting, **settings)]
        return Pipeline(graph, steps=steps, budget=25, text_encoder=hash_encoder)

    return make


def by_hand(
    graph: CorpusGraph, question: str, encode: Callable[[str], torch.Tensor], evidence: Callable[[str, list[str]], str],
    *, seeds: int, branches: int, hops: int,
) -> list[int]:  # fmt: skip
    """Algorithm 1 for one question: a queue of paths, and the passages in the order of the paths."""
    vectors = [encode(text) for text in graph.texts]
    score = [float(vector @ encode(question)) for vector in vectors]
    dense = sorted(range(len(vectors)), key=lambda node: (-score[node], node))
    seen, queue = set(dense[:seeds]), [[seed] for seed in dense[:seeds]]
    followed: dict[int, list[int]] = {}
    while queue:
        path = queue.pop(0)
        if len(path) > hops:
            continue
        start, stop = graph.indptr[path[-1]], graph.indptr[path[-1] + 1]
        neighbours = [node for node in graph.indices[start:stop].tolist() if node not in seen]
        needed = encode(evidence(question, [graph.texts[node] for node in path]))
        best = sorted(neighbours, key=lambda node: (-float(vectors[node] @ needed), node))[:branches]
        followed[path[-1]] = best
        seen |= set(best)
        queue += [[*path, node] for node in best]

    def walk(node: int) -> list[int]:
        return [node, *(below for child in followed.get(node, []) for below in walk(child))]

    return list(dict.fromkeys([*(node for seed in dense[:seeds] for node in walk(seed)), *dense]))[:25]


@pytest.mark.parametrize("settings", [(5, 2, 2), (2, 3, 3), (1, 1, 1)])
def test_against_the_algorithm(
    settings: tuple[int, int, int], pipeline: Build, graph: CorpusGraph, hash_encoder: Any
) -> None:
    seeds, branches, hops = settings
    system = pipeline(num_seeds=seeds, num_branches=branches, num_hops=hops)
    queries = hash_encoder.queries([f"question {i}" for i in range(6)])
    found = system.retrieve(queries).ranking
    for row, question in enumerate(queries.texts):
        expected = by_hand(
            graph, question, lambda text: hash_encoder.encode([text])[0],
            lambda asked, passages: "\n".join([asked, *passages]), seeds=seeds, branches=branches, hops=hops,
        )  # fmt: skip
        assert found.nodes[row].tolist() == expected
    assert not torch.equal(
        found.nodes, Pipeline(graph, steps=[VectorSearch], budget=25).retrieve(queries).ranking.nodes
    )


def test_a_language_model_writes_the_evidence(
    pipeline: Build, graph: CorpusGraph, hash_encoder: Any, scripted_model: Any, tmp_path: Path
) -> None:
    def evidence(asked: str, passages: Sequence[str]) -> str:
        told = "\n\n".join([f"Question: {asked}", *(f"Passage: {passage}" for passage in passages)])
        return f"evidence {len(told)}"

    agent = scripted_model(lambda _, question: f"evidence {len(question)}\n")
    queries = hash_encoder.queries(["question 1", "question 22"])
    system = pipeline(language_model=agent, cache=tmp_path)
    found = system.retrieve(queries).ranking.nodes
    asked = len(agent.asked)
    assert asked > 10
    system.retrieve(queries)
    assert len(agent.asked) == asked  # answers are kept
    for row, question in enumerate(queries.texts):
        encode = lambda text: hash_encoder.encode([text])[0]  # noqa: E731
        assert found[row].tolist() == by_hand(graph, question, encode, evidence, seeds=5, branches=2, hops=2)


def test_an_encoder_is_needed_and_numbers_are_positive(graph: CorpusGraph, pipeline: Build) -> None:
    with pytest.raises(ValueError, match="`text_encoder` must be given to encode evidence"):
        Pipeline(graph, steps=[VectorSearch, KnowledgeGraphPrompting])
    with pytest.raises(ValueError, match="`num_hops` must be a positive integer, got 0"):
        pipeline(num_hops=0)
