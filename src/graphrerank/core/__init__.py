"""Records and abstract base classes that all packages share.

The records are rankings, queries and candidate graphs. ``Retriever``, ``Encoder``, ``PairEncoder``, ``Reranker`` and
``GraphScorer`` are base classes for extensions. Objects without these base classes are adapted in
:mod:`~graphrerank.core.adapters`.
"""

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.encoder import Encoder, PairEncoder
from graphrerank.core.graph_scorer import GraphScorer, GraphScorerFactory
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking, top_k_by_node_order
from graphrerank.core.reranker import CheckpointModel, Reranker
from graphrerank.core.retriever import DTYPES, GraphHead, Retriever, RetrieverFactory

__all__ = [
    "DTYPES",
    "CandidateGraphs",
    "CheckpointModel",
    "Encoder",
    "GraphHead",
    "GraphScorer",
    "GraphScorerFactory",
    "ModelInputs",
    "PairEncoder",
    "Queries",
    "Ranking",
    "Reranker",
    "Retriever",
    "RetrieverFactory",
    "top_k_by_node_order",
]
