import json
import re
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.language_models.answer_cache import AnswerCache
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.index import ReTAGSettings
from graphrerank_papers.retag.steps import cluster_entities, covering_threshold, distinctive_words

pytest.importorskip("httpx", reason="httpx is optional")
pytest.importorskip("graspologic_native", reason="communities need graspologic-native")

MakePassages = Callable[..., list[str]]
SETTINGS = ReTAGSettings(
    num_topics=2, max_community=6, min_component=1, context_tokens=80, summary_tokens=9, description_tokens=20
)
TOPICS = [{"name": "Cities", "description": "River and bridge."}, {"name": "Programs", "description": "Compiler."}]
CITIES = ("Metz", "Nancy", "Trier", "Verdun", "Cologne", "Mainz")


class Answers(dict[str, list[Any]]):
    """What a chat model would say; where a passage speaks of Bach0 it never gives a summary."""

    def __init__(self, endpoint: Any) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.contexts: list[str] = []

    def get(self, question: str, *_: Any) -> Any:
        return [(200, {"choices": [{"message": {"content": json.dumps(self.answer(question))}}]})]

    def answer(self, question: str) -> Any:
        system = self.endpoint.requests[-1]["messages"][0]["content"]
        if system in {shipped_prompt(name).instructions(limit=2) for name in ("retag_topics", "retag_merged_topics")}:
            return {"topics": TOPICS}
        if system == shipped_prompt("retag_relevance").system:
            notes = [line.split()[1] for line in question.split("Notes:\n")[1].splitlines() if line[:1].isdigit()]
            return {"relevant": [[1] if note.startswith(CITIES) else [] for note in notes]}
        self.contexts.append(question)
        first = re.search(r"[A-Z]\w+\d", question)
        assert first is not None
        return {"no": 1} if "Bach0" in question else {"summary": f"About {first[0]}."}


@pytest.fixture
def build(endpoint: Any, word_encoder: Any, name_extractor: Any, tmp_path: Path) -> Callable[[str], ReTAGIndexBuilder]:
    endpoint[1].script = Answers(endpoint[1])
    model = AnswerCache(LanguageModel(endpoint[0], "m", pause=0.0, concurrency=1), tmp_path / "answers")

    def make(folder: str) -> ReTAGIndexBuilder:
        parts = {"tokenizer": WordTokenizer(), "encoder": word_encoder, "extractor": name_extractor}
        return ReTAGIndexBuilder(tmp_path / folder, model=model, **parts)

    return make


def named(passages: list[str]) -> list[str]:
    return [f"p{number}" for number in range(len(passages))]


def test_an_index_by_a_language_model(
    build: Callable[[str], ReTAGIndexBuilder], make_themed_passages: MakePassages, endpoint: Any
) -> None:
    passages = make_themed_passages(15)
    index = build("a").build(named(passages), passages, SETTINGS)
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
        assert own.named[community].tolist() == ([index.entities.index(text[6:-1])] if text else [])
        assert bool(len(own.sources[community])) == bool(text)
        assert bool(own.vectors[community].any()) == bool(text)
    sizes = [sum(map(len, context.split("\n- "))) for context in endpoint[1].script.contexts]
    assert max(sizes) < 80 * 12  # characters, of at most 80 words
    asked = len(endpoint[1].requests)
    second = build("b").build(named(passages), passages, SETTINGS)  # no stage is there, but the answers are
    assert len(endpoint[1].requests) == asked
    assert (second.communities.texts, second.report) == (own.texts, index.report)


def test_an_update_asks_for_what_is_touched(
    build: Callable[[str], ReTAGIndexBuilder], make_themed_passages: MakePassages, endpoint: Any
) -> None:
    passages = make_themed_passages(15)
    index = build("a").build(named(passages), passages, SETTINGS)
    more = [*passages, "Metz9 and Nancy9 saw the harbour."]
    contexts = endpoint[1].script.contexts
    del contexts[:]
    grown = build("a").update(index, named(more), more)
    assert all("Metz9" in context or "Nancy9" in context for context in contexts)
    metz = grown.entities.index("Metz9")
    assert metz in grown.graphs[1].nodes.tolist()
    asked = [members for members in grown.communities.members.tolist() if metz in members]
    assert 0 < len(asked) < len(grown.communities) / 4
    assert len(contexts) == len(set(map(tuple, asked)))  # of communities of several levels with the same members, once
    before = dict(zip(map(tuple, index.communities.members.tolist()), index.communities.texts, strict=True))
    own = grown.communities
    for members, text in zip(own.members.tolist(), own.texts, strict=True):
        if metz not in members and grown.entities.index("Nancy9") not in members:
            assert before[tuple(members)] == text


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
