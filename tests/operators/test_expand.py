from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import Tensor

from graphrerank.data.run_retriever import RunRetriever
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.passages import Passages
from graphrerank.graphs.retriever import needs_vectors
from graphrerank.operators import expand
from graphrerank.operators.bm25 import BM25
from graphrerank.operators.expand import ExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.hybrid_expand import HybridExpandRetriever
from tests.support import CONF

WORDS = ["fox", "dog", "bird", "tree", "river", "stone"]


def corpus(num_nodes: int = 40, num_edges: int = 60, *, seed: int = 0) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, len(WORDS), (num_nodes, 4), generator=generator)
    edges = torch.randint(0, num_nodes, (num_edges, 2), generator=generator)
    texts = [" ".join(WORDS[i] for i in row) for row in words]
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(num_nodes)], texts, edges[edges[:, 0] != edges[:, 1]])
    return graph.with_embedding(F.normalize(torch.randn(num_nodes, 5, generator=generator), dim=1))


def queries(num_queries: int = 6) -> Queries:
    generator = torch.Generator().manual_seed(1)
    texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(2)) for i in range(num_queries)]
    vectors = F.normalize(torch.randn(num_queries, 5, generator=generator), dim=1)
    return Queries([f"q{i}" for i in range(num_queries)], texts, vectors)


class Fixed:
    """Gives every query one list of nodes, with falling scores and a feature of its own."""

    feature_names: tuple[str, ...] = ("base_score", "own")

    def __init__(self, graph: CorpusGraph, *, top_k: int, nodes: tuple[int, ...], score: float = 9.0) -> None:
        row = [*nodes[:top_k], *[-1] * (top_k - len(nodes))]
        self.nodes = torch.tensor(row)
        self.scores = torch.tensor([score - i if node >= 0 else -torch.inf for i, node in enumerate(row)])

    def retrieve(self, queries: Queries) -> Ranking:
        features = torch.stack([self.scores, 2 * self.scores], dim=-1).masked_fill(self.nodes[:, None] < 0, 0.0)
        shape = (len(queries), len(self.nodes))
        return Ranking(self.nodes.expand(shape), self.scores.expand(shape), features.expand(*shape, 2))


def line(edges: list[list[int]]) -> CorpusGraph:
    """Seven nodes with cosines 1.0, 0.8, 0.6, 0.4, 0.2, 0.0 and -0.2 to the query (1, 0); no words."""
    cosine = torch.tensor([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.2])
    vectors = torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1)
    texts = ["dog", "dog", "fox", "dog", "dog", "dog", "dog"]
    graph = CorpusGraph.from_edges(list("abcdefg"), texts, torch.tensor(edges).reshape(-1, 2).long())
    return graph.with_embedding(vectors)


FOX = Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]]))


def features_of(ranking: Ranking) -> Tensor:
    assert ranking.features is not None
    return ranking.features


def test_features_by_hand() -> None:
    """The base ranking is d, a, e; d is the only seed, its neighbours are a (in the base), e (listed third), c, g."""
    graph = line([[3, 0], [3, 4], [3, 2], [3, 6]])
    build = partial(Fixed, nodes=(3, 0, 4))
    retriever = ExpandRetriever(graph, base=build, top_k=5, base_k=2, num_seeds=1)
    found = retriever.retrieve(FOX)
    assert retriever.feature_names == (
        "base_score", "own", "bm25_score", "dense_score", "hops", "best_seed_score", "best_seed_reciprocal_rank",
        "seeds_reached",
    )  # fmt: skip
    below = float(torch.nextafter(torch.tensor(7.0), torch.tensor(0.0)))
    expected = [
        [9.0, 18.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0],
        [8.0, 16.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],  # a neighbour too, but found by the base ranking
        [7.0, 14.0, 0.0, 0.2, 1.0, 9.0, 1.0, 1.0],  # a neighbour that the base ranking lists further down
        [below, 14.0, 1.0, 0.6, 1.0, 9.0, 1.0, 1.0],  # not listed: behind the list
        [below, 14.0, 0.0, -0.2, 1.0, 9.0, 1.0, 1.0],
    ]
    assert found.nodes.tolist() == [[3, 0, 4, 2, 6]]
    torch.testing.assert_close(features_of(found), torch.tensor([expected]))
    assert torch.equal(found.scores, features_of(found)[..., 0])
    assert found.scores[0, 3] < 7.0
    assert found.base_nodes is not None
    assert found.base_nodes.tolist() == [[3, 0, 4, -1, -1]]


def test_without_vectors_neighbours_are_ranked_by_the_graph() -> None:
    """Of the seeds d and a, e is reached by both; with vectors c, the likest, would come first."""
    encoded = line([[3, 2], [3, 4], [0, 4], [3, 6]])
    graph = CorpusGraph(Passages(encoded.node_ids, encoded.texts), encoded.indptr, encoded.indices, encoded.weight)
    arguments = {"base": partial(Fixed, nodes=(3, 0)), "top_k": 3, "base_k": 2, "num_seeds": 2}
    retriever = ExpandRetriever(graph, similarity_weight=0, **arguments)  # type: ignore[arg-type]
    found = retriever.retrieve(Queries(["q"], ["fox"]))
    assert found.nodes.tolist() == [[3, 0, 4]]
    assert "dense_score" not in retriever.feature_names
    assert "bm25_score" in retriever.feature_names
    likest = ExpandRetriever(encoded, structure_weight=0, **arguments).retrieve(FOX)  # type: ignore[arg-type]
    assert likest.nodes.tolist() == [[3, 0, 2]]
    with pytest.raises(ValueError, match=r"choose an encoder .* or .*retriever\.similarity_weight=0"):
        ExpandRetriever(graph, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`queries` must have vectors"):
        ExpandRetriever(encoded, similarity_weight=0, **arguments).retrieve(Queries(["q"], ["fox"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_against_the_hybrid_one_on_the_whole_ranking(seed: int, hops: int) -> None:
    """Over a base ranking that lists every node, candidates and features are HybridExpandRetriever's."""
    graph = corpus(seed=seed)

    class Whole(HybridRetriever):
        def __init__(self, graph: CorpusGraph, *, top_k: int) -> None:
            super().__init__(graph, top_k=graph.num_nodes)

    settings = {"base_k": 8, "num_seeds": 5, "hops": hops}
    expected = HybridExpandRetriever(graph, top_k=20, **settings).retrieve(queries())  # type: ignore[arg-type]
    retriever = ExpandRetriever(graph, base=Whole, top_k=20, **settings)  # type: ignore[arg-type]
    assert retriever.feature_names == HybridExpandRetriever.feature_names
    found = retriever.retrieve(queries())
    assert torch.equal(found.nodes, expected.nodes)
    torch.testing.assert_close(features_of(found), features_of(expected))


def test_text_scores_against_bm25_and_dot_products() -> None:
    graph, asked = corpus(), queries()
    found = ExpandRetriever(graph, base=partial(Fixed, nodes=tuple(range(5, 17))), top_k=12, base_k=6, num_seeds=4)
    ranking = found.retrieve(asked)
    bm25 = BM25(graph.texts).score_all(asked.texts)
    assert graph.embedding is not None
    dense = asked.encoded @ graph.embedding.T
    for row in range(len(asked)):
        nodes = ranking.nodes[row]
        torch.testing.assert_close(features_of(ranking)[row, :, 2], (bm25[row] / bm25[row].max())[nodes])
        torch.testing.assert_close(features_of(ranking)[row, :, 3], dense[row, nodes])


def test_blocks_of_queries_and_single_queries_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = ExpandRetriever(
        corpus(), base=partial(Fixed, nodes=(3, 1, 30, 4, 9, 11)), top_k=9, base_k=4, num_seeds=3
    )
    whole = retriever.retrieve(queries())
    monkeypatch.setattr(expand, "BLOCK_SCORES", 100)
    parts = retriever.retrieve(queries())
    assert torch.equal(whole.nodes, parts.nodes)
    torch.testing.assert_close(features_of(whole), features_of(parts))
    for row in range(6):
        one = retriever.retrieve(queries().block(row, row + 1))
        assert torch.equal(one.nodes[0], whole.nodes[row])


def test_a_query_without_candidates_and_no_queries() -> None:
    retriever = ExpandRetriever(corpus(), base=partial(Fixed, nodes=()), top_k=5, base_k=3, num_seeds=2)
    found = retriever.retrieve(queries(2))
    assert (found.nodes == -1).all()
    assert (found.scores == -torch.inf).all()
    assert (features_of(found) == 0).all()
    none = retriever.retrieve(Queries([], [], torch.zeros(0, 5)))
    assert (none.nodes.shape, features_of(none).shape) == ((0, 5), (0, 5, 8))


def test_names_that_the_base_gives_are_its_own() -> None:
    class Named(Fixed):
        feature_names = ("base_score", "dense_score")

    retriever = ExpandRetriever(line([]), base=partial(Named, nodes=(0, 1)), top_k=3, base_k=2, num_seeds=1)
    assert retriever.feature_names[:3] == ("base_score", "dense_score", "bm25_score")
    assert features_of(retriever.retrieve(FOX))[0, 0, 1] == 18.0

    class Walked(Fixed):
        feature_names = ("base_score", "hops")

    with pytest.raises(ValueError, match=r"`base` must have no feature named as in .*, got \['hops'\]"):
        ExpandRetriever(line([]), base=partial(Walked, nodes=(0, 1)), top_k=3, base_k=2, num_seeds=1)


def test_who_needs_vectors(tmp_path: Path) -> None:
    run = partial(RunRetriever, path=tmp_path / "run.trec")
    assert not needs_vectors(partial(ExpandRetriever, base=run, similarity_weight=0))
    assert needs_vectors(partial(ExpandRetriever, base=run))
    assert needs_vectors(partial(ExpandRetriever, base=partial(HybridRetriever), similarity_weight=0))
    assert needs_vectors(HybridRetriever)


def test_fingerprint_is_the_base_retrievers(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q Q0 n1 1 1 x\n")
    run = partial(RunRetriever, path=tmp_path / "run.trec")
    assert ExpandRetriever(corpus(), base=run).fingerprint == run(corpus()).fingerprint != ""
    assert ExpandRetriever(corpus(), base=partial(Fixed, nodes=(1,))).fingerprint == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 0}, "`top_k` must be a positive integer, got 0"),
        ({"base_k": 100}, r"`base_k` must lie in \[1, `top_k`\)"),
        ({"num_seeds": 0}, "`num_seeds` must lie in"),
        ({"similarity_weight": -1.0}, r"`similarity_weight` must not be negative, got -1\.0"),
        ({"hops": 3}, "`hops` must be 1 or 2, got 3"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExpandRetriever(corpus(), base=partial(Fixed, nodes=(0,)), **arguments)  # type: ignore[arg-type]


def test_config_holds_the_defaults() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        factory = instantiate(compose("retriever/run_expand", overrides=["retriever.base.path=x"])["retriever"])
    assert (factory.func, factory.keywords["base"].func) == (ExpandRetriever, RunRetriever)
    defaults = ExpandRetriever.__init__.__kwdefaults__
    others = {"base": None, "quotas": dict.fromkeys(EDGE_TYPES, 0.2)}
    assert factory.keywords | {"base": None} == defaults | others
