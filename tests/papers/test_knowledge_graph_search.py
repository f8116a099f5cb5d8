from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch

from graphrerank.core import Queries
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank_papers.knowledge_graph_search import (
    LightRAGSearch,
    PathRAGSearch,
    flow_paths,
    parse_levels,
    query_levels,
)
from tests.support.graphs import after_vector_search, keeps_vector_search

Build = Callable[..., Pipeline]


@pytest.fixture
def passages(make_fact_passages: Callable[..., list[str]]) -> list[str]:
    return make_fact_passages()


@pytest.fixture
def pipeline(tmp_path: Path, hash_encoder: Any, statement_extractor: Any) -> Build:
    def make(passages: Sequence[str], search: Any = LightRAGSearch, *, budget: int = 50, **settings: Any) -> Pipeline:
        step = partial(search, folder=tmp_path, extractor=statement_extractor, **settings)
        return after_vector_search(step, passages, hash_encoder, budget=budget)

    return make


@pytest.fixture
def queries(hash_encoder: Any) -> Queries:
    return hash_encoder.queries([f"query {i}" for i in range(5)])


def described(knowledge: Sequence[Knowledge]) -> tuple[dict[str, str], dict[tuple[str, ...], str], networkx.Graph]:
    """The texts of entities and relations without descriptions, and the graph; nodes and edges know their passages."""
    entities: dict[str, str] = {}
    relations: dict[tuple[str, ...], str] = {}
    graph = networkx.Graph()
    for passage, told in enumerate(knowledge):
        for entity in told.entities:
            name = entity.name.lower().removeprefix("the ")
            entities.setdefault(name, entity.name)
            graph.add_node(name)
            graph.nodes[name].setdefault("passages", set()).add(passage)
        for part in told.relations:
            head, tail = (end.lower().removeprefix("the ") for end in (part.head, part.tail))
            if head != tail:
                relations.setdefault(
                    (head, part.relation.lower(), tail), f"{part.head} | {part.relation} | {part.tail}"
                )
                graph.add_edge(head, tail)
                held = graph.edges[head, tail].setdefault("passages", {})
                held.setdefault((head, part.relation.lower(), tail), set()).add(passage)
    return entities, relations, graph


def by_hand(
    passages: Sequence[str], query: torch.Tensor, level: torch.Tensor, encoder: Any, extractor: Any, *, mode: str
) -> list[int]:
    """Section 3.2 for one query: both levels by a vector, and their passages by the query."""
    entities, relations, graph = described(extractor.extract(passages))

    def similar(texts: dict[Any, str]) -> list[Any]:
        score = {key: float(encoder.encode([text])[0] @ level) for key, text in texts.items()}
        return sorted((key for key in texts if score[key] > 0), key=lambda key: -score[key])[:6]

    local = [p for name in similar(entities) for p in sorted(graph.nodes[name]["passages"])]
    wide = [p for key in similar(relations) for p in sorted(graph.edges[key[0], key[2]]["passages"][key])]
    lists = [list(dict.fromkeys(own)) for own in {"local": [local], "global": [wide], "hybrid": [local, wide]}[mode]]
    score = [float(encoder.encode([text])[0] @ query) for text in passages]
    lists = [sorted(own, key=lambda p: -score[p]) for own in lists]
    merged = [own[rank] for rank in range(len(passages)) for own in lists if rank < len(own)]
    return list(dict.fromkeys(merged))


@pytest.mark.parametrize("mode", ["local", "global", "hybrid"])
def test_light_rag_against_the_description(
    mode: str, pipeline: Build, passages: list[str], queries: Queries, hash_encoder: Any, statement_extractor: Any
) -> None:
    settings = {"mode": mode, "num_entities": 6, "num_relations": 6}
    found = pipeline(passages, **settings).retrieve(queries).ranking.nodes
    for row, query in enumerate(queries.encoded):
        expected = by_hand(passages, query, query, hash_encoder, statement_extractor, mode=mode)
        assert [node for node in found[row].tolist() if node >= 0] == expected
        assert len(expected) > 3


def test_a_language_models_keywords_are_searched(
    pipeline: Build, passages: list[str], queries: Queries, hash_encoder: Any, statement_extractor: Any,
    scripted_model: Any, tmp_path: Path,
) -> None:  # fmt: skip
    writer = scripted_model(lambda *_: {"low_level": ["Metz", "Trier"], "high_level": []})
    settings = {"num_entities": 6, "num_relations": 6, "cache": tmp_path / "answers"}
    system = pipeline(passages, mode="local", language_model=writer, **settings)
    low = hash_encoder.encode(["Metz, Trier"])[0]
    expected = by_hand(passages, queries.encoded[2], low, hash_encoder, statement_extractor, mode="local")
    for _ in range(2):
        found = system.retrieve(queries).ranking.nodes
        assert [node for node in found[2].tolist() if node >= 0] == expected
    assert len(writer.asked) == len(queries)  # answers are kept
    high = pipeline(passages, mode="global", language_model=writer, **settings).retrieve(queries).ranking.nodes
    assert torch.equal(high, pipeline(passages, mode="global", **settings).retrieve(queries).ranking.nodes)


@pytest.mark.parametrize("search", [LightRAGSearch, PathRAGSearch])
def test_a_query_without_a_vector_keeps_its_ranking(
    search: Any, pipeline: Build, passages: list[str], queries: Queries
) -> None:
    vectors = queries.encoded.clone()
    vectors[1] = 0
    system = pipeline(passages, search, budget=10, num_entities=3)
    asked = Queries(queries.ids, queries.texts, vectors)
    assert keeps_vector_search(system, asked, [1])
    assert not keeps_vector_search(system, asked, [0])


@pytest.mark.parametrize(
    ("search", "settings", "message"),
    [
        (LightRAGSearch, {"mode": "mix"}, r"`mode` must be one of \['local', 'global', 'hybrid'\], got 'mix'"),
        (LightRAGSearch, {"num_entities": 0}, "`num_entities` must be a positive integer, got 0"),
        (LightRAGSearch, {"description_tokens": 0}, "`description_tokens` must be a positive integer, got 0"),
        (PathRAGSearch, {"num_paths": 0}, "`num_paths` must be a positive integer, got 0"),
        (PathRAGSearch, {"threshold": 2.0}, r"`threshold` must lie in \(0, 1\], got 2.0"),
    ],
)
def test_settings_out_of_range_are_refused(
    search: Any, settings: dict[str, Any], message: str, pipeline: Build, fact_passages: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline(fact_passages, search, **settings)


def test_keywords_of_both_levels_and_questions_without(scripted_model: Any) -> None:
    answers = {"Who?": {"low_level": ["Metz", "Metz"], "high_level": ["rule over a city"]}, "What?": "none"}
    model = scripted_model(lambda _, question: answers[question.split("\n")[0]])
    found = query_levels(model, ["Who?", " ", "What?"], shipped_prompt("light_rag_keywords"))
    assert found == [(["Metz"], ["rule over a city"]), ([], []), ([], [])]
    assert len(model.asked) == 4  # the unusable answer was requested twice more, the blank question not at all


@pytest.mark.parametrize(
    "content",
    ["[]", '{"low_level": []}', '{"low_level": [1], "high_level": []}', '{"low_level": [" "], "high_level": []}'],
)
def test_answers_of_another_form_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_levels(content)


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


def test_path_rag_against_the_description(
    pipeline: Build, passages: list[str], queries: Queries, hash_encoder: Any, statement_extractor: Any
) -> None:
    system = pipeline(passages, PathRAGSearch, num_entities=7, num_paths=4, threshold=0.03)
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
