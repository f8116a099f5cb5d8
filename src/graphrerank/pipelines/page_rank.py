"""Graph search: PageRank over the whole corpus from what is retrieved."""

import torch

from graphrerank.graphs import Ranking
from graphrerank.operators import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class PageRank:
    """Rank the corpus by personalized PageRank from the retrieved nodes (:class:`CorpusPPR`).

    They are seeds by their scores above the least retrieved one's.

    Source: HippoRAG 2, its search over passages, without its nodes of phrases and facts; FastInsight, section 4.1.1,
    adapts it to corpus graphs so. *Where we differ:* HippoRAG 2 normalises scores between the least and the largest of
    all passages and seeds all; among the few retrieved ones such scores are nearly equal, and the walk drowns the best.

    Args:
        workplace: What the pipeline's steps share.
        restart_prob: Probability in (0, 1] of returning to the seeds at each step.

    Raises:
        ValueError: If ``restart_prob`` is out of range.
    """

    def __init__(self, workplace: Workplace, *, restart_prob: float = 0.5) -> None:
        self._workplace = workplace
        self._operator = CorpusPPR(workplace.graph, restart_prob=restart_prob)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the best of the budget."""
        with self._workplace.clock("graph"):
            least = state.scores.masked_fill(state.nodes < 0, torch.inf).amin(1, keepdim=True)
            seeds = Ranking(state.nodes, state.scores - least.clamp(max=torch.finfo(least.dtype).max))
            found = self._operator.expand(seeds, top_k=self._workplace.budget)
            return state.with_ranking(found.nodes, found.scores)
