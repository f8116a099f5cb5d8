from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.vector_cache import VectorCache
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank_papers import indexing
from graphrerank_papers.hipporag import fact_graph as module
from graphrerank_papers.hipporag.fact_graph import FactGraph, build_fact_graph, synonym_edges

Build = Callable[..., FactGraph]


def same(one: FactGraph, two: FactGraph) -> None:
    for name in ("indptr", "indices", "weight"):
        assert torch.equal(getattr(one.graph, name), getattr(two.graph, name))
    assert one.facts.facts == two.facts.facts
    assert torch.equal(one.fact_vectors, two.fact_vectors)


def test_the_graph_by_hand(
    fact_graph: Build, fact_passages: tuple[str, ...], capsys: pytest.CaptureFixture[str]
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


def test_synonyms_are_joined(
    fact_graph: Build, hash_encoder: Any, make_fact_passages: Callable[..., list[str]]
) -> None:
    index = fact_graph(make_fact_passages(), synonymy_threshold=0.6)
    spellings = index.facts.spellings
    cosine = hash_encoder.encode(spellings) @ hash_encoder.encode(spellings).T
    related = {tuple(pair) for pair in index.facts.related.tolist()}
    pairs = [(a, b) for a in range(len(spellings)) for b in range(a + 1, len(spellings)) if cosine[a, b] >= 0.6]
    assert index.num_synonyms == len(pairs) > 5
    graph = index.graph
    for a, b in pairs:
        if (a, b) in related:
            continue
        span = slice(int(graph.indptr[40 + a]), int(graph.indptr[40 + a + 1]))
        weight = dict(zip(graph.indices[span].tolist(), graph.weight[span].tolist(), strict=True))
        assert weight[40 + b] == pytest.approx(float(cosine[a, b]), abs=1e-6)


def test_the_second_build_asks_nobody(
    fact_graph: Build, statement_extractor: Any, hash_encoder: Any, make_fact_passages: Callable[..., list[str]]
) -> None:
    passages = make_fact_passages()
    first = fact_graph(passages)
    statement_extractor.asked.clear()
    hash_encoder.asked.clear()
    same(fact_graph(passages), first)
    assert statement_extractor.asked == hash_encoder.asked == []
    fact_graph(passages, synonymy_threshold=0.5)  # other synonyms of the same entities
    assert statement_extractor.asked == hash_encoder.asked == []


def test_another_corpus_another_extractor_another_encoder(
    fact_graph: Build, statement_extractor: Any, hash_encoder: Any, make_fact_passages: Callable[..., list[str]]
) -> None:
    passages = make_fact_passages()
    fact_graph(passages)
    statement_extractor.asked.clear()
    hash_encoder.asked.clear()
    fact_graph([*passages[:-1], "Name 1|sees|Name 2"])
    assert len(statement_extractor.asked) == len(passages)
    statement_extractor.fingerprint = "other statements"
    hash_encoder.asked.clear()
    fact_graph(passages)
    assert len(statement_extractor.asked) == 2 * len(passages)
    assert hash_encoder.asked == []  # the same facts
    hash_encoder.fingerprint = "other hash"
    fact_graph(passages)
    assert len(hash_encoder.asked) > 0


@pytest.mark.parametrize("stop", range(6))
def test_a_build_that_was_stopped_goes_on(
    stop: int,
    tmp_path: Path,
    statement_extractor: Any,
    hash_encoder: Any,
    make_fact_passages: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexing, "BLOCK_TEXTS", 10)
    passages = make_fact_passages()
    models = {"extractor": statement_extractor, "encoder": hash_encoder}
    whole = build_fact_graph(passages, folder=tmp_path / "whole", **models)
    asked, hash_encoder.asked = hash_encoder.asked, []
    hash_encoder.fail_at = asked[10 * stop + 5]
    assert len(asked) > 60
    with pytest.raises(KeyboardInterrupt):
        build_fact_graph(passages, folder=tmp_path / "stopped", **models)
    hash_encoder.fail_at = None
    statement_extractor.asked.clear()
    same(build_fact_graph(passages, folder=tmp_path / "stopped", **models), whole)
    assert statement_extractor.asked == []
    assert hash_encoder.asked == asked  # each text once, in the same order
    names = [sorted(file.name for file in (tmp_path / folder).iterdir()) for folder in ("whole", "stopped")]
    assert names[0] == names[1]


def test_a_corpus_that_grew(
    tmp_path: Path, statement_extractor: Any, hash_encoder: Any, make_fact_passages: Callable[..., list[str]]
) -> None:
    hash_encoder.name = "hash"
    models = {
        "extractor": KnowledgeCache(statement_extractor, tmp_path / "knowledge"),
        "encoder": VectorCache(hash_encoder, tmp_path / "vectors"),
    }
    passages = make_fact_passages(40)
    build_fact_graph(passages, folder=tmp_path / "one", **models)
    statement_extractor.asked.clear()
    hash_encoder.asked.clear()
    more = [*passages, "Name 1|leaves|Nowhere"]
    grown = build_fact_graph(more, folder=tmp_path / "one", **models)
    assert statement_extractor.asked == ["Name 1|leaves|Nowhere"]
    assert set(hash_encoder.asked) == {"Name 1 leaves Nowhere", "Nowhere"}
    same(build_fact_graph(more, folder=tmp_path / "two", **models), grown)


@pytest.mark.parametrize("passages", [[], ["nothing", "nobody"]])
def test_no_entities(passages: list[str], fact_graph: Build) -> None:
    index = fact_graph(passages)
    assert index.graph.num_nodes == len(passages)
    assert index.graph.num_edges == 0
    assert index.fact_vectors.shape == (0, 0)


def test_a_damaged_file_is_named(fact_graph: Build, fact_passages: tuple[str, ...], tmp_path: Path) -> None:
    fact_graph(fact_passages)
    (file,) = tmp_path.glob("corpus_knowledge-*.safetensors")
    file.write_bytes(b"junk")
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*delete this file"):
        fact_graph(fact_passages)


def test_vectors_that_do_not_fit_are_refused(
    fact_graph: Build, fact_passages: tuple[str, ...], hash_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_encoder, "encode", lambda texts: torch.zeros(1, 3))
    with pytest.raises(
        ValueError, match=r"`encoder` must return finite \[7, d\] vectors, got a tensor of shape \[1, 3\]"
    ):
        fact_graph(fact_passages)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"synonymy_threshold": 1.5}, r"`synonymy_threshold` must lie in \(0, 1\], got 1.5"),
        ({"max_synonyms": -1}, "`max_synonyms` must not be negative, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str, fact_graph: Build) -> None:
    with pytest.raises(ValueError, match=message):
        fact_graph([], **settings)


def vectors(num: int = 60, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(num, 4, generator=generator)
    drawn[7], drawn[9] = drawn[8], 0.0
    return drawn


@pytest.mark.parametrize("max_cosines", [1, 7 * 60, 1 << 23])
@pytest.mark.parametrize("max_synonyms", [0, 1, 3, 100])
def test_synonyms_against_naive_loop(max_synonyms: int, max_cosines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COSINES", max_cosines)
    drawn = vectors()
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


def test_odd_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`vectors` must be a finite \[E, d\] matrix, got \[1, 1\]"):
        synonym_edges(torch.tensor([[float("nan")]]))
