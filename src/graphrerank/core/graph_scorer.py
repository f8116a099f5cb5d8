"""Base class of trained graph rerankers over a corpus, which a pipeline's step scores candidates with."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking


class GraphScorer(ABC):
    """A trained graph reranker over one corpus.

    A subclass implements :meth:`candidate_graphs` and :meth:`score`. Its constructor takes the corpus graph and the
    keyword argument ``text_encoder``. Override :meth:`factory_over` if the model can be shared by several corpora.
    """

    @abstractmethod
    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the model's input.

        Args:
            queries: ``B`` queries.
            ranking: Candidates ``[B, K]`` with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs with ``N`` candidates in all, in the order of the ranking.
        """

    @abstractmethod
    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates.

        Args:
            graphs: Packed graphs that :meth:`candidate_graphs` built.

        Returns:
            Scores ``[N]``, comparable within a query only.
        """

    def factory_over(self, factory: "GraphScorerFactory") -> "GraphScorerFactory":
        """Return the factory of this scorer over another corpus, such as a part of this one's.

        Args:
            factory: Factory that built this scorer.

        Returns:
            The same factory, which loads the model once more. Subclasses may share the loaded model.
        """
        return factory


#: Called with a corpus graph and the keyword argument ``text_encoder``; often a ``functools.partial`` of a class.
GraphScorerFactory = Callable[..., GraphScorer]
