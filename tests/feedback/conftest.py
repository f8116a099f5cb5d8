"""A corpus whose users want what the passage that they name refers to, and sessions of them."""

import random
from collections.abc import Callable

import pytest
import torch

from graphrerank.config.components import ComponentFactory
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.dataset import Dataset
from graphrerank.feedback.learn import with_guards
from graphrerank.feedback.learning import LearningData
from graphrerank.feedback.log import Session
from graphrerank.feedback.relevance import order
from graphrerank.models.checkpoint import load_primary
from tests.support.encoders import HashEncoder

TOPICS = 90
Simulate = Callable[..., list[Session]]


def question(topic: int) -> str:
    return f"what is word{topic}a of word{topic}b"


@pytest.fixture(scope="session")
def linked() -> Dataset:
    """Passages ``p<n>`` that hold the words of question n, each with a link to ``t<n>``, which holds one of them."""
    rng = random.Random(0)
    ids, texts = [], []
    for topic in range(TOPICS):
        filler = " ".join(f"filler{rng.randrange(40)}" for _ in range(12))
        ids += [f"p{topic}", f"t{topic}", f"o{topic}"]
        texts += [f"word{topic}a word{topic}b {filler}", f"word{topic}b {filler}", f"word{topic}a {filler} more"]
    start = torch.arange(TOPICS) * 3
    pairs = torch.stack([start, start + 1], dim=1)
    graph = CorpusGraph.from_edges(ids, texts, pairs, edge_type=REFERENCE)
    return Dataset("linked", graph, [], [], {})


@pytest.fixture(scope="session")
def material(linked: Dataset, tmp_path_factory: pytest.TempPathFactory) -> LearningData:
    checkpoint = load_primary("base")
    names = checkpoint.graph_reranker.retriever.feature_names
    asked, guards = with_guards(linked, [question(topic) for topic in range(TOPICS)], 0)
    parts = ComponentFactory(cache=tmp_path_factory.mktemp("cache"))
    prepared = parts.prepare(asked, retriever="hybrid_expand", encoder=HashEncoder(dim=256, by_word=True))
    return LearningData.of(prepared.with_features(names), checkpoint.model, guards)


@pytest.fixture(scope="session")
def simulate(material: LearningData) -> Simulate:
    """Simulate sessions of users who click ``t<n>``; or anything, or what stands first."""

    def simulated(count: int, wants: str = "linked", seed: int = 0) -> list[Session]:
        rng, ids = random.Random(seed), material.prepared.dataset.graph.node_ids
        shown = order(material.lists.scores, material.lists.nodes)[:, :8]
        sessions = []
        for number in range(count):
            topic = rng.randrange(TOPICS)
            text = question(topic)
            row = material.row[text]
            names = [ids[int(node)] for node in material.lists.nodes[row, shown[row]]]
            i, j = sorted(rng.sample(range(1, 6), 2))
            if rng.random() < 0.5:
                names[i - 1], names[j - 1] = names[j - 1], names[i - 1]
            first = ids[int(material.lists.nodes[row, shown[row, 0]])]
            wanted = {"linked": [f"t{topic}"], "first": [first], "anything": []}[wants]
            low = 0.03 if wanted else 0.3
            chances = [(0.9 if name in wanted else low) * rank**-0.7 for rank, name in enumerate(names, 1)]
            gains = tuple(float(rng.random() < each) for each in chances)
            user, swaps = f"user {number % 200}", ((i, j, 0.5),)
            sessions.append(Session(str(number), float(number), user, text, tuple(names), gains, swaps=swaps))
        return sessions

    return simulated
