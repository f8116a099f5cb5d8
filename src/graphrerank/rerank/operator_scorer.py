"""Graph scorer for pipelines that scores candidates without training, for example by personalized PageRank."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from graphrerank.core import CandidateGraphs, GraphScorer, Queries, Ranking
from graphrerank.core.model_inputs import SCORES
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.corpus import CorpusGraph
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CorpusCandidates
from graphrerank.utils.checks import UserError


class GraphOperator(Protocol):
    """Operator that scores candidates from their scores and edges, without training."""

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates.

        Args:
            graphs: Candidate graphs with ``N`` candidates.

        Returns:
            Scores ``[N]``.
        """


class OperatorScorer(GraphScorer):
    """Score the candidates of a pipeline with an operator such as :class:`~graphrerank.operators.ppr.PPR`.

    With the same candidates, the ranking is that of the operator's row in the tables of ``graphrerank evaluate``.

    Args:
        graph: Corpus graph of the candidates.
        operator: Operator that scores candidate graphs.
        features: Names of the retriever's features that become the columns of ``x``. The first is the base score.
        text_encoder: Ignored. Pipelines pass it to every scorer.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        operator: GraphOperator,
        features: Sequence[str] = (BASE_SCORE,),
        text_encoder: Any = None,
    ) -> None:
        self._graph = graph
        self.operator = operator
        self.features = tuple(features)
        self._builder = CandidateGraphBuilder(SCORES, self.features)

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the graphs of the candidates.

        Args:
            queries: ``B`` queries.
            ranking: Candidates ``[B, K]`` with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs, with the columns ``features``.

        Raises:
            UserError: If the retriever lacks a feature.
        """
        if missing := [name for name in self.features if name not in feature_names]:
            raise UserError(
                f"`retriever` must return the features {list(self.features)}, got none named {missing}. Use, for "
                "example, retriever=hybrid"
            )
        return self._builder.from_corpus(CorpusCandidates(self._graph, queries, ranking, feature_names))

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates with the operator.

        Args:
            graphs: Graphs from :meth:`candidate_graphs`.

        Returns:
            Scores ``[N]``.
        """
        return self.operator.score(graphs)
