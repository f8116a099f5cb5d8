"""The reranker as a strategy of graph-retriever; ``pip install graphrerank[graph-retriever]``."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from graphrerank.checks import UserError
from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.integrations.metadata import ranked

with importing("graph-retriever", __name__):
    from graph_retriever import Node
    from graph_retriever.strategies import NodeTracker, Strategy


@dataclass(kw_only=True)
class GraphRerankStrategy(Strategy):
    """Expands along the edges of the nodes that the model ranks highest among all that were found so far.

    In each round the model ranks all found nodes, joined wherever an outgoing edge of one node is an incoming edge of
    another, and the best ``per_iteration_limit`` nodes that were not followed yet are followed, until these are
    ``select_k``. Returned are the best ``select_k`` of all that was found. The reranker must not need vectors; the
    scores that it reads are the store's similarities. The library gives a strategy only the vector of the ``question``,
    whose words the model reads.
    """

    reranker: GraphReranker
    question: str = ""
    per_iteration_limit: int = 4
    _found: dict[str, Node] = field(default_factory=dict)
    _followed: set[str] = field(default_factory=set)

    def iteration(self, *, nodes: Iterable[Node], tracker: NodeTracker) -> None:
        """Rank all that was found, and follow the best."""
        self._found |= {node.id: node for node in nodes if node.id not in self._found}
        open_nodes = [
            node
            for node in self._ranked()
            if node.id not in self._followed and (self.max_depth is None or node.depth < self.max_depth)
        ]
        best = open_nodes[: self.per_iteration_limit]
        self._followed |= {node.id for node in best}
        tracker.select_and_traverse(best)

    def finalize_nodes(self, selected: Iterable[Node]) -> Iterable[Node]:
        """Return the best ``select_k`` of all that was found, by the model's ranking."""
        return self._ranked()[: self.select_k]

    def _ranked(self) -> list[Node]:
        if not self.question:
            raise UserError("`question` must be given, as the model reads its words, got none")
        nodes = list(self._found.values())
        edges = [
            (i, j)
            for (i, first), (j, second) in combinations(enumerate(nodes), 2)
            if first.outgoing_edges & second.incoming_edges or second.outgoing_edges & first.incoming_edges
        ]
        scores = [node.similarity_score for node in nodes]
        found = ranked(self.reranker, self.question, [node.content for node in nodes], scores=scores, edges=edges)
        for index, score in found:
            nodes[index].extra_metadata["relevance_score"] = score
        return [nodes[index] for index, _ in found]
