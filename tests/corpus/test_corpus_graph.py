from pathlib import Path

import pytest
import torch

from graphrerank.corpus import CorpusGraph, EntityIncidence, corpus_graph
from graphrerank.corpus.corpus_graph import content_hash
from graphrerank.corpus.edge_types import ENTITY, OTHER, REFERENCE, SIMILARITY
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels


def ids(num_nodes: int) -> list[str]:
    return [f"n{i}" for i in range(num_nodes)]


def typed_edges_of(graph: CorpusGraph) -> dict[tuple[int, int, int], float]:
    edges, weight, edge_type = graph.typed_edges()
    return {(a, b, t): w for (a, b), t, w in zip(edges.tolist(), edge_type.tolist(), weight.tolist(), strict=True)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("undirected", [True, False])
def test_types_are_kept_against_naive_dict(seed: int, undirected: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, 9, (90, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    weight = torch.rand(len(edges), generator=generator) + 0.1
    types = torch.randint(0, 5, (len(edges),), generator=generator)
    expected: dict[tuple[int, int, int], float] = {}
    for (a, b), w, t in zip(edges.tolist(), weight.tolist(), types.tolist(), strict=True):
        for key in ((a, b, t), (b, a, t)) if undirected else ((a, b, t),):
            expected[key] = max(expected.get(key, 0.0), w)

    graph = CorpusGraph.from_edges(ids(9), [""] * 9, edges, weight, edge_type=types, undirected=undirected)

    assert list(typed_edges_of(graph).items()) == sorted(expected.items())
    merged = CorpusGraph.from_edges(ids(9), [""] * 9, edges, weight, undirected=undirected)
    for name in ("indptr", "indices", "weight"):  # what reads no types sees what it always saw
        assert torch.equal(getattr(graph, name), getattr(merged, name))
    largest: dict[tuple[int, int, int], float] = {}
    for (a, b, _), w in expected.items():
        largest[a, b, OTHER] = max(largest.get((a, b, OTHER), 0.0), w)
    assert list(typed_edges_of(merged).items()) == sorted(largest.items())
    assert merged.num_edges == len(largest)
    assert merged.degree.tolist() == [sum(a == node for a, _, _ in largest) for node in range(9)]


def test_further_edges_keep_their_type() -> None:
    graph = CorpusGraph.from_edges(ids(3), [""] * 3, torch.tensor([[0, 1]]), edge_type=REFERENCE)
    more = graph.with_edges(torch.tensor([[1, 0], [1, 2]]), torch.tensor([0.5, 2.0]), edge_type=SIMILARITY)
    one_way = {(0, 1, REFERENCE): 1.0, (0, 1, SIMILARITY): 0.5, (1, 2, SIMILARITY): 2.0}
    assert typed_edges_of(more) == one_way | {(b, a, t): w for (a, b, t), w in one_way.items()}
    assert typed_edges_of(more.to("cpu")) == typed_edges_of(more)
    with pytest.raises(ValueError, match="join nodes 0 to 2"):
        graph.with_edges(torch.tensor([[0, 4]]), torch.ones(1))
    bare = more.without_edges()
    assert typed_edges_of(bare) == {}
    assert (bare.node_ids, bare.texts, bare.degree.tolist()) == (graph.node_ids, graph.texts, [0, 0, 0])


def test_edges_of_one_type() -> None:
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2]]), torch.tensor([REFERENCE, ENTITY, ENTITY])
    graph = CorpusGraph.from_edges(list("abc"), [""] * 3, edges, torch.tensor([1.0, 2.0, 3.0]), edge_type=types)
    graph = graph.with_entities(EntityIncidence.from_names([["rome"], ["rome"], []]))
    pairs, weight, found = graph.with_types([REFERENCE]).typed_edges()
    assert (pairs.tolist(), weight.tolist(), found.tolist()) == ([[0, 1], [1, 0]], [1.0, 1.0], [REFERENCE] * 2)
    assert graph.with_types([REFERENCE]).entities is None
    assert graph.with_types([ENTITY]).typed_edges()[1].tolist() == [2.0, 2.0, 3.0, 3.0]
    assert graph.with_types([ENTITY]).entities is graph.entities
    assert not graph.with_types([OTHER]).num_edges


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["", ""]}, r"`texts` must have one entry per node \(3\), got 2"),
        ({"node_ids": ["a", "b", "a"]}, "`node_ids` must be unique, got 'a' twice"),
        ({"weight": torch.ones(3)}, r"`weight` must have one entry per edge \(2\), got 3"),
        ({"edges": torch.tensor([[0, 1], [1, 3]])}, r"`edges` must each join nodes 0 to 2, got \[1, 3\].* at row 1"),
        ({"edges": torch.tensor([[-1, 1], [1, 2]])}, r"`edges` must each join nodes 0 to 2, got \[-1, 1\]"),
        ({"edges": torch.tensor([[0, 1], [2, 2]])}, r"`edges` must each join two different nodes, got \[2, 2\]"),
        ({"edges": torch.tensor([[0, 1, 2], [1, 2, 0]])}, r"`edges` must have shape \[M, 2\], got \[2, 3\]"),
        ({"weight": torch.tensor([1.0, 0.0])}, "positive, finite weight, got .* with weight 0.0 at row 1"),
        ({"weight": torch.tensor([1.0, torch.nan])}, "positive, finite weight"),
        ({"weight": torch.tensor([1.0, torch.inf])}, "positive, finite weight"),
        ({"edge_type": 5}, r"be of a type from 0 to 4, got \[0, 1\]"),
    ],
)
def test_from_edges_refuses(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "node_ids": ["a", "b", "c"],
        "texts": ["", "", ""],
        "edges": torch.tensor([[0, 1], [1, 2]]),
        "weight": torch.ones(2),
    }
    with pytest.raises(ValueError, match=message):
        CorpusGraph.from_edges(**(arguments | changes))


def names_of(graph: CorpusGraph, node: int) -> list[int]:
    origin, neighbour = graph.neighbours(torch.tensor([node, node]))
    assert origin.tolist().count(0) == origin.tolist().count(1) == int(graph.num_neighbours[node])
    return sorted(neighbour[origin == 1].tolist())


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_against_naive_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    held = [torch.randint(0, 9, (3,), generator=generator).tolist() for _ in range(15)]
    edges = torch.randint(0, 15, (20, 2), generator=generator)
    graph = CorpusGraph.from_edges([str(i) for i in range(15)], [""] * 15, edges[edges[:, 0] != edges[:, 1]])
    near = [set(names_of(graph, node)) for node in range(15)]
    with pytest.raises(ValueError, match="`entities` must have 15 passages, got 1"):
        graph.with_entities(EntityIncidence.from_names([["a"]]))
    graph = graph.with_entities(EntityIncidence.from_names([[str(name) for name in row] for row in held]))
    for node in range(15):
        shared = [len(set(held[node]) & set(row)) if i != node else 0 for i, row in enumerate(held)]
        expected = [i for i in range(15) for _ in range(shared[i] + (i in near[node]))]
        assert names_of(graph, node) == expected


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_vectors_must_be_finite_and_a_node_without_one_has_zeros(number: float, monkeypatch) -> None:
    monkeypatch.setattr(corpus_graph, "BLOCK_VECTORS", 2)
    graph = CorpusGraph.from_edges(list("abcde"), [""] * 5, torch.tensor([[0, 1]]))
    vectors = torch.eye(5)
    vectors[3] = 0.0
    assert graph.embedding is None
    assert graph.with_embedding(vectors).embedding is vectors
    for wrong in (torch.rand(3, 3), torch.rand(2)):
        with pytest.raises(ValueError, match=r"`embedding` must be \[5, d\], got"):
            graph.with_embedding(wrong)
    vectors[3, 1] = number
    with pytest.raises(ValueError, match="`embedding` must be finite, got NaN or infinity for node 'd'"):
        graph.with_embedding(vectors)


class Encoder:
    name, fingerprint = "lengths", "lengths-1"

    def encode(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([[float(len(text)), 1.0] for text in texts])


def hashed_corpus() -> CorpusGraph:
    edges = torch.tensor([[0, 1]])
    graph = CorpusGraph.from_edges(["a", "b", "c"], ["x", "", "c\u00e9 \ud800"], edges)
    return graph.with_embedding(Encoder().encode(list(graph.texts)))


@pytest.mark.parametrize("vectors", ["float32", "float16"])
def test_a_folder_and_memory_have_the_same_content_hash(tmp_path: Path, vectors: str) -> None:
    qrels = {"test": Qrels(torch.tensor([0]), torch.tensor([1]), torch.ones(1))}
    dataset = Dataset("tiny", hashed_corpus(), ["q"], ["x"], qrels)
    prepare_corpus(dataset, tmp_path / "c", encoder=Encoder(), vectors=vectors, part_size=2)
    mapped = open_corpus(tmp_path / "c").graph
    in_memory = hashed_corpus().with_embedding(hashed_corpus().encoded.to(getattr(torch, vectors)))
    assert mapped.vectors.content is not None
    assert content_hash(mapped) == content_hash(in_memory) == content_hash(mapped.with_embedding(mapped.embedding))


def test_each_part_counts_in_the_content_hash_and_edges_do_not() -> None:
    graph = hashed_corpus()
    others = [
        graph.with_passages(ids=["a", "b", "d"]),
        graph.with_passages(ids=["ab", "", "c"]),
        graph.with_passages(texts=["", "x", graph.texts[2]]),
        graph.with_embedding(graph.encoded + 1),
        graph.with_embedding(graph.encoded.half()),
    ]
    assert len({content_hash(other) for other in (graph, *others)}) == 6
    assert content_hash(graph.without_edges()) == content_hash(graph)
