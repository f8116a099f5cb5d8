"""Vector search, the first step: the corpus ranked by a retriever."""

from graphrerank.graphs import RetrieverFactory
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class VectorSearch:
    """Retrieve the top of a retriever's ranking; as much of it as the budget allows stays at hand as the ``pool``.

    Source: FastInsight, Definition 2 and Algorithm 1, line 1.

    Args:
        workplace: What the pipeline's steps share.
        top_k: Nodes to retrieve, at most the budget; the whole budget when None.
        retriever: Builds the retriever, whose depth will be the budget; that of the pipeline when None.

    Raises:
        ValueError: If ``top_k`` is below 1, or the retriever cannot be built.
    """

    def __init__(
        self, workplace: Workplace, *, top_k: int | None = None, retriever: RetrieverFactory | None = None
    ) -> None:
        if top_k is not None and top_k < 1:
            raise ValueError(f"`top_k` must be a positive integer, got {top_k}")
        self.top_k = workplace.budget if top_k is None else min(top_k, workplace.budget)
        self._workplace = workplace
        build = workplace.retriever if retriever is None else retriever
        self._retriever = build(workplace.graph, top_k=workplace.budget)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Begin anew with the retriever's ranking."""
        with self._workplace.clock("retrieve"):
            ranking = self._retriever.retrieve(state.queries).to(state.nodes.device)
            width = min(self.top_k, self._workplace.graph.num_nodes)
            found = state.with_ranking(ranking.nodes[:, :width], ranking.scores[:, :width])
            if ranking.features is not None:
                found = found.with_features(ranking.features[:, :width], tuple(self._retriever.feature_names))
            return found.with_pool(ranking.nodes)
