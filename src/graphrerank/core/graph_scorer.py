"""Base class of trained graph rerankers over a corpus, with which a pipeline step scores candidates."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking


class GraphScorer(ABC):
    """Base of trained graph rerankers over one corpus.

    A subclass implements :meth:`candidate_graphs` and :meth:`score`. Its constructor takes the corpus graph and the
    keyword argument ``text_encoder``. Override :meth:`factory_over` if several corpora can share the loaded model.
    """

    @abstractmethod
    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the input of the model.

        Args:
            queries: ``B`` queries.
            ranking: Candidates ``[B, K]`` with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs with ``N`` candidates in total, in the order of the ranking.
        """

    @abstractmethod
    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates.

        Args:
            graphs: Packed graphs from :meth:`candidate_graphs`.

        Returns:
            Scores ``[N]``, which are only comparable within a query.
        """

    def factory_over(self, factory: "GraphScorerFactory") -> "GraphScorerFactory":
        """Return a factory for this scorer over another corpus, such as a subset of its corpus.

        Args:
            factory: Factory that built this scorer.

        Returns:
            The same factory, which loads the model again. Subclasses may share the loaded model instead.
        """
        return factory


#: Function from a corpus graph and the keyword argument ``text_encoder`` to a scorer, such as a ``functools.partial``.
GraphScorerFactory = Callable[..., GraphScorer]
