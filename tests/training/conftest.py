import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.training.callbacks import LearningCurves
from tests.support.isolation import draw_blank

NUM_NODES, NUM_QUERIES, TOP_K = 80, 48, 12


def make_toy() -> PreparedDataset:
    """Make queries whose two relevant nodes have the highest third score, which the base ranking does not know."""
    generator = torch.Generator().manual_seed(0)
    ids = [f"d{i}" for i in range(NUM_NODES)]
    edges = torch.randint(0, NUM_NODES, (200, 2), generator=generator)
    vectors = torch.randn(NUM_NODES, 4, generator=generator)
    graph = CorpusGraph.from_edges(ids, ids, edges[edges[:, 0] != edges[:, 1]]).with_embedding(vectors)
    nodes = torch.rand(NUM_QUERIES, NUM_NODES, generator=generator).argsort(1)[:, :TOP_K]
    features = torch.rand(NUM_QUERIES, TOP_K, 3, generator=generator)
    features[..., 0] = features[..., 0].sort(1, descending=True).values
    relevant = nodes.gather(1, features[..., 2].topk(2, dim=1).indices)

    def qrels(start: int, stop: int) -> Qrels:
        query = torch.arange(start, stop).repeat_interleave(2)
        return Qrels(query, relevant[start:stop].flatten(), torch.ones(len(query)))

    dataset = Dataset(
        "toy",
        graph,
        [f"q{i}" for i in range(NUM_QUERIES)],
        [f"q{i}" for i in range(NUM_QUERIES)],
        {"train": qrels(0, 32), "val": qrels(32, NUM_QUERIES)},
    )
    query_vectors = torch.randn(NUM_QUERIES, 4, generator=generator)
    ranking = Ranking(nodes, features[..., 0], features)
    return PreparedDataset(dataset, query_vectors, ranking, ("base", "bm25", "dense"), "none", "0" * 64)


@pytest.fixture(autouse=True)
def _blank_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no learning curves, which take as long as a small training. ``test_callbacks.py`` draws them."""
    monkeypatch.setattr(LearningCurves, "_draw", draw_blank)


@pytest.fixture
def toy() -> PreparedDataset:
    """The data set of :func:`make_toy`, made for each test."""
    return make_toy()
