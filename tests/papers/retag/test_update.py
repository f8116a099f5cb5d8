from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.text import WordTokenizer, count_tokens
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.difference import index_difference
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.leiden import Hierarchy
from graphrerank_papers.retag.update import graft

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")

MakePassages = Callable[..., list[str]]
SETTINGS = ReTAGSettings(
    num_topics=3,
    max_community=6,
    min_component=1,
    context_tokens=60,
    summary_tokens=24,
    description_tokens=20,
    coverage=0.9,
)


@pytest.fixture
def builder(tmp_path: Path, word_encoder: Any, name_extractor: Any) -> ReTAGIndexBuilder:
    return ReTAGIndexBuilder(
        tmp_path / "retag", tokenizer=WordTokenizer(), encoder=word_encoder, extractor=name_extractor
    )


def named(passages: list[str]) -> list[str]:
    return [f"p{number}" for number in range(len(passages))]


def by_members(index: ReTAGIndex) -> dict[tuple[int, tuple[int, ...]], str]:
    own = index.communities
    return {
        (graph, tuple(members)): text
        for graph, members, text in zip(own.graph.tolist(), own.members.tolist(), own.texts, strict=True)
    }


def check(index: ReTAGIndex, passages: list[str]) -> None:
    own = index.communities
    assert count_tokens(WordTokenizer(), own.texts) == own.num_tokens.tolist()
    assert int(own.num_tokens.max()) <= SETTINGS.summary_tokens
    for sentence, passage in zip(index.sentences.texts, index.sentences.passage.tolist(), strict=True):
        assert sentence in passages[passage]
    for community, sentences in enumerate(own.sentences.tolist()):
        assert own.texts[community] == " ".join(index.sentences.texts[number] for number in sentences)
    for number, graph in enumerate(index.graphs):
        for level in range(own.num_levels(number)):
            members = [node for one in own.at_level(number, level) for node in own.members[int(one)].tolist()]
            assert sorted(members) == torch.unique(graph.edges).tolist()
    for child, parent in enumerate(own.parent.tolist()):
        if parent >= 0:
            assert set(own.members[child].tolist()) < set(own.members[parent].tolist())


@pytest.mark.parametrize("new", [1, 15])
def test_an_index_that_grew_holds_what_a_new_one_holds(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages, new: int
) -> None:
    passages = make_themed_passages(60)
    before = passages[:-new]
    grown = builder.update(builder.build(named(before), before, SETTINGS), named(passages), passages)
    at_once = builder.build(named(passages), passages, SETTINGS)
    check(grown, passages)
    assert (grown.entities, grown.passage_ids) == (at_once.entities, at_once.passage_ids)
    assert torch.equal(grown.graphs[0].edges, at_once.graphs[0].edges)
    assert torch.equal(grown.graphs[0].weight, at_once.graphs[0].weight)
    difference = index_difference(grown, at_once)
    assert difference.communities == (len(grown.communities), len(at_once.communities))
    assert difference.rand[0] > 0.3
    assert difference.summaries > 0.8
    assert grown.report.summarised < len(grown.communities)


def test_only_what_is_touched_changes(builder: ReTAGIndexBuilder, make_themed_passages: MakePassages) -> None:
    passages = make_themed_passages(60)
    before = builder.build(named(passages), passages, SETTINGS)
    more = [*passages, "Metz9 and Nancy9 saw the harbour. Metz9 and Metz0 saw the market."]
    grown = builder.update(before, named(more), more)
    check(grown, more)
    old, new = by_members(before), by_members(grown)
    names = grown.entities
    added = {names.index("Metz9"), names.index("Nancy9")}
    touched = added | {names.index("Metz0")}
    for (graph, members), text in new.items():
        if not touched & set(members) and (graph, members) in old:
            assert old[graph, members] == text
    own = grown.communities
    for community, (graph, members) in enumerate(zip(own.graph.tolist(), own.members.tolist(), strict=True)):
        if (graph, tuple(members)) not in old:  # it grew, or was split off one that grew
            above = int(own.parent[community])
            assert touched & (set(members) | set(own.members[above].tolist() if above >= 0 else ()))
    assert set(new) != set(old)
    assert grown.report.summarised < len(grown.communities) / 4
    assert grown.topics is before.topics


def test_what_is_related_to_nothing_known_makes_communities(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages
) -> None:
    passages = make_themed_passages(30)
    more = [*passages, "Xenia and Yvo met. Yvo and Zeno met. Xenia and Zeno met."]
    grown = builder.update(builder.build(named(passages), passages, SETTINGS), named(more), more)
    own, names = grown.communities, grown.entities
    (community,) = [c for c in own.at_level(0, 0).tolist() if names.index("Xenia") in own.members[c].tolist()]
    assert [names[node] for node in own.members[community].tolist()] == ["Xenia", "Yvo", "Zeno"]
    assert own.texts[community] == more[-1]


def test_an_index_grows_from_nothing(builder: ReTAGIndexBuilder, make_themed_passages: MakePassages) -> None:
    passages = make_themed_passages(12)
    settings = replace(SETTINGS, num_topics=0)
    empty = builder.build([], [], settings)
    grown = builder.update(empty, named(passages), passages)
    assert by_members(grown) == by_members(builder.build(named(passages), passages, settings))


def test_other_passages_are_refused(builder: ReTAGIndexBuilder, make_themed_passages: MakePassages) -> None:
    passages = make_themed_passages(6)
    index = builder.build(named(passages), passages, SETTINGS)
    with pytest.raises(ValueError, match="`ids` must begin with the 6 ids of the index"):
        builder.update(index, ["q", *named(passages)], ["Metz.", *passages])
    with pytest.raises(ValueError, match="`passages` must begin with those of the index"):
        builder.update(index, named(passages), make_themed_passages(6, seed=1))
    with pytest.raises(ValueError, match="must have the same passages"):
        index_difference(index, builder.build(named(passages[:3]), passages[:3], SETTINGS))


def test_an_index_is_as_far_from_itself_as_nothing(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages
) -> None:
    passages = make_themed_passages(30)
    index = builder.build(named(passages), passages, SETTINGS)
    difference = index_difference(index, index)
    assert difference.rand == (1.0,) * index.communities.num_levels(0)
    assert difference.summaries == pytest.approx(1.0)


def test_graft() -> None:
    old = Hierarchy([0, 0, 1, 1], [-1, -1, 0, 0], [[0, 1, 2, 3], [4, 5], [0, 1], [2, 3]])
    edges = torch.tensor([[0, 1], [0, 2], [2, 3], [4, 5], [0, 6], [4, 6], [6, 7], [8, 9]])
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    grown, origin = graft(old, edges, weight, ReTAGSettings(max_community=5, min_component=2))
    assert grown.members == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1], [2, 3]]  # 7 by way of 6
    assert (grown.level, grown.parent) == ([0, 0, 0, 1, 1], [-1, -1, -1, 0, 0])
    assert origin == [0, 1, -1, 2, 3]


def test_graft_splits_what_outgrows_its_limit() -> None:
    triangle = [[0, 1], [0, 2], [1, 2]]
    other = [[node + 3 for node in pair] for pair in triangle]
    old = Hierarchy([0], [-1], [[0, 1, 2, 3]])
    grown, origin = graft(
        old, torch.tensor([*triangle, *other, [2, 3]]), torch.ones(7), ReTAGSettings(max_community=5, min_component=2)
    )
    assert grown.members == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5]]
    assert (grown.level, grown.parent, origin) == ([0, 1, 1], [-1, 0, 0], [0, -1, -1])
