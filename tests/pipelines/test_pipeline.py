from collections.abc import Callable
from functools import partial
from typing import Any

import igraph
import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import AlternateFrontier, GRanker, PageRank, Rerank, STeX, UntilBudget, VectorSearch
from tests.operators.test_stex import algorithm_3

Encode = Callable[[int], Tensor]  # a node's pair vector
Head = Callable[[Tensor], Tensor]


def edge_set(graph: CorpusGraph) -> set[tuple[int, int]]:
    rows = [slice(start, stop) for start, stop in zip(graph.indptr, graph.indptr[1:], strict=False)]
    return {(node, other) for node, row in enumerate(rows) for other in graph.indices[row].tolist()}


def vector_search(v_q: Tensor, vectors: Tensor, k: int) -> list[int]:
    sim = [float((v_q * v_n).sum()) for v_n in vectors]
    return sorted(range(len(sim)), key=lambda n: (-sim[n], n))[:k]


def granker(
    n_ret: list[int], edges: set[tuple[int, int]], alpha: float, encode: Encode, head: Head
) -> dict[int, float]:
    """Algorithm 2; a row of zeros of W keeps H."""
    H = torch.stack([encode(n) for n in n_ret]).double()
    A = torch.tensor([[float((i, j) in edges) for j in n_ret] for i in n_ret]).double()
    D = torch.tensor([float(sum(a == n for a, _ in edges)) for n in n_ret]).double()
    W = A / D.clamp(min=1)
    P = torch.stack([row / row.sum() if row.sum() else own for row, own in zip(W, torch.eye(len(n_ret)), strict=True)])
    S = head(((1 - alpha) * H + alpha * (P.double() @ H)).float())
    return dict(zip(n_ret, S.tolist(), strict=True))


def stex(v_q: Tensor, vectors: Tensor, edges: set[tuple[int, int]], n_ret: list[int], beta: float) -> list[int]:
    """Algorithm 3; ties by node number."""
    near: list[set[int]] = [set() for _ in vectors]
    for a, b in edges:
        near[a].add(b)
    facts = algorithm_3(v_q, vectors, near, n_ret, beta, set())
    return sorted(facts, key=lambda n: (-round(facts[n]["scores"], 6), n))


def ranked(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda n: (-round(scores[n], 6), n))


def fastinsight(
    v_q: Tensor,
    graph: CorpusGraph,
    encode: Encode,
    head: Head,
    *,
    batch: int,
    alpha: float,
    beta: float,
    b_max: int,
) -> list[int]:
    """Algorithm 1; where STeX finds nothing, the next of the vector search."""
    edges, every = edge_set(graph), vector_search(v_q, graph.embedding, graph.num_nodes)
    b_max = min(b_max, graph.num_nodes)
    n_ret = every[: min(batch, b_max)]
    n_ret = ranked(granker(n_ret, edges, alpha, encode, head))
    while len(n_ret) < b_max:
        n_add = stex(v_q, graph.embedding, edges, n_ret, beta) or [n for n in every if n not in n_ret]
        k_remain = min(len(n_ret) + batch, b_max) - len(n_ret)
        n_ret = n_ret + n_add[:k_remain]
        n_ret = ranked(granker(n_ret, edges, alpha, encode, head))
    return n_ret


def gar(v_q: Tensor, graph: CorpusGraph, encode: Encode, head: Head, *, batch: int, budget: int) -> list[int]:
    """Adaptive Re-Ranking's Algorithm 1, without its backfilling."""
    edges = edge_set(graph)
    budget = min(budget, graph.num_nodes)
    r0 = vector_search(v_q, graph.embedding, budget)
    scored: dict[int, float] = {}
    frontier: dict[int, float] = {}
    from_frontier = False
    while len(scored) < budget:
        pool = sorted(frontier, key=lambda n: (-frontier[n], n)) if from_frontier else list(r0)
        taken = pool[: min(batch, budget - len(scored))]
        new = {n: float(head(encode(n))) for n in taken}
        scored |= new
        r0 = [n for n in r0 if n not in new]
        for n, score in new.items():
            for other in (b for a, b in edges if a == n):
                frontier[other] = max(score, frontier.get(other, score))
        frontier = {n: score for n, score in frontier.items() if n not in scored}
        from_frontier = not from_frontier
    return ranked(scored)


def search(top_k: int | None = None) -> partial[VectorSearch]:
    return partial(VectorSearch, top_k=top_k)


def re2() -> list[Any]:
    return [search(), Rerank]


def gar_steps(batch: int = 10) -> list[Any]:
    return [search(batch), Rerank, partial(UntilBudget, steps=[partial(AlternateFrontier, batch=batch), Rerank])]


def fastinsight_steps(batch: int = 10, smoothing: float = 0.2, structure_weight: float = 1.0) -> list[Any]:
    rank = partial(GRanker, smoothing=smoothing)
    expand = partial(STeX, batch=batch, structure_weight=structure_weight)
    return [search(batch), rank, partial(UntilBudget, steps=[expand, rank])]


def found_by(ranking: Ranking) -> list[list[int]]:
    return [[node for node in row if node >= 0] for row in ranking.nodes.tolist()]


def reader(encoder: Any, graph: CorpusGraph, text: str) -> Encode:
    return lambda node: encoder.encode([text], [graph.texts[node]])[0]


GRAPHS = {
    "sparse": {"num_edges": 60, "isolated": 20},
    "dense": {"num_edges": 400},
    "ties": {"num_edges": 90, "repeated": 25},
    "no edges": {"num_edges": 0},
    "all isolated but two": {"num_edges": 3, "isolated": 58},
}


SYSTEMS = ["re2", "gar", (0.2, 1.0), (0.0, 1.0), (1.0, 0.0), (0.5, 3.0)]
SIZES = [(27, 10), (5, 10), (13, 1), (100, 16)]
# Half of the combinations by default: each two of a system, a kind of graph and a size meet.
COMBINATIONS = [
    pytest.param(system, kind, *size, marks=[pytest.mark.slow] if (i + j + k) % 2 else [])
    for i, system in enumerate(SYSTEMS)
    for j, kind in enumerate(GRAPHS)
    for k, size in enumerate(SIZES)
]


@pytest.mark.parametrize(("system", "kind", "budget", "batch"), COMBINATIONS)
def test_against_naive_algorithm_1(
    system: Any, kind: str, budget: int, batch: int, make_corpus: Any, make_queries: Any, pair_encoder: Any
) -> None:
    graph, queries = make_corpus(**GRAPHS[kind]), make_queries()
    steps = {"re2": re2(), "gar": gar_steps(batch)}.get(system) or fastinsight_steps(batch, *system)
    found = Pipeline(graph, steps=steps, budget=budget, pair_encoder=pair_encoder, batch_queries=4).retrieve(queries)
    assert len(pair_encoder.pairs) == 7 * min(budget, 60)
    assert kind == "ties" or len(set(pair_encoder.pairs)) == len(pair_encoder.pairs)  # each pair is read once
    assert {"retrieve", "encode", "rerank"} <= set(found.seconds) <= {"retrieve", "encode", "graph", "rerank"}
    assert min(found.seconds.values()) > 0
    for row, nodes in enumerate(found_by(found.ranking)):
        given = (queries.encoded[row], graph, reader(pair_encoder, graph, queries.texts[row]), pair_encoder.head)
        if system == "re2":
            top = vector_search(queries.encoded[row], graph.embedding, budget)
            assert nodes == ranked({node: float(pair_encoder.head(given[2](node))) for node in top})
        elif system == "gar":
            assert nodes == gar(*given, batch=batch, budget=budget)
        else:
            assert nodes == fastinsight(*given, batch=batch, alpha=system[0], beta=system[1], b_max=budget)
    assert found.ranking.nodes.shape == (7, budget)
    assert found.num_encodings.tolist() == [min(budget, 60)] * 7


class Shallow:
    """A retriever that knows two nodes of each query."""

    feature_names = ("base_score",)

    def __init__(self, graph: CorpusGraph, *, top_k: int) -> None:
        self.top_k = top_k

    def retrieve(self, queries: Queries) -> Ranking:
        nodes = torch.full((len(queries), self.top_k), -1)
        nodes[:, :2] = torch.tensor([4, 7])
        return Ranking(nodes, torch.zeros(nodes.shape).masked_fill(nodes < 0, -torch.inf))


@pytest.mark.parametrize("steps", [gar_steps(), fastinsight_steps()], ids=["gar", "fastinsight"])
def test_a_query_that_nothing_more_is_found_for_ends(
    steps: list[Any], make_corpus: Any, make_queries: Any, pair_encoder: Any
) -> None:
    graph = make_corpus(20, 0)
    steps = [partial(VectorSearch, retriever=partial(Shallow), top_k=10), *steps[1:]]
    found = Pipeline(graph, steps=steps, budget=15, pair_encoder=pair_encoder).retrieve(make_queries(3))
    assert [sorted(nodes) for nodes in found_by(found.ranking)] == [[4, 7]] * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": []}, r"`steps` must contain at least one step, got none"),
        ({"budget": 0}, "`budget` must be a positive integer, got 0"),
        ({"batch_queries": 0}, "`batch_queries` must be a positive integer, got 0"),
        ({"steps": [search(0)]}, "`top_k` must be a positive integer, got 0"),
        ({"steps": [partial(UntilBudget, steps=[])]}, r"`steps` must contain at least one step, got none"),
        ({"steps": [partial(STeX, batch=0)]}, "`batch` must be a positive integer, got 0"),
        ({"steps": [partial(STeX, structure_weight=-1.0)]}, "`structure_weight` must not be negative, got -1.0"),
        ({"steps": [partial(AlternateFrontier, batch=-3)]}, "`batch` must be a positive integer, got -3"),
        ({"steps": [partial(GRanker, smoothing=1.5)]}, r"`smoothing` must lie in \[0, 1\], got 1.5"),
        ({"steps": [Rerank]}, "`pair_encoder` must be set for a step that scores pairs .*, got none"),
    ],
)
def test_arguments_out_of_range_are_refused(settings: dict[str, Any], message: str, make_corpus: Any) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(make_corpus(), **{"steps": [search()], **settings})


def test_hipporag_2_against_igraph(make_corpus: Any, make_queries: Any) -> None:
    graph, queries = make_corpus(num_edges=120), make_queries()
    found = Pipeline(graph, steps=[search(8), partial(PageRank, restart_prob=0.5)], budget=20).retrieve(queries)
    row = torch.repeat_interleave(torch.arange(60), graph.degree)
    pairs = [(a, b) for a, b in zip(row.tolist(), graph.indices.tolist(), strict=True) if a < b]
    peer = igraph.Graph(n=60, edges=pairs)
    for query, nodes in enumerate(found_by(found.ranking)):
        vector = queries.encoded[query]
        sim = {n: float((vector * graph.embedding[n]).sum()) for n in vector_search(vector, graph.embedding, 8)}
        least = min(sim.values())
        expected = peer.personalized_pagerank(damping=0.5, reset=[sim.get(n, least) - least for n in range(60)])
        assert nodes == sorted(range(60), key=lambda n: (-expected[n], n))[:20]


def test_page_rank_of_equal_scores_restarts_at_all_evenly(make_corpus: Any, make_queries: Any) -> None:
    graph = make_corpus(20, 0)
    steps = [partial(VectorSearch, retriever=partial(Shallow)), PageRank]
    found = Pipeline(graph, steps=steps, budget=4).retrieve(make_queries(2))
    assert found.ranking.nodes.tolist() == [[4, 7, -1, -1]] * 2
    assert found.ranking.scores[:, :2].tolist() == [[0.5, 0.5]] * 2
