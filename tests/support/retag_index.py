"""A ReTAG index written by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from graphrerank_papers.retag import index as retag
from tests.support.encoders import HashEncoder

ENTITIES = ("Metz", "Nancy", "Trier", "Verdun", "Lothair", "Waldrada", "Rhine", "Moselle")
# graph, level, parent, entities, summary
PLAN: tuple[tuple[int, int, int, tuple[int, ...], str], ...] = (
    (0, 0, -1, (0, 1, 2, 3), "Metz and Nancy are cities. Trier and Verdun are old towns."),
    (0, 0, -1, (4, 5), "Lothair loved Waldrada."),
    (0, 1, 0, (0, 1), "Metz and Nancy are cities."),
    (0, 1, 0, (2, 3), "Trier and Verdun are old towns."),
    (1, 0, -1, (0, 1), "Metz and Nancy are cities."),  # of the topic of places; equal to one of the general graph
    (1, 0, -1, (6, 7), "The rivers Rhine and Moselle meet at a German city."),
    (2, 0, -1, (4, 5), "King Lothair of Metz loved Waldrada."),  # of the topic of people
)


def make_index(encoder: HashEncoder, plan: Sequence[tuple[int, int, int, tuple[int, ...], str]]) -> retag.ReTAGIndex:
    """Write an index by hand, with the topics of places (graph 1) and people (graph 2)."""
    texts = [text for *_, text in plan]
    sentences = list(dict.fromkeys(sentence for text in texts for sentence in text.split(". ")))
    held = [[sentences.index(sentence) for sentence in text.split(". ")] for text in texts]
    names = ["cities and rivers", "kings who loved"]
    communities = retag.Communities(
        graph=torch.tensor([row[0] for row in plan], dtype=torch.int64),
        level=torch.tensor([row[1] for row in plan], dtype=torch.int64),
        parent=torch.tensor([row[2] for row in plan], dtype=torch.int64),
        members=retag.Rows.of(members for *_, members, _ in plan),
        texts=texts,
        num_tokens=torch.tensor([len(text.split()) for text in texts], dtype=torch.int64),
        vectors=encoder.encode(texts),
        sentences=retag.Rows.of(held),
        sources=retag.Rows.of(sorted({sentence % 4 for sentence in row}) for row in held),
    )
    none = torch.zeros(0, 2, dtype=torch.int64)
    passages = torch.arange(len(sentences)) % 4
    return retag.ReTAGIndex(
        settings=retag.ReTAGSettings(num_topics=2),
        passage_ids=["p0", "p1", "p2", "p3"],
        entities=ENTITIES,
        topics=retag.Topics(
            names, [["city", "river"], ["king", "loved"]], encoder.encode(names), torch.zeros(encoder.dim), 0.3, 0.3
        ),
        graphs=[retag.Subgraph(torch.arange(8), none, torch.zeros(0)) for _ in range(3)],
        communities=communities,
        sentences=retag.Sentences(
            sentences, passages, torch.tensor([len(s.split()) for s in sentences], dtype=torch.int64)
        ),
        report=retag.ReTAGReport(4, 40, 8, 8, 0, 0),
    )


def same(left: Any, right: Any) -> bool:
    """Return whether two records are equal, tensors and types of tensors included."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right) and left.dtype == right.dtype
    if hasattr(left, "__dataclass_fields__"):
        return all(same(getattr(left, name), getattr(right, name)) for name in left.__dataclass_fields__)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.fixture
def retag_index(word_encoder: HashEncoder) -> retag.ReTAGIndex:
    return make_index(word_encoder, PLAN)


@pytest.fixture
def empty_retag_index(word_encoder: HashEncoder) -> retag.ReTAGIndex:
    return make_index(word_encoder, ())
