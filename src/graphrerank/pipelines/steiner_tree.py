"""Graph search: the subgraph that connects what is retrieved, as G-Retriever."""

import torch
from torch.nn.utils.rnn import pad_sequence

from graphrerank.operators import PrizeCollectingSteinerTree
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class SteinerTree:
    """Replace the retrieved nodes by a subgraph that connects the best (:class:`PrizeCollectingSteinerTree`).

    Source: G-Retriever, section 5.3. *Where we differ:* it hands a subgraph to a language model, unranked; we rank its
    nodes by their dot product with the query, and cut at the budget.

    Args:
        workplace: What the pipeline's steps share.
        edge_cost: Cost of an edge, positive.

    Raises:
        ValueError: If an argument is out of range, the corpus has no embedding, or ``pcst_fast`` is not installed.
    """

    def __init__(self, workplace: Workplace, *, edge_cost: float = 0.5) -> None:
        if workplace.graph.embedding is None:
            raise ValueError("`graph` must have an embedding: encode the corpus first")
        self._embedding = workplace.graph.embedding
        self._workplace = workplace
        self._operator = PrizeCollectingSteinerTree(workplace.graph, edge_cost=edge_cost)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Take the subgraph, best nodes first."""
        with self._workplace.clock("graph"):
            found = self._operator.expand(state.nodes)
            nodes = pad_sequence(found, batch_first=True, padding_value=-1) if found else state.nodes
            vectors = state.queries.encoded.to(nodes.device).unsqueeze(1)
            scores = (self._embedding[nodes.clamp(min=0)] * vectors).sum(-1)
            return state.with_ranking(nodes, torch.zeros_like(scores)).ranked_by(scores).top(self._workplace.budget)
