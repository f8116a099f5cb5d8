"""Graph search: the subgraph that connects the retrieved nodes, as in G-Retriever."""

from torch.nn.utils.rnn import pad_sequence

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.g_retriever.pcst import PrizeCollectingSteinerTree


class SteinerTree:
    """Replace the retrieved nodes by a subgraph that connects the best (:class:`PrizeCollectingSteinerTree`).

    Source: G-Retriever, section 5.3. *Where we differ:* it gives the subgraph to a language model, unranked; we rank
    its nodes by their dot product with the query, and cut at the budget.

    Args:
        edge_cost: Cost of an edge, positive.
        last_prize: Of the last retrieved node, not negative; each earlier one is worth 1 more.

    Raises:
        ValueError: If an argument is out of range, the corpus has no embedding, or ``pcst_fast`` is not installed.
    """

    def __init__(self, resources: Resources, *, edge_cost: float = 0.5, last_prize: float = 1.0) -> None:
        self._embedding = resources.graph.encoded
        self._resources = resources
        self._operator = PrizeCollectingSteinerTree(resources.graph, edge_cost=edge_cost, last_prize=last_prize)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Find the subgraph, and rank its nodes."""
        with self._resources.clock("graph"):
            trees = self._operator.expand(state.nodes)
            nodes = pad_sequence(trees, batch_first=True, padding_value=-1) if trees else state.nodes
            vectors = state.queries.encoded.to(nodes.device).unsqueeze(1)
            scores = (self._embedding[nodes.clamp(min=0)] * vectors).sum(-1)
            return state.with_ranking(nodes, scores).ranked_by(scores).top(self._resources.budget)
