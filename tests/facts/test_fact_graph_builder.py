from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data import VectorCache
from graphrerank.indexes import FactGraph, FactGraphBuilder, FactGraphSettings, encode
from graphrerank.knowledge import KnowledgeCache

Build = Callable[..., FactGraph]


def same(one: FactGraph, two: FactGraph) -> None:
    for name in ("indptr", "indices", "weight"):
        assert torch.equal(getattr(one.graph, name), getattr(two.graph, name))
    assert one.facts.texts == two.facts.texts
    assert torch.equal(one.fact_vectors, two.fact_vectors)


def test_the_graph_by_hand(build: Build, toy: tuple[str, ...]) -> None:
    index = build(toy, max_synonyms=0)
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
    assert index.report() == (
        "fact graph: 6 passages (1 without an entity), 7 entities, 5 facts; "
        "edges: 11 occurrence, 5 relation, 0 synonymy"
    )


def test_synonyms_are_joined(build: Build, encoder: Any, make_passages: Callable[..., list[str]]) -> None:
    index = build(make_passages(), synonymy_threshold=0.6)
    spellings = index.facts.spellings
    cosine = encoder.encode(spellings) @ encoder.encode(spellings).T
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


def test_short_names_have_no_synonyms(build: Build) -> None:
    passages = ["Ab|knows|Abc", "A.b.|knows|Abd"]  # "ab" both times
    index = build(passages, synonymy_threshold=1e-6, min_name_characters=3)
    assert index.facts.names == ["ab", "abc", "abd"]
    assert index.num_synonyms <= 1
    assert build(passages, synonymy_threshold=1e-6, min_name_characters=4).num_synonyms == 0


def test_the_second_build_asks_nobody(
    build: Build, extractor: Any, encoder: Any, make_passages: Callable[..., list[str]]
) -> None:
    passages = make_passages()
    first = build(passages)
    extractor.asked.clear()
    encoder.asked.clear()
    same(build(passages), first)
    assert extractor.asked == encoder.asked == []
    build(passages, synonymy_threshold=0.5)  # other synonyms of the same entities
    assert extractor.asked == encoder.asked == []


def test_another_corpus_another_extractor_another_encoder(
    build: Build, extractor: Any, encoder: Any, make_passages: Callable[..., list[str]]
) -> None:
    passages = make_passages()
    build(passages)
    extractor.asked.clear()
    encoder.asked.clear()
    build([*passages[:-1], "Name 1|sees|Name 2"])
    assert len(extractor.asked) == len(passages)
    extractor.fingerprint = "other statements"
    encoder.asked.clear()
    build(passages)
    assert len(extractor.asked) == 2 * len(passages)
    assert encoder.asked == []  # the same facts
    encoder.fingerprint = "other hash"
    build(passages)
    assert len(encoder.asked) > 0


@pytest.mark.parametrize("stop", range(6))
def test_a_build_that_was_stopped_goes_on(
    stop: int,
    tmp_path: Path,
    extractor: Any,
    encoder: Any,
    make_passages: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "BLOCK_TEXTS", 10)
    passages = make_passages()
    whole = FactGraphBuilder(tmp_path / "whole", extractor=extractor, encoder=encoder).build(passages)
    asked, encoder.asked = encoder.asked, []
    encoder.fail_at = asked[10 * stop + 5]
    assert len(asked) > 60
    builder = FactGraphBuilder(tmp_path / "stopped", extractor=extractor, encoder=encoder)
    with pytest.raises(KeyboardInterrupt):
        builder.build(passages)
    encoder.fail_at = None
    extractor.asked.clear()
    same(builder.build(passages), whole)
    assert extractor.asked == []
    assert encoder.asked == asked  # each text once, in the same order
    names = [sorted(file.name for file in (tmp_path / folder).iterdir()) for folder in ("whole", "stopped")]
    assert names[0] == names[1]


def test_a_corpus_that_grew(
    tmp_path: Path, extractor: Any, encoder: Any, make_passages: Callable[..., list[str]]
) -> None:
    encoder.name = "hash"
    models = {
        "extractor": KnowledgeCache(extractor, tmp_path / "knowledge"),
        "encoder": VectorCache(encoder, tmp_path / "vectors"),
    }
    passages = make_passages(40)
    FactGraphBuilder(tmp_path / "one", **models).build(passages)
    extractor.asked.clear()
    encoder.asked.clear()
    grown = FactGraphBuilder(tmp_path / "one", **models).build([*passages, "Name 1|leaves|Nowhere"])
    assert extractor.asked == ["Name 1|leaves|Nowhere"]
    assert set(encoder.asked) == {"Name 1 leaves Nowhere", "Nowhere"}
    same(FactGraphBuilder(tmp_path / "two", **models).build([*passages, "Name 1|leaves|Nowhere"]), grown)


@pytest.mark.parametrize("passages", [[], ["nothing", "nobody"]])
def test_no_entities(passages: list[str], build: Build) -> None:
    index = build(passages)
    assert index.graph.num_nodes == len(passages)
    assert index.graph.num_edges == 0
    assert index.fact_vectors.shape == (0, 0)
    assert index.report().startswith(f"fact graph: {len(passages)} passages ({len(passages)} without an entity), 0 ent")


def test_a_damaged_file_is_named(build: Build, toy: tuple[str, ...], tmp_path: Path) -> None:
    build(toy)
    (file,) = tmp_path.glob("facts-*.safetensors")
    file.write_bytes(b"junk")
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*delete this file"):
        build(toy)


def test_vectors_that_do_not_fit_are_refused(
    build: Build, toy: tuple[str, ...], encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "encode", lambda texts: torch.zeros(1, 3))
    with pytest.raises(
        ValueError, match=r"`encoder` must return finite \[7, d\] vectors, got a tensor of shape \[1, 3\]"
    ):
        build(toy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"synonymy_threshold": 1.5}, r"`synonymy_threshold` must lie in \(0, 1\], got 1.5"),
        ({"max_synonyms": -1}, "`max_synonyms` must not be negative, got -1"),
        ({"min_name_characters": -1}, "`min_name_characters` must not be negative, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FactGraphSettings(**settings)
