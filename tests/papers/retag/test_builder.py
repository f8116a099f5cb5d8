import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.text import WordTokenizer, count_tokens
from graphrerank.utils.tensor_files import save_tensors
from graphrerank_papers.retag.builder import ReTAGIndexBuilder, parent_context, summarise_communities
from graphrerank_papers.retag.entity_graph import Hierarchy
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.retrieval import LevelSummaries
from graphrerank_papers.retag.steps import Material
from tests.support.corpora import THEMES
from tests.support.retag_index import same

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")

MakePassages = Callable[..., list[str]]
LIMITS = {"context_tokens": 60, "summary_tokens": 24, "description_tokens": 20}
SETTINGS = ReTAGSettings(num_topics=3, max_community=6, min_component=1, coverage=0.9, **LIMITS)


def named(passages: Sequence[str]) -> list[str]:
    return [f"p{number}" for number in range(len(passages))]


@pytest.fixture
def builder(tmp_path: Path, parts: dict[str, Any]) -> ReTAGIndexBuilder:
    return ReTAGIndexBuilder(tmp_path / "retag", **parts)


def build(builder: ReTAGIndexBuilder, passages: Sequence[str], settings: ReTAGSettings = SETTINGS) -> ReTAGIndex:
    return builder.build(named(passages), passages, settings)


def check(index: ReTAGIndex, passages: list[str]) -> None:
    """Check that summaries fit and quote the corpus, and that each level holds every related entity once."""
    own = index.communities
    lengths = count_tokens(WordTokenizer(), own.texts)
    assert lengths == own.num_tokens.tolist()
    assert 0 < min(lengths) <= max(lengths) <= SETTINGS.summary_tokens
    for sentence, passage in zip(index.sentences.texts, index.sentences.passage.tolist(), strict=True):
        assert sentence in passages[passage]
    for community, sentences in enumerate(own.sentences.tolist()):
        assert own.texts[community] == " ".join(index.sentences.texts[number] for number in sentences)
        assert sentences == sorted(set(sentences))
        sources = sorted({int(index.sentences.passage[number]) for number in sentences})
        assert own.sources[community].tolist() == sources
    for number, graph in enumerate(index.graphs):
        related = torch.unique(graph.edges).tolist()
        assert set(related) <= set(graph.nodes.tolist())
        for level in range(own.num_levels(number)):
            members = [node for one in own.at_level(number, level) for node in own.members[int(one)].tolist()]
            assert sorted(members) == related
    for child, parent in enumerate(own.parent.tolist()):
        if parent >= 0:
            assert (own.level[child], own.graph[child]) == (own.level[parent] + 1, own.graph[parent])
            assert set(own.members[child].tolist()) < set(own.members[parent].tolist())


def test_communities_and_topics(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages, word_encoder: Any
) -> None:
    passages = make_themed_passages(90)
    index = build(builder, passages)
    check(index, passages)
    assert len(index.graphs) == 1 + len(index.topics) == 4
    assert index.communities.num_levels(0) > 1
    topics = index.topics
    asked = ["the walls by the river and the bridge", "a proof of the compiler code", "organ fugue choir"]
    best = topics.similarity(word_encoder.encode(asked)).argmax(dim=1).tolist()
    assert sorted(best) == [0, 1, 2]
    for (names, _), topic in zip(THEMES, best, strict=True):
        held = [index.entities[node] for node in index.graphs[1 + topic].nodes.tolist()]
        assert len(held) > 10
        assert sum(name[:-1] in names for name in held) > 0.75 * len(held)
        assert set(topics.terms[topic]) <= {word.lower() for word in index.entities}
        assert topics.names[topic] == ", ".join(topics.terms[topic][:3])
    assert 0 < topics.threshold < 1
    assert 0 < topics.entity_threshold < 1


def test_builds_repeat_and_a_second_one_asks_no_model(
    tmp_path: Path, parts: dict[str, Any], make_themed_passages: MakePassages
) -> None:
    passages = make_themed_passages(60)
    first = build(ReTAGIndexBuilder(tmp_path / "a", **parts), passages)
    builder = ReTAGIndexBuilder(tmp_path / "b", **parts)
    assert same(build(builder, passages), first)
    models = parts["encoder"], parts["extractor"]
    asked = [len(model.asked) for model in models]
    assert same(build(builder, passages), first)
    other = build(builder, passages, replace(SETTINGS, seed=1))
    assert not same(first.communities.members, other.communities.members)
    build(builder, passages, replace(SETTINGS, summary_tokens=30, num_topics=2))
    assert [len(model.asked) for model in models] == asked


def test_goes_on_where_it_was_stopped(
    tmp_path: Path, parts: dict[str, Any], make_themed_passages: MakePassages, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = make_themed_passages(24)
    whole = build(ReTAGIndexBuilder(tmp_path / "whole", **parts), passages)
    num_stages = len(list((tmp_path / "whole").glob("*.safetensors")))
    assert num_stages > 8
    for stops_at in (0, num_stages // 2, num_stages - 1):
        writes = itertools.count()

        def stopping(*args: Any) -> None:
            if next(writes) == stops_at:  # noqa: B023
                raise KeyboardInterrupt
            save_tensors(*args)

        folder = tmp_path / f"broken{stops_at}"
        with monkeypatch.context() as patch:
            patch.setattr("graphrerank_papers.indexing.save_tensors", stopping)
            with pytest.raises(KeyboardInterrupt):
                build(ReTAGIndexBuilder(folder, **parts), passages)
        assert len(list(folder.glob("*.safetensors"))) == stops_at
        assert same(build(ReTAGIndexBuilder(folder, **parts), passages), whole)


@pytest.mark.parametrize(("passages", "entities"), [([], 0), (["", "nothing."], 0), (["Metz fell."], 1)])
def test_a_graph_without_edges(builder: ReTAGIndexBuilder, passages: list[str], entities: int) -> None:
    index = build(builder, passages)
    assert (len(index.entities), len(index.communities), index.report.unrelated) == (entities, 0, entities)
    assert len(index.graphs) == 1 + len(index.topics)
    assert index.communities.at_level(0, 0).tolist() == []
    assert LevelSummaries(index, 0).graph.num_nodes == 0


def test_small_components_are_in_no_community(builder: ReTAGIndexBuilder) -> None:
    towns = "Metz and Nancy are near. Nancy and Trier are not."
    index = build(builder, [towns])
    assert [sorted(index.entities[node] for node in row) for row in index.communities.members.tolist()] == [
        ["Metz", "Nancy", "Trier"]
    ] * 2  # the general graph, and one topic
    assert set(index.communities.texts) == {towns}
    index = build(builder, [towns, "Ada and Grace met."], replace(SETTINGS, min_component=3))
    assert [index.entities[node] for node in index.communities.members[0].tolist()] == ["Metz", "Nancy", "Trier"]
    assert (index.communities.num_levels(0), len(index.communities.at_level(0, 0))) == (1, 1)
    assert len(index.graphs[0].edges) == 3
    assert index.report.unrelated == 2
    with pytest.raises(ValueError, match="`ids` must be 2 unique ids, got 2 ids of which 1 are unique"):
        builder.build(["a", "a"], ["Metz.", "Nancy."])


@pytest.mark.parametrize("new", [1, 15])
def test_an_index_that_grew_holds_what_a_new_one_holds(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages, new: int
) -> None:
    passages = [*make_themed_passages(60), "Xenia and Yvo met. Yvo and Zeno met. Xenia and Zeno met."]
    grown = builder.update(build(builder, passages[:-new]), named(passages), passages)
    at_once = build(builder, passages)
    check(grown, passages)
    assert (grown.entities, grown.passage_ids) == (at_once.entities, at_once.passage_ids)
    assert torch.equal(grown.graphs[0].edges, at_once.graphs[0].edges)
    assert torch.equal(grown.graphs[0].weight, at_once.graphs[0].weight)
    own, names = grown.communities, grown.entities  # three entities are related to no known one
    (community,) = [c for c in own.at_level(0, 0).tolist() if names.index("Xenia") in own.members[c].tolist()]
    assert [names[node] for node in own.members[community].tolist()] == ["Xenia", "Yvo", "Zeno"]
    assert own.texts[community] == passages[-1]


def test_an_index_without_topics_grows_from_nothing_and_not_from_others(
    builder: ReTAGIndexBuilder, make_themed_passages: MakePassages
) -> None:
    passages, settings = make_themed_passages(12), replace(SETTINGS, num_topics=0)
    grown = builder.update(builder.build([], [], settings), named(passages), passages)
    assert (len(grown.topics), len(grown.graphs)) == (0, 1)
    assert same(grown.communities, build(builder, passages, settings).communities)
    passages = make_themed_passages(6)
    index = build(builder, passages)
    with pytest.raises(ValueError, match="`ids` must begin with the 6 ids of the index"):
        builder.update(index, ["q", *named(passages)], ["Metz.", *passages])
    with pytest.raises(ValueError, match="`passages` must begin with those of the index"):
        builder.update(index, named(passages), make_themed_passages(6, seed=1))


# a star around 1 and a pair behind it: 0-1, 1-2, 1-3, 3-4
ENDS = [(0, 1), (1, 2), (1, 3), (3, 4)]
HIERARCHY = Hierarchy([0, 1, 1], [-1, 0, 0], [[0, 1, 2, 3, 4], [0, 1, 2], [3, 4]])


def summarise(limit: int, hierarchy: Hierarchy = HIERARCHY) -> tuple[list[list[int]], list[list[int]]]:
    """Summarise by the first text (``n`` is of edge ``n``, ``4 + n`` of entity ``n``); also return the contexts."""
    nodes, edges = [[4 + node] for node in range(5)], [[edge] for edge in range(4)]
    texts = Material([f"t{number}" for number in range(9)], [1] * 9, [[number] for number in range(9)], nodes, edges)
    seen = list[list[int]]()

    def first(contexts: Sequence[Sequence[int]]) -> list[list[int]]:
        seen.extend(list(numbers) for numbers in contexts)
        return [list(numbers[:1]) for numbers in contexts]

    ends = ENDS if len(hierarchy) else []
    return summarise_communities(hierarchy, ends, edges, texts, first, context_tokens=limit), seen


def test_the_longest_child_is_replaced_first() -> None:
    found, contexts = summarise(9)  # all fits; edges of degrees 5, 4, 4, 3 and nodes of 3, 2, 1, 1, 1
    assert contexts == [[0, 1, 5, 4, 6], [3, 7, 8], [2, 0, 1, 3, 5, 7, 4, 6, 8]]
    assert found == [[2], [0], [3]]
    assert summarise(5)[1][-1] == [0, 3, 7, 8]
    assert summarise(4)[1][0] == [0, 1, 5, 4]  # a leaf keeps the prominent
    assert summarise(3)[1][-1] == [0, 3]  # both
    assert summarise(1)[1] == [[0], [3], [0]]  # even so too long: the prominent first


def test_parent_context_counts_shared_texts_once() -> None:
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=7) == [0, 1, 2]
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=6) == [0, 2]
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=4) == [0, 2]
    assert parent_context([], [], [], limit=4) == []
    assert summarise(4, Hierarchy([], [], [])) == ([], [])
