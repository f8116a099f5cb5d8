"""Graph search: PageRank over the whole corpus from what is retrieved."""

from graphrerank.operators import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class PageRank:
    """Rank the corpus by personalized PageRank, restarting at the retrieved nodes by their scores (:class:`CorpusPPR`).

    Source: HippoRAG 2, its search over passages, without its nodes of phrases and facts; FastInsight, section 4.1.1,
    adapts it to corpus graphs so.

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
            found = self._operator.expand(state.ranking, top_k=self._workplace.budget)
            return state.with_ranking(found.nodes, found.scores)
