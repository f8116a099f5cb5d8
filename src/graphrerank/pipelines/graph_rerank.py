"""Graph model search: rank the retrieved nodes by a model of their scores and the edges among them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from graphrerank.graphs import CandidateGraphs, Queries, Ranking
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class GraphScorer(Protocol):
    """A trained graph reranker over one corpus."""

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the model's input, ``B`` graphs, from rankings ``[B, K]`` with features in named columns.

        The ``N`` nodes are the candidates in the order of the ranking.
        """

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates: ``[N]``."""


GraphScorerFactory = Callable[..., GraphScorer]  # of a CorpusGraph and `text_encoder`; a functools.partial of a class


class GraphRerank:
    """Rank the result of a vector search by a trained model of its scores and the edges among its nodes.

    Source: GraphER, section 2; FastInsight, Definition 5 (graph model-based search). ``scorer`` builds the model for
    the corpus, such as ``graphrerank.inference.checkpoint_scorer.CheckpointScorer``. The step before must be a vector
    search.
    """

    def __init__(self, resources: Resources, *, scorer: GraphScorerFactory) -> None:
        self._resources = resources
        self.scorer = scorer(resources.graph, text_encoder=resources.text_encoder)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Build the candidates' graphs, score them, and rank all nodes."""
        with self._resources.clock("graph"):
            graphs = self.candidate_graphs(state)
        with self._resources.clock("rerank"):
            scores = state.scores.clone()
            scores[state.nodes >= 0] = self.scorer.score(graphs).to(scores)
            return state.ranked_by(scores)

    def candidate_graphs(self, state: RetrievalState) -> CandidateGraphs:
        """Build the model's input from a vector search's result, nodes in the order of the state."""
        if state.features is None:
            raise ValueError(
                "`steps` must have a vector search whose retriever returns features right before a graph reranker, "
                "got nodes without features"
            )
        ranking = Ranking(state.nodes, state.scores, state.features)
        return self.scorer.candidate_graphs(state.queries, ranking, state.feature_names)
