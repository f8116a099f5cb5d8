import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import igraph
import networkx
import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank_papers import hipporag
from graphrerank_papers.hipporag import (
    FactGraph,
    FactGraphSearch,
    HippoRAGSearch,
    build_fact_graph,
    find_facts,
    rerank_by_pairs,
    select_by_language_model,
    synonym_edges,
)
from tests.support.device import made_up_device
from tests.support.encoders import HashEncoder
from tests.support.extractors import StatementExtractor
from tests.support.graphs import after_vector_search, keeps_vector_search

MakePassages = Callable[..., list[str]]
Build = Callable[..., Pipeline]
Index = Callable[..., FactGraph]


@pytest.fixture
def fact_graph(tmp_path: Path, statement_extractor: StatementExtractor, hash_encoder: HashEncoder) -> Index:
    def make(passages: Sequence[str], folder: str = "one", **settings: Any) -> FactGraph:
        parts = {"extractor": statement_extractor, "encoder": hash_encoder, **settings}
        return build_fact_graph(passages, folder=tmp_path / folder, **parts)

    return make


def test_the_graph_by_hand(
    fact_graph: Index, fact_passages: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    index = fact_graph(fact_passages, max_synonyms=0)
    graph, entity = index.graph, {name: 6 + number for number, name in enumerate(index.facts.names)}
    assert graph.num_nodes == 6 + 7
    assert graph.node_ids[:2] == ["passage:0", "passage:1"]
    assert graph.node_ids[6] == "entity:lothair ii"

    def neighbours(node: int) -> dict[int, float]:
        span = slice(int(graph.indptr[node]), int(graph.indptr[node + 1]))
        return dict(zip(graph.indices[span].tolist(), graph.weight[span].tolist(), strict=True))

    assert neighbours(0) == {entity["lothair ii"]: 1.0, entity["metz"]: 1.0}
    assert neighbours(4) == {}  # an isolated passage
    assert neighbours(entity["nancy"]) == {1: 1.0}
    assert neighbours(entity["metz"]) == {
        0: 1.0, 1: 1.0, 3: 1.0, entity["lothair ii"]: 1.0, entity["moselle"]: 1.0, entity["lotharingia"]: 1.0,
    }  # fmt: skip
    assert index.num_holders.tolist() == [2, 3, 1, 1, 1, 2, 1]
    assert capsys.readouterr().out == (
        "fact graph: 6 passages (1 without an entity), 7 entities, 5 facts; "
        "edges: 11 occurrence, 5 relation, 0 synonymy\n"
    )


def test_only_what_changes_is_done_again(
    fact_graph: Index, statement_extractor: Any, hash_encoder: Any, make_fact_passages: MakePassages
) -> None:
    passages = make_fact_passages()
    first = fact_graph(passages)
    extracted, encoded = statement_extractor.asked, hash_encoder.asked
    for asked in (extracted, encoded):
        asked.clear()
    again = fact_graph(passages)
    for name in ("indptr", "indices", "weight"):
        assert torch.equal(getattr(again.graph, name), getattr(first.graph, name))
    assert again.facts.facts == first.facts.facts
    assert torch.equal(again.fact_vectors, first.fact_vectors)
    fact_graph(passages, synonymy_threshold=0.5)  # other synonyms of the same entities
    assert extracted == encoded == []
    fact_graph([*passages[:-1], "Name 1|sees|Name 2"])
    assert len(extracted) == len(passages)
    statement_extractor.fingerprint = "other statements"
    encoded.clear()
    fact_graph(passages)
    assert len(extracted) == 2 * len(passages)
    assert encoded == []  # the same facts
    hash_encoder.fingerprint = "other hash"
    fact_graph(passages)
    assert len(encoded) > 0


@pytest.mark.parametrize("passages", [[], ["nothing", "nobody"]])
def test_no_entities(passages: list[str], fact_graph: Index) -> None:
    index = fact_graph(passages)
    assert index.graph.num_nodes == len(passages)
    assert index.graph.num_edges == 0
    assert index.fact_vectors.shape == (0, 0)


@pytest.mark.parametrize("max_cosines", [1, 7 * 60, 1 << 23])
@pytest.mark.parametrize("max_synonyms", [0, 1, 3, 100])
def test_synonyms_against_naive_loop(max_synonyms: int, max_cosines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hipporag, "MAX_COSINES", max_cosines)
    drawn = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    drawn[7], drawn[9] = drawn[8], 0.0
    unit = torch.nn.functional.normalize(drawn, dim=1)
    cosine = unit @ unit.T
    expected = {}
    for entity in range(60):
        near = [other for other in range(60) if other != entity and cosine[entity, other] >= 0.8]
        for other in sorted(near, key=lambda other: (-float(cosine[entity, other]), other))[:max_synonyms]:
            expected[min(entity, other), max(entity, other)] = float(cosine[entity, other])
    pairs, weight = synonym_edges(drawn, threshold=0.8, max_synonyms=max_synonyms)
    assert pairs.tolist() == [list(pair) for pair in sorted(expected)]
    assert weight.tolist() == pytest.approx([expected[pair] for pair in sorted(expected)])
    assert (len(expected) > 20) == (max_synonyms > 0)
    assert not (pairs == 9).any()  # a vector of zeros


class PairHash:
    """A pair encoder without a model: a logit by the pair's letters."""

    hidden_size = 1
    fingerprint = "letters"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        pairs = zip(query_texts, passages, strict=True)
        return torch.tensor([[float(sum(map(ord, a + b)) % 17)] for a, b in pairs]).reshape(-1, 1)

    def head(self, vectors: Tensor) -> Tensor:
        return vectors.sum(-1)


class Words:
    """Capitalised words are entities."""

    fingerprint = "words"

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        return [Knowledge.from_names(re.findall(r"[A-Z]\w+", text)) for text in texts]


@pytest.fixture
def pipeline(tmp_path: Path, hash_encoder: Any, statement_extractor: Any) -> Build:
    def make(
        passages: Sequence[str],
        search: Any = FactGraphSearch,
        *,
        budget: int = 10,
        device: str = "cpu",
        **settings: Any,
    ) -> Pipeline:
        step = partial(search, folder=tmp_path, extractor=statement_extractor, **settings)
        parts = {"pair_encoder": PairHash(), "batch_queries": 3, "device": device}
        return after_vector_search(step, passages, hash_encoder, budget=budget, **parts)

    return make


@pytest.fixture
def queries(hash_encoder: Any) -> Queries:
    texts = [f"query {i}" for i in range(7)]
    return Queries([f"q{i}" for i in range(7)], texts, hash_encoder.encode(texts))


def as_igraph(graph: CorpusGraph) -> tuple[igraph.Graph, list[float]]:
    row = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    once = row < graph.indices
    edges = torch.stack([row[once], graph.indices[once]], dim=1).tolist()
    return igraph.Graph(n=graph.num_nodes, edges=edges), graph.weight[once].tolist()


def by_hand(
    built: FactGraph,
    query: Tensor,
    text: str,
    dense: list[tuple[int, float]],
    *,
    num_candidates: int = 5,
    num_facts: int = 5,
    combination: str = "last",
    num_seeds: int = 5,
    passage_weight: float = 0.0,
    passage_seeds: str = "retrieved",
    restart_prob: float = 0.5,
    rerank: str = "none",
) -> dict[int, float]:
    """Algorithm 1, lines 4 to 9, for one query, as it is written; the mass of each passage."""
    similarity = [float(query @ fact) for fact in built.fact_vectors]  # line 4
    least, most = min(similarity), max(similarity)
    normalised = [(score - least) / (most - least) for score in similarity]
    ranked = sorted(range(len(similarity)), key=lambda fact: (-similarity[fact], fact))
    top = [fact for fact in ranked if similarity[fact] > 0][:num_candidates]
    if rerank == "cross_encoder":  # line 5
        logit = {fact: sum(map(ord, text + built.facts.facts[fact])) % 17 for fact in top}
        top = sorted(top, key=lambda fact: -logit[fact])
    given: dict[int, list[float]] = {}
    for fact in top[:num_facts]:  # line 6
        for entity in built.facts.ends[fact].tolist():
            holders = {passage for held, passage in built.facts.entity_links.tolist() if held == entity}
            given.setdefault(entity, []).append(normalised[fact] / len(holders))
    combine: Any = {"last": lambda w: w[-1], "mean": lambda w: sum(w) / len(w), "sum": sum}[combination]
    weight = {entity: combine(of_facts) for entity, of_facts in given.items()}
    seeds = sorted(weight, key=lambda entity: (-weight[entity], entity))[:num_seeds]  # line 7
    reset = [0.0] * built.graph.num_nodes  # line 8
    for entity in seeds:
        reset[built.num_passages + entity] = weight[entity]
    scores = [score for _, score in dense]
    for passage, score in dense:
        reset[passage] = passage_weight * (score - min(scores)) / (max(scores) - min(scores))
    peer, weights = as_igraph(built.graph)
    mass = peer.personalized_pagerank(damping=1 - restart_prob, reset=reset, weights=weights)
    return dict(enumerate(mass[: built.num_passages]))  # line 9


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_candidates": 9, "num_facts": 3, "num_seeds": 2, "restart_prob": 0.2},
        {"combination": "sum", "passage_weight": 0.3},
        {"combination": "mean", "passage_weight": 0.05, "passage_seeds": "all"},  # HippoRAG 2
        {"num_candidates": 8, "num_facts": 4, "rerank": "cross_encoder"},
    ],
)
def test_against_the_algorithm_query_by_query(
    settings: dict[str, Any], pipeline: Build, fact_graph: Index, queries: Queries, make_fact_passages: MakePassages
) -> None:
    passages = make_fact_passages(num_names=60)
    built = fact_graph(passages, synonymy_threshold=0.7)
    assert (built.graph.weight % 1 > 0).sum() > 20  # synonyms, in both directions
    system = pipeline(passages, synonymy_threshold=0.7, **settings)
    found = system.retrieve(queries).ranking
    dense = Pipeline(system._resources.graph, steps=[VectorSearch], budget=10).retrieve(queries).ranking
    for row in range(len(queries)):
        before = list(zip(dense.nodes[row].tolist(), dense.scores[row].tolist(), strict=True))
        if "passage_seeds" in settings:
            embedding = system._resources.graph.encoded
            before = [(node, float(queries.encoded[row] @ vector)) for node, vector in enumerate(embedding)]
        mass = by_hand(built, queries.encoded[row], queries.texts[row], before, **settings)
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert len(nodes) > 3
        scores = torch.tensor([mass[node] for node in nodes])
        torch.testing.assert_close(found.scores[row, : len(nodes)], scores, atol=2e-5, rtol=0)
        best = sorted((share for share in mass.values() if share > 1e-7), reverse=True)[:10]
        torch.testing.assert_close(scores, torch.tensor(best), atol=2e-5, rtol=0)


@pytest.mark.parametrize("search", [partial(FactGraphSearch), partial(HippoRAGSearch, query_extractor=Words())])
@pytest.mark.parametrize("passages", [["nothing", "nobody", "none"], ["Metz", "Trier", "Nancy"]])
def test_a_corpus_without_facts_is_searched_densely(
    passages: list[str], search: Any, pipeline: Build, queries: Queries
) -> None:
    system = pipeline(passages, search, budget=5)
    assert keeps_vector_search(system, queries)
    assert (system.retrieve(queries).ranking.nodes >= 0).sum(1).tolist() == [3] * 7
    assert system.retrieve(queries.block(0, 0)).ranking.nodes.shape == (0, 5)
    assert pipeline([], search).retrieve(queries).ranking.nodes.tolist() == [[-1] * 10] * 7


def test_a_query_without_facts_among_others(
    pipeline: Build, queries: Queries, make_fact_passages: MakePassages
) -> None:
    vectors = queries.encoded.clone()
    vectors[2] = 0.0  # an empty query has no vector, and so is like no fact
    asked = Queries(queries.ids, [*queries.texts[:2], "", *queries.texts[3:]], vectors)
    system, others = pipeline(make_fact_passages()), [0, 1, 3, 4, 5, 6]
    assert keeps_vector_search(system, asked, [2])
    assert not keeps_vector_search(system, asked, others)
    found = system.retrieve(asked).ranking
    assert torch.equal(found.nodes[others], system.retrieve(queries).ranking.nodes[others])


def test_isolated_passages_are_not_ranked(
    pipeline: Build, queries: Queries, make_fact_passages: MakePassages, statement_extractor: Any
) -> None:
    passages = make_fact_passages()
    alone = [number for number, told in enumerate(statement_extractor.extract(passages)) if not told.entities]
    assert len(alone) >= 5
    found = pipeline(passages, budget=40).retrieve(queries).ranking.nodes
    assert not torch.isin(found, torch.tensor(alone)).any()
    assert ((found >= 0).sum(1) > 5).all()
    seeded = pipeline(passages, budget=40, passage_weight=0.05).retrieve(queries).ranking.nodes
    assert torch.isin(seeded, torch.tensor(alone)).any(1).sum() > 4  # where they are seeds, as those with facts are


@pytest.mark.parametrize("settings", [{}, {"rerank": "cross_encoder", "passage_weight": 0.05}])
def test_on_a_device_as_on_the_cpu(
    settings: dict[str, Any], pipeline: Build, queries: Queries, make_fact_passages: MakePassages
) -> None:
    expected = pipeline(make_fact_passages(), **settings).retrieve(queries).ranking
    with made_up_device() as device:
        moved = pipeline(make_fact_passages(), device=device, **settings).retrieve(queries).ranking
    assert torch.equal(moved.nodes, expected.nodes)
    torch.testing.assert_close(moved.scores, expected.scores, atol=1e-5, rtol=0)


def test_a_language_model_that_throws_all_facts_out(
    pipeline: Build, queries: Queries, fact_passages: tuple[str, ...], scripted_model: Any, tmp_path: Path
) -> None:
    model = scripted_model(lambda _, question: [] if "query 1" in question else [1])
    system = pipeline(fact_passages, rerank="language_model", language_model=model, cache=tmp_path / "answers")
    found = system.retrieve(queries).ranking
    assert keeps_vector_search(system, queries, [1])
    first = pipeline(fact_passages, num_facts=1).retrieve(queries).ranking
    assert torch.equal(found.nodes[[0, 2, 3]], first.nodes[[0, 2, 3]])
    asked = len(model.asked)
    system.retrieve(queries)
    assert len(model.asked) == asked  # answers are kept


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_candidates": 3}, r"`num_candidates` must be at least `num_facts` \(5\), got 3"),
        ({"combination": "max"}, r"`combination` must be one of \['last', 'mean', 'sum'\], got 'max'"),
        ({"rerank": "bm25"}, r"`rerank` must be one of \['none', 'cross_encoder', 'language_model'\], got 'bm25'"),
        ({"rerank": "language_model"}, "`language_model` is required by `rerank: language_model`, got None"),
    ],
)
def test_settings_out_of_range_are_refused(
    settings: dict[str, Any], message: str, pipeline: Build, fact_passages: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline(fact_passages, **settings)


def test_facts_by_hand() -> None:
    facts = torch.tensor([[0.5, 0.0], [0.9, 0.2], [-0.1, 0.4], [0.5, 0.7]])
    found = find_facts(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), facts, top_k=3)
    assert found.nodes.tolist() == [[1, 0, 3], [3, 2, 1]]
    torch.testing.assert_close(found.scores, torch.tensor([[1.0, 0.6, 0.6], [1.0, 4 / 7, 2 / 7]]))
    queries = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    found = find_facts(queries, torch.tensor([[0.4, 1.0], [0.0, 1.0]]), top_k=2)  # one fact is like the first query
    assert found.nodes.tolist() == [[0, -1], [-1, -1]]
    assert found.scores.tolist() == [[1.0, -torch.inf], [-torch.inf, -torch.inf]]
    for size in (0, 2):
        assert find_facts(torch.ones(size, 3), torch.zeros(0, 0), top_k=4).nodes.tolist() == [[-1] * 4] * size


FACTS = [["Metz lies on Moselle", "Trier is old", "Lothair died in Metz"], [], ["Trier is old"]]
TEXTS = ["Where did Lothair die?", "Who?", "How old is Trier?"]


class Lengths(PairHash):
    """A pair encoder that prefers long facts."""

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        assert len(query_texts) == len(passages)
        return torch.tensor([[float(len(passage))] for passage in passages])


def test_by_logits_ties_by_place() -> None:
    assert rerank_by_pairs(Lengths(), TEXTS, FACTS) == [[0, 2, 1], [], [0]]  # lengths 20, 12 and 20
    assert rerank_by_pairs(Lengths(), [], []) == []
    assert rerank_by_pairs(Lengths(), ["a"], [[]]) == [[]]


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        *[("[3, 1]", [2, 0]), ("[2, 2]", [1]), ("[]", [])],
        *[(other, [0, 1, 2]) for other in ("[4]", "[0]", "[true]", '{"facts": [1]}', "Facts 1 and 2.")],
    ],
)
def test_a_language_model_selects(answer: str, places: list[int], scripted_model: Any) -> None:
    model = scripted_model(lambda _, question: answer if "Where" in question else [1])
    selected = select_by_language_model(model, shipped_prompt("ea_graphrag_facts"), TEXTS, FACTS)
    assert selected == [places, [], [0]]
    first, _ = (question for _, question in model.asked)
    numbered = "\n".join(f"{number}. {fact}" for number, fact in enumerate(FACTS[0], 1))
    assert first == f"Question: {TEXTS[0]}\nFacts:\n{numbered}"


@pytest.mark.parametrize("settings", [{}, {"node_specificity": False, "restart_prob": 0.2}])
def test_entities_against_the_description_query_by_query(
    settings: dict[str, Any], pipeline: Build, make_fact_passages: MakePassages, hash_encoder: Any,
    fact_graph: Index,
) -> None:  # fmt: skip
    passages = make_fact_passages(num_names=60)
    index = fact_graph(passages, synonymy_threshold=0.7)
    assert (index.graph.weight % 1 > 0).sum() > 20
    names = hash_encoder.encode(index.facts.spellings)
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(names)))
    for (one, other), count in zip(index.facts.related.tolist(), index.facts.num_statements.tolist(), strict=True):
        graph.add_edge(one, other, weight=float(count))
    for one in graph:
        for other in range(one):
            cosine = float(names[one] @ names[other])
            if cosine >= 0.7:
                graph.add_edge(one, other, weight=max(cosine, graph.get_edge_data(one, other, {"weight": 0})["weight"]))
    holders: dict[int, set[int]] = {}
    for entity, passage in index.facts.entity_links.tolist():
        holders.setdefault(entity, set()).add(passage)
    queries = hash_encoder.queries(["who knew Anna and Berta?", "Metz", "nobody", "Xaver or Ylva or Zita"])
    parts = {"query_extractor": Words(), "synonymy_threshold": 0.7, "budget": 20}
    system = pipeline(passages, HippoRAGSearch, **parts, **settings)
    found = system.retrieve(queries).ranking
    assert keeps_vector_search(system, queries, [2])  # no entity in the query
    for row in (0, 1, 3):
        linked = {
            int((names @ hash_encoder.encode([name])[0]).argmax())
            for name in re.findall(r"[A-Z]\w+", queries.texts[row])
        }
        specific = settings.get("node_specificity", True)
        reset = {entity: 1 / len(holders[entity]) if specific else 1.0 for entity in linked}
        damping = 1 - settings.get("restart_prob", 0.5)
        mass = networkx.pagerank(graph, alpha=damping, personalization=reset, dangling=reset, tol=1e-9)
        score = [sum(mass[e] for e, held in holders.items() if passage in held) for passage in range(len(passages))]
        expected = torch.tensor(sorted((share for share in score if share > 1e-7), reverse=True)[:20])
        kept = found.scores[row][found.nodes[row] >= 0]
        torch.testing.assert_close(kept[: len(expected)], expected, atol=2e-5, rtol=0)
        own = torch.tensor([score[node] for node in found.nodes[row].tolist() if node >= 0])
        torch.testing.assert_close(kept, own, atol=2e-5, rtol=0)
        assert len(kept) > 3
