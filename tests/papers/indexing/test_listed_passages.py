import torch

from graphrerank.graphs import Queries
from graphrerank.pipelines.state import RetrievalState
from graphrerank_papers.indexing.listed_passages import round_robin, with_listed


def test_rows_are_replaced_cut_and_kept() -> None:
    state = RetrievalState.start(Queries(["a", "b"], ["", ""]), torch.device("cpu"))
    state = state.with_ranking(torch.tensor([[4, 5], [6, -1]]), torch.tensor([[0.9, 0.8], [0.7, -torch.inf]]))
    found = with_listed(state, [[1, 2, 3, 0], []], budget=3)
    assert found.nodes.tolist() == [[1, 2, 3], [6, -1, -1]]
    torch.testing.assert_close(found.scores[0], torch.tensor([1.0, 1 / 2, 1 / 3]))
    torch.testing.assert_close(found.scores[1], torch.tensor([0.7, -torch.inf, -torch.inf]))


def test_lists_are_merged_by_turns() -> None:
    assert round_robin([]) == []
    assert round_robin([[1, 2], [2, 3, 1, 4]]) == [1, 2, 3, 4]
