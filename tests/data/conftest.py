import hashlib
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.data import Qrels, RetrievalDataset
from graphrerank.graphs import CorpusGraph


class CountingEncoder:
    """Gives each text a fixed unit vector, and keeps every text it was asked to encode."""

    name = "counting"

    def __init__(self, *, fingerprint: str = "f" * 64, stop_after: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.stop_after = stop_after
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Tensor:
        if self.stop_after is not None and len(self.encoded) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.encoded += texts
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") for text in texts]
        rows = [torch.randn(6, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return F.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, 6)


@pytest.fixture
def counting_encoder() -> type[CountingEncoder]:
    return CountingEncoder


@pytest.fixture
def dataset() -> RetrievalDataset:
    """Sixty passages in a ring with chords, forty queries of two relevant neighbours each, in three splits."""
    words = ["fox", "dog", "bird", "tree", "river", "stone", "cloud"]
    texts = [f"{words[i % 7]} {words[(i * 3) % 7]} number{i}" for i in range(60)]
    edges = torch.tensor([[i, (i + step) % 60] for i in range(60) for step in (1, 7)])
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(60)], texts, edges)
    queries = [f"where is number{i} and the {words[(i + 1) % 7]}" for i in range(40)]

    def qrels(start: int, stop: int) -> Qrels:
        query = torch.arange(start, stop).repeat_interleave(2)
        node = torch.stack([torch.arange(start, stop), torch.arange(start, stop) + 1], 1).flatten()
        return Qrels(query, node, torch.ones(len(query)))

    splits = {"train": qrels(0, 24), "val": qrels(24, 30), "test": qrels(30, 40)}
    return RetrievalDataset("ring", graph, [f"q{i}" for i in range(40)], queries, splits)
