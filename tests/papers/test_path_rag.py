from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch

from graphrerank.graphs import Queries
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank_papers.path_rag import PathRAGSearch, flow_paths
from tests.papers.test_light_rag import described
from tests.support.graphs import after_vector_search, keeps_vector_search

Build = Callable[..., Pipeline]


def naive_paths(graph: networkx.Graph, start: Any, *, decay: float, threshold: float, hops: int) -> dict[Any, float]:
    """Eqs. (3) to (5) as recursive definitions: every path from the start whose nodes lie one hop further each."""
    distance = networkx.single_source_shortest_path_length(graph, start, cutoff=hops)

    def passes_on(node: Any) -> bool:
        return received(node) / graph.degree(node) >= threshold

    def received(node: Any) -> float:
        if node == start:
            return 1.0
        nearer = [u for u in graph[node] if distance.get(u) == distance[node] - 1 and passes_on(u)]
        return sum(decay * received(u) / graph.degree(u) for u in nearer)

    paths = {}
    for end in set(distance) - {start}:
        for path in networkx.all_shortest_paths(graph, start, end):
            if all(passes_on(node) for node in path[:-1]):
                paths[tuple(path)] = sum(map(received, path)) / (len(path) - 1)
    return paths


@pytest.mark.parametrize("threshold", [0.02, 0.08, 0.3])
def test_flow_against_the_equations(threshold: float) -> None:
    graph = networkx.gnm_random_graph(30, 50, seed=1)
    neighbours = [sorted(graph[node]) for node in range(30)]
    sizes = []
    for start in range(30):
        if not graph.degree(start):
            continue
        paths = flow_paths(neighbours, start, threshold=threshold)
        expected = naive_paths(graph, start, decay=0.8, threshold=threshold, hops=3)
        assert {path: score for score, path in paths} == pytest.approx(expected)
        assert len(paths) == len(expected)
        sizes.append(len(paths))
    assert sum(sizes) > 20


@pytest.fixture
def pipeline(tmp_path: Path, hash_encoder: Any, statement_extractor: Any) -> Build:
    def make(passages: Sequence[str], **settings: Any) -> Pipeline:
        step = partial(PathRAGSearch, folder=tmp_path, extractor=statement_extractor, **settings)
        return after_vector_search(step, passages, hash_encoder, budget=50)

    return make


def test_against_the_description_query_by_query(
    pipeline: Build, make_fact_passages: Callable[..., list[str]], hash_encoder: Any, statement_extractor: Any
) -> None:
    passages, queries = make_fact_passages(), hash_encoder.queries([f"query {i}" for i in range(6)])
    system = pipeline(passages, num_entities=7, num_paths=4, threshold=0.03)
    found = system.retrieve(queries).ranking.nodes
    entities, _, graph = described(statement_extractor.extract(passages))
    number = {name: index for index, name in enumerate(entities)}
    used = 0
    for row, query in enumerate(queries.encoded):
        score = {name: float(hash_encoder.encode([text])[0] @ query) for name, text in entities.items()}
        top = sorted((name for name in entities if score[name] > 0), key=lambda name: -score[name])[:7]
        paths: dict[frozenset[str], tuple[float, list[int], tuple[str, ...]]] = {}
        for start in top:
            if graph.degree(start):
                reached = naive_paths(graph, start, decay=0.8, threshold=0.03, hops=3)
                for path, reliability in reached.items():
                    if path[-1] in top:
                        entry = (-round(reliability, 9), [number[name] for name in path], path)
                        paths[frozenset(path)] = min(entry, paths.get(frozenset(path), entry))
        groups: list[set[int]] = []
        for *_, path in sorted(paths.values())[:4]:
            used += len(path) > 2
            for one, other in pairwise(path):
                groups.append(set().union(*graph.edges[one, other]["passages"].values()))
        groups += [graph.nodes[name]["passages"] for name in top]
        near = [float(hash_encoder.encode([text])[0] @ query) for text in passages]
        expected = dict.fromkeys(p for group in groups for p in sorted(group, key=lambda p: (-near[p], p)))
        assert [node for node in found[row].tolist() if node >= 0] == list(expected)
    assert used > 2  # paths of several relations


def test_a_query_without_a_vector_keeps_its_ranking(pipeline: Build, fact_passages: tuple[str, ...]) -> None:
    assert keeps_vector_search(pipeline(fact_passages), Queries(["q"], [""], torch.zeros(1, 6)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_paths": 0}, "`num_paths` must be a positive integer, got 0"),
        ({"decay": 0.0}, r"`decay` must lie in \(0, 1\], got 0.0"),
        ({"threshold": 2.0}, r"`threshold` must lie in \(0, 1\], got 2.0"),
    ],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, Any], message: str, pipeline: Build, fact_passages: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline(fact_passages, **settings)
