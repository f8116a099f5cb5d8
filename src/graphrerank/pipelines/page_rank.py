"""Graph search: PageRank over the whole corpus, from the retrieved nodes."""

import torch

from graphrerank.graphs import Ranking
from graphrerank.operators.corpus_ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class PageRank:
    """Rank the corpus by personalized PageRank from the retrieved nodes (:class:`CorpusPPR`).

    Seeds are weighted by their scores minus the lowest one.

    Source: HippoRAG 2, its search over passages, without nodes of phrases and facts; FastInsight, section 4.1.1, adapts
    it to corpus graphs so. *Where we differ:* HippoRAG 2 scales the scores of all passages to [0, 1] and seeds them
    all; scaled so, the few retrieved ones have nearly equal weights, and the best ones are drowned.

    Args:
        restart_prob: Probability in (0, 1] of returning to the seeds at each step.
    """

    def __init__(self, resources: Resources, *, restart_prob: float = 0.5) -> None:
        self._resources = resources
        self._operator = CorpusPPR(resources.graph, restart_prob=restart_prob)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the best ones of the corpus."""
        with self._resources.clock("graph"):
            lowest = state.scores.masked_fill(state.nodes < 0, torch.inf).amin(1, keepdim=True)
            seeds = Ranking(state.nodes, state.scores - lowest.clamp(max=torch.finfo(lowest.dtype).max))
            ranking = self._operator.expand(seeds, top_k=self._resources.budget)
            return state.with_ranking(ranking.nodes, ranking.scores)
