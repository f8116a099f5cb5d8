import json
import re
from collections.abc import Callable
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.index import ReTAGSettings
from graphrerank_papers.retag.steps import (
    ReTAGPrompts,
    cluster_entities,
    covering_threshold,
    distinctive_words,
    mine_topics,
    parse_keywords,
    parse_relevant,
    parse_topic,
    parse_topics,
    relate_to_topics,
)

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")

MakePassages = Callable[..., list[str]]
SETTINGS = ReTAGSettings(
    num_topics=2, max_community=6, min_component=1, context_tokens=80, summary_tokens=9, description_tokens=20
)
TOPICS = [{"name": "Cities", "description": "River and bridge."}, {"name": "Programs", "description": "Compiler."}]
CITIES = ("Metz", "Nancy", "Trier", "Verdun", "Cologne", "Mainz")


def reply(system: str, question: str) -> Any:
    """Answer as a chat model would; where a passage speaks of Bach0 there is never a summary."""
    if system in {shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")}:
        return {"topics": TOPICS}
    if system == shipped_prompt("retag_relevance").system:
        notes = [line.split()[1] for line in question.split("Notes:\n")[1].splitlines() if line[:1].isdigit()]
        return {"relevant": [[1] if note.startswith(CITIES) else [] for note in notes]}
    first = re.search(r"[A-Z]\w+\d", question)
    return {"no": 1} if "Bach0" in question else {"summary": f"About {first[0]}."}


def test_an_index_by_a_language_model(
    scripted_model: Any, parts: dict[str, Any], make_themed_passages: MakePassages, tmp_path: Path
) -> None:
    model, passages = scripted_model(reply), make_themed_passages(15)
    ids = [f"p{number}" for number in range(len(passages))]
    parts["model"] = AnswerCache(model, tmp_path / "answers")
    index = ReTAGIndexBuilder(tmp_path / "a", **parts).build(ids, passages, SETTINGS)
    own = index.communities
    assert index.topics.names == ["Cities: River and bridge.", "Programs: Compiler."]
    assert index.topics.terms == [["bridge", "cities", "river"], ["compiler", "programs"]]
    assert {index.entities[node][:-1] for node in index.graphs[1].nodes.tolist()} <= set(CITIES)
    assert len(index.graphs[2].nodes) == 0
    assert own.num_levels(2) == 0
    assert len(index.sentences.texts) == 0
    assert count_tokens(WordTokenizer(), own.texts) == own.num_tokens.tolist()
    skipped = [community for community, text in enumerate(own.texts) if not text]
    assert 0 < len(skipped) == index.report.skipped < len(own)
    for community, text in enumerate(own.texts):
        assert bool(len(own.sources[community])) == bool(text)
        assert bool(own.vectors[community].any()) == bool(text)
    relevance = shipped_prompt("retag_relevance").system
    assert max(len(text) for system, text in model.asked if system != relevance) < 80 * 12  # of at most 80 words

    num_asked, builder = len(model.asked), ReTAGIndexBuilder(tmp_path / "b", **parts)
    second = builder.build(ids, passages, SETTINGS)  # no stage is there, but the answers are
    assert len(model.asked) == num_asked
    assert (second.communities.texts, second.report) == (own.texts, index.report)


def test_an_update_asks_for_summaries_of_what_changed(
    scripted_model: Any, parts: dict[str, Any], make_themed_passages: MakePassages, tmp_path: Path
) -> None:
    model, passages = scripted_model(reply), [*make_themed_passages(15), "Metz9 and Nancy9 saw the harbour."]
    ids = [f"p{number}" for number in range(len(passages))]
    parts["model"] = AnswerCache(model, tmp_path / "answers")
    builder = ReTAGIndexBuilder(tmp_path / "stages", **parts)
    index = builder.build(ids[:-1], passages[:-1], SETTINGS)
    num_asked = len(model.asked)
    grown = builder.update(index, ids, passages)
    relevance = shipped_prompt("retag_relevance").system
    contexts = [text for system, text in model.asked[num_asked:] if system != relevance]
    assert all("Metz9" in context or "Nancy9" in context for context in contexts)
    metz = grown.entities.index("Metz9")
    assert metz in grown.graphs[1].nodes.tolist()
    members = grown.communities.members.tolist()
    touched = [nodes for nodes in members if metz in nodes]
    assert 0 < len(touched) < len(members) / 4
    assert len(contexts) == len(set(map(tuple, touched)))  # one request for equal communities of several levels
    before = dict(zip(map(tuple, index.communities.members.tolist()), index.communities.texts, strict=True))
    for nodes, text in zip(members, grown.communities.texts, strict=True):
        if metz not in nodes and grown.entities.index("Nancy9") not in nodes:
            assert before[tuple(nodes)] == text


def test_clusters_are_the_groups_the_largest_first() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([1] * 12 + [0] * 20 + [2] * 10)
    vectors = torch.nn.functional.normalize(5 * torch.eye(3)[truth] + torch.randn(42, 3, generator=generator), dim=1)
    centres, label = cluster_entities(vectors, num_topics=3)
    assert torch.equal(label, truth)
    assert centres.argmax(dim=1).tolist() == [0, 1, 2]
    assert torch.allclose(centres.norm(dim=1), torch.ones(3))
    again = cluster_entities(vectors, num_topics=3)
    assert torch.equal(again[0], centres)


@pytest.mark.parametrize(("num_entities", "topics"), [(0, 0), (1, 1), (19, 1), (20, 2), (99, 5)])
def test_a_small_corpus_has_few_topics(num_entities: int, topics: int) -> None:
    vectors = torch.randn(num_entities, 4, generator=torch.Generator().manual_seed(0))
    centres, label = cluster_entities(torch.nn.functional.normalize(vectors, dim=1), num_topics=5)
    assert centres.shape == (topics, 4)
    assert label.unique().tolist() == list(range(topics))
    assert cluster_entities(vectors, num_topics=0)[0].shape == (0, 4)
    assert set(cluster_entities(torch.zeros(num_entities, 4), num_topics=5)[1].tolist()) <= {-1}


def test_distinctive_words_by_hand() -> None:
    groups = [["Metz, the river, the river"], ["Nancy, the river", "Nancy, a bridge"]]  # 2 and 4 words: 3 on average
    weight = {"metz": log(1 + 3 / 1), "nancy": 2 * log(1 + 3 / 2), "bridge": log(1 + 3 / 1), "river": log(1 + 3 / 2)}
    assert weight["nancy"] > weight["bridge"] > weight["river"]
    assert distinctive_words(groups, num_words=3) == [["metz", "river"], ["nancy", "bridge", "river"]]
    assert distinctive_words(groups, num_words=1) == [["metz"], ["nancy"]]
    assert distinctive_words([], num_words=3) == []


def test_covering_threshold() -> None:
    likeness = torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.3, 0.0], [0.4, 0.5]])
    for coverage, least in ((1.0, 0.3), (0.75, 0.5), (0.7, 0.5), (0.5, 0.7), (0.01, 0.9)):
        threshold = covering_threshold(likeness, coverage=coverage)
        assert threshold == pytest.approx(least)
        assert (likeness.max(dim=1).values >= threshold).float().mean() >= coverage
    assert covering_threshold(likeness[:0], coverage=0.5) == covering_threshold(likeness[:, :0], coverage=0.5) == 1.0


PROMPTS = ReTAGPrompts()
CITY = {"name": "Cities", "description": "Where they lie."}
CODE = {"name": "Code", "description": "Who writes it."}


def scripted(scripted_model: Any, answers: dict[str, Any]) -> Any:
    """Answer questions by their text, others unusably."""
    return scripted_model(lambda system, question: answers.get(question, "no"))


def test_topics_of_batches_are_put_together(scripted_model: Any) -> None:
    answers = {
        "- a\n- b": {"topics": [CITY, CODE]},
        "- c": {"topics": [CODE]},
        "- d": {"topics": [CITY]},
        "- Cities: Where they lie.\n- Code: Who writes it.": {"topics": [CODE, CITY]},
    }
    model = scripted(scripted_model, answers)
    mine = partial(mine_topics, model, PROMPTS, num_topics=2)
    assert mine([["a", "b"], ["c"]]) == (["Code: Who writes it.", "Cities: Where they lie."], 0)
    assert {system for system, _ in model.asked} == {
        shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")
    }
    assert mine([["d"]]) == (["Cities: Where they lie."], 0)
    assert mine([["x"], ["d"]]) == (["Cities: Where they lie."], 1)  # one batch without a usable answer
    assert mine([]) == ([], 0)
    with pytest.raises(ValueError, match="no valid list of topics in 3 attempts"):
        mine([["c"], ["d"]])


def test_notes_are_related_to_topics(scripted_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank_papers.retag.steps.BATCH_NOTES", 2)
    topics = "Topics:\n1. Cities\n2. Code\n\nNotes:\n"
    answers = {
        f"{topics}1. a\n2. b": {"relevant": [[2], []]},
        f"{topics}1. c\n2. d": {"relevant": [[2]]},  # one note is missing
        f"{topics}1. e": {"relevant": [[2, 1]]},
    }
    relate = partial(relate_to_topics, scripted(scripted_model, answers), PROMPTS.relevance)
    assert relate(list("abcde"), ["Cities", "Code"]) == ([[1], [], [], [], [0, 1]], 1)
    assert relate(["a"], []) == ([[]], 0)
    assert relate([], ["Code"]) == ([], 0)


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        *((partial(parse_topics, limit=1), bad) for bad in (
            "here", "[]", '{"topics": []}', '{"topics": [{"name": "a", "description": " "}]}',
            json.dumps({"topics": [CITY, CODE]}), json.dumps({"topics": [CITY], "more": 1}),
        )),
        *((partial(parse_relevant, num_topics=2), f'{{"relevant": {bad}}}') for bad in ("[1]", "[[0]]", "[[3]]")),
        *((partial(parse_topic, num_topics=2), f'{{"topic": {bad}}}') for bad in ("true", "3", "-1")),
        *((parse_keywords, f'{{"keywords": {bad}}}') for bad in ('"gpu"', '[" "]')),
    ],
)  # fmt: skip
def test_answers_of_another_form_are_refused(parse: Callable[[str], Any], bad: str) -> None:
    with pytest.raises(ValueError, match="the answer must be a JSON object of"):
        parse(bad)
