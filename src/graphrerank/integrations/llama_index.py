"""Use the reranker as a node postprocessor of LlamaIndex. Install it with ``pip install graphrerank[llama-index]``."""

from collections.abc import Sequence

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import InputEdge, ranked
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

with importing("llama-index", __name__):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
    from pydantic import Field


class GraphRerankPostprocessor(BaseNodePostprocessor):
    """LlamaIndex node postprocessor that reranks the nodes of a retriever, in a query engine or on its own.

    The retriever's scores are used, and a node without one gets the lowest score of the others. Consecutive chunks
    (``prev_node``, ``next_node``) are connected by edges of the type ``adjacency``. The metadata may add edges, by
    ``entities`` and by ``doc_id`` with ``chunk_id``.

    Attributes:
        reranker: Reranker whose model needs no vectors.
        top_n: Number of nodes to return. If None, all nodes.
        distances: Whether the scores of the nodes are distances, where lower is better, as in LlamaIndex's
            ``FaissVectorStore`` with an L2 index. If None, they are not, and a warning reports scores that increase
            along the list.
    """

    reranker: GraphReranker = Field(exclude=True)
    top_n: int | None = None
    distances: bool | None = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex shows in its events."""
        return "GraphRerankPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """Rank nodes, best first. Scores are probabilities of relevance if the model is calibrated."""
        if query_bundle is None:
            raise UserError("`query_bundle` must be a query to rank the nodes for, got None")
        ranking = ranked(
            self.reranker,
            query_bundle.query_str,
            [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            [node.node.metadata for node in nodes],
            scores=[node.score for node in nodes],
            distances=self.distances,
            edges=sorted(_following([node.node for node in nodes])),
            top_n=self.top_n,
        )
        return [NodeWithScore(node=nodes[index].node, score=score) for index, score in ranking]


def _following(nodes: Sequence[BaseNode]) -> set[InputEdge]:
    """Return an edge for each pair of consecutive nodes among the given nodes."""
    index_of, pairs = {node.node_id: index for index, node in enumerate(nodes)}, set()
    for index, node in enumerate(nodes):
        for other in (node.prev_node, node.next_node):
            pairs.add((index, index if other is None else index_of.get(other.node_id, index)))
    return {(min(pair), max(pair), "adjacency") for pair in pairs if pair[0] != pair[1]}
