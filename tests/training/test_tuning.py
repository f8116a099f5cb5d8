import pytest
import torch

from graphrerank.core import CandidateGraphs, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.training.tuning import RESTART_GRID, tune_restart_prob, tune_restart_probs


@pytest.fixture
def prepared() -> PreparedDataset:
    """Six passages, three queries with two relevant passages each."""
    graph = CorpusGraph.from_edges(list("abcdef"), [""] * 6, torch.tensor([[0, 1], [1, 2], [3, 4]]))
    qrels = Qrels(torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 3, 4, 2, 5]), torch.ones(6))
    nodes = torch.tensor([[3, 0, 4, 1], [3, 0, 4, -1], [2, 0, 1, 3]])
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, -torch.inf], [0.9, 0.8, 0.7, 0.6]])
    ranking = Ranking(nodes, scores, scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1))
    return PreparedDataset(Dataset("toy", graph, list("xyz"), [""] * 3, {"val": qrels}), None, ranking, ("base_score",))


def test_the_best_of_the_grid_wins_and_the_first_of_equals(prepared: PreparedDataset) -> None:
    tried = []

    def build(restart_prob: float):
        tried.append(restart_prob)
        better = restart_prob in (0.4, 0.6)  # by node number, PR@2 is 1/3; in the base ranking's order it is 0

        def score(graphs: CandidateGraphs):
            return -graphs.nodes.float() if better else graphs.x[:, 0]

        return score

    assert tune_restart_prob(prepared, "val", build, measure="PR@2") == 0.4
    assert tried == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


def test_given_probabilities_are_not_tuned(prepared: PreparedDataset) -> None:
    assert tune_restart_probs(prepared, "val", {"gcs": 0.55, "ppr": 0.15}) == {"gcs": 0.55, "ppr": 0.15}
    chosen = tune_restart_probs(prepared, "val", {"gcs": None, "ppr": 0.15})
    assert chosen["ppr"] == 0.15
    assert chosen["gcs"] in RESTART_GRID
