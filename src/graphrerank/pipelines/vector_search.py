"""Vector search, the first step: rank the corpus by a retriever."""

from graphrerank.checks import check_counts
from graphrerank.graphs import RetrieverFactory
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class VectorSearch:
    """Retrieve the top of a retriever's ranking; the ranking up to the budget becomes the ``pool``.

    Source: FastInsight, Definition 2 and Algorithm 1, line 1.

    Args:
        top_k: Number of nodes to retrieve, at most the budget; None for the budget.
        retriever: Builds the retriever, whose depth is the budget; None for the pipeline's.
    """

    def __init__(
        self, resources: Resources, *, top_k: int | None = None, retriever: RetrieverFactory | None = None
    ) -> None:
        check_counts(top_k=top_k)
        self.top_k = resources.budget if top_k is None else min(top_k, resources.budget)
        self._resources = resources
        build = resources.retriever if retriever is None else retriever
        self._retriever = build(resources.graph, top_k=resources.budget)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the retriever's ranking."""
        with self._resources.clock("retrieve"):
            ranking = self._retriever.retrieve(state.queries).to(state.nodes.device)
            width = min(self.top_k, self._resources.graph.num_nodes)
            retrieved = state.with_ranking(ranking.nodes[:, :width], ranking.scores[:, :width])
            if ranking.features is not None:
                retrieved = retrieved.with_features(ranking.features[:, :width], tuple(self._retriever.feature_names))
            return retrieved.with_pool(ranking.nodes)
