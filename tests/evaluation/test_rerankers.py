from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.rerankers import tune_restart_prob
from graphrerank.graphs import CandidateGraphs


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
