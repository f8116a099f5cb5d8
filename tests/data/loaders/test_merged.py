from dataclasses import replace

import pytest
import torch

from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.metadata import Metadata
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.loaders.merged import load_merged
from tests.support.graphs import named_edges


def part(number: int, *, typed: bool = False) -> Dataset:
    """A data set of random edges, typed or not, with a query for each of three of its six passages."""
    drawn = torch.Generator().manual_seed(number)
    pairs = torch.combinations(torch.arange(6))[torch.randperm(15, generator=drawn)[:7]]
    kinds = torch.randint(0, 3, (7,), generator=drawn) if typed else 0
    graph = CorpusGraph.from_edges(
        list("abcdef"), [f"text {number} {node}" for node in range(6)], pairs,
        torch.rand(7, generator=drawn) + 0.1, edge_type=kinds,
    )  # fmt: skip
    judged = Qrels(torch.arange(3), torch.tensor([5, 0, 2]), torch.tensor([1.0, 2.0, 1.0]))
    answers = {"q1": ["Metz"]}
    return Dataset("d", graph, ["q0", "q1", "q2"], ["x", "y", "z"], {"test": judged}, answers=answers)


def test_every_part_is_found_again() -> None:
    parts = {"one": part(1), "two": part(2, typed=True), "three": part(3)}
    merged = load_merged(parts)
    assert merged.graph.num_edges == sum(entry.graph.num_edges for entry in parts.values())
    number = {node_id: node for node, node_id in enumerate(merged.graph.node_ids)}
    listed = named_edges(merged.graph)
    for key, entry in parts.items():
        own = [number[f"{key}-{node_id}"] for node_id in entry.graph.node_ids]
        assert [merged.graph.texts[node] for node in own] == list(entry.graph.texts)
        for (source, target, kind), weight in named_edges(entry.graph).items():
            assert listed[f"{key}-{source}", f"{key}-{target}", kind] == weight
        qrels = merged.split(f"{key}-test")
        judged = {merged.query_ids[query]: node for query, node in zip(qrels.query, qrels.node, strict=True)}
        assert {query: int(node) for query, node in judged.items()} == {
            f"{key}-q0": own[5], f"{key}-q1": own[0], f"{key}-q2": own[2]
        }  # fmt: skip
    assert merged.answers == {f"{key}-q1": ["Metz"] for key in parts}
    assert merged.query_texts == ["x", "y", "z"] * 3


def test_one_part_keeps_its_ranks_and_its_order() -> None:
    alone = part(4)
    merged = load_merged({"x": alone}, knn=3, knn_below=1)
    assert torch.equal(merged.graph.indices, alone.graph.indices)
    assert (merged.knn, merged.knn_below, merged.name) == (3, 1, "merged")
    assert merged.fingerprint != alone.fingerprint


def test_callers_see_what_they_see_of_each_part() -> None:
    guarded = GuardedEdges(torch.tensor([[0, 5]]), torch.ones(1), torch.tensor([4]), torch.tensor([0]), ['["hr"]'])
    records = [{}, {"principals": ["hr"]}, {"supersedes": ["a"]}, {"supersedes": "a", "contradicts": ["b"]}, {}, {}]
    of_hr = part(1)
    of_hr = replace(of_hr, graph=replace(of_hr.graph.with_passages(metadata=Metadata(records)), guarded=guarded))
    of_law = part(2)
    of_law = replace(of_law, graph=of_law.graph.with_passages(metadata=Metadata([{"principals": ["law"]}] * 6)))
    parts = {"open": part(3), "hr": of_hr, "law": of_law, "hr2": of_hr}
    merged = load_merged(parts)
    assert merged.graph.is_guarded
    for principals in (set(), {"hr"}, {"law"}, {"hr", "law"}):
        seen = merged.graph.seen_by(principals)
        expected = {key: entry.graph.seen_by(principals) for key, entry in parts.items()}
        assert list(seen.node_ids) == [f"{key}-{node}" for key, graph in expected.items() for node in graph.node_ids]
        assert named_edges(seen) == {
            (f"{key}-{source}", f"{key}-{target}", kind): weight
            for key, graph in expected.items()
            for (source, target, kind), weight in named_edges(graph).items()
        }
    assert merged.graph.passages.metadata.record(9) == {"supersedes": "hr-a", "contradicts": ["hr-b"]}
    assert merged.graph.passages.metadata.superseding["hr2-a"] == [20, 21]
    assert load_merged({"open": part(3)}).graph.passages.metadata is None


def test_what_cannot_be_merged_is_refused() -> None:
    with pytest.raises(ValueError, match="`datasets` must contain at least one data set"):
        load_merged({})
    shared = part(1).graph.with_entities(EntityIncidence.from_names([["a"]] * 6))
    with pytest.raises(ValueError, match=r"must not have shared entities, .* got 'x'"):
        load_merged({"x": part(1).with_graph(shared)})
