import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels


@pytest.fixture
def dataset() -> Dataset:
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
    return Dataset("ring", graph, [f"q{i}" for i in range(40)], queries, splits)
