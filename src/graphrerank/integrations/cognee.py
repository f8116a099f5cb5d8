"""The reranker as a retriever of cognee's memory of agents; ``pip install graphrerank[cognee]``, without encoders."""

import asyncio
import copy
import inspect
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.integrations.metadata import Edge, input_from_metadata

with importing("cognee", __name__):
    from cognee.modules.graph.cognee_graph.CogneeGraphElements import Edge as Triplet
    from cognee.modules.graph.cognee_graph.CogneeGraphElements import Node
    from cognee.modules.graph.utils.fact_conflicts import effective_date_display, status_label
    from cognee.modules.retrieval.graph_completion_retriever import GraphCompletionRetriever
    from cognee.modules.retrieval.register_retriever import use_retriever
    from cognee.modules.search.types import SearchType

FindTripletEdges = Callable[[Sequence[Triplet]], Sequence[Edge]]

# what two facts have in common, by the type of the node that they share; a node of another type is an entity
SHARED = {
    "DocumentChunk": "adjacency",
    "TextSummary": "adjacency",
    "EntityType": "other",
    "NodeSet": "other",
    "TextDocument": "other",
    "Timestamp": "other",
}


class GraphRerankRetriever(GraphCompletionRetriever):
    """Ranks the facts (triplets) that cognee's ``GraphCompletionRetriever`` finds, and keeps the best ``top_k``.

    A fact is read as a passage: its sentence, its two nodes and its date. Facts that share a node of the memory's graph
    are joined, see :func:`edges_of_triplets`. The score that the model reads is the sum of the cosine similarities that
    cognee found for the fact's nodes and relation.

    *Where we differ:* cognee's weights of importance, of feedback and of a user's preferences decide which facts are
    candidates, and no more.

    Args:
        reranker: The reranker; it must not need vectors.
        candidate_top_k: Facts to rank for each query; ``top_k`` if that is more.
        edges: Returns the edges among facts, pairs of places ``(i, j)`` or ``(i, j, type)``.
        settings: Of ``GraphCompletionRetriever``.

    Raises:
        ValueError: If ``candidate_top_k`` is not positive.
    """

    def __init__(
        self,
        reranker: GraphReranker,
        *,
        candidate_top_k: int = 100,
        edges: FindTripletEdges | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if candidate_top_k < 1:
            raise ValueError(f"`candidate_top_k` must be positive, got {candidate_top_k}")
        self._reranker = reranker
        self._candidate_top_k = candidate_top_k
        self._edges = edges or edges_of_triplets

    async def get_triplets(
        self, query: str | None = None, query_batch: list[str] | None = None
    ) -> list[Triplet] | list[list[Triplet]]:
        """Find facts by cognee's search, and rank them in a thread.

        Returns:
            Copies of the best facts, best first, with ``relevance_score`` among their attributes: the probability of
            relevance if the model is calibrated, else its score. A list of them for each query of a batch.
        """
        search = copy.copy(self)
        search.top_k = max(self._candidate_top_k, self.top_k)
        found = await GraphCompletionRetriever.get_triplets(search, query, query_batch)
        if query_batch:
            return await asyncio.to_thread(self._ranked, query_batch, found)
        return (await asyncio.to_thread(self._ranked, [str(query)], [found]))[0]

    def _ranked(self, queries: Sequence[str], found: Sequence[list[Triplet]]) -> list[list[Triplet]]:
        inputs = [self._input(*given, place) for place, given in enumerate(zip(queries, found, strict=True))]
        return [
            [
                _with_relevance(triplets[i], score)
                for i, score in zip(ranking.ids, ranking.relevance.tolist(), strict=True)
            ]
            for triplets, ranking in zip(found, self._reranker.rerank_batch(inputs), strict=True)
        ]

    def _input(self, query: str, triplets: Sequence[Triplet], place: int) -> RerankInput:
        return input_from_metadata(
            query,
            [text_of(triplet) for triplet in triplets],
            [{}] * len(triplets),
            scores=[_similarity(triplet, place) for triplet in triplets],
            edges=self._edges(triplets),
            top_n=self.top_k,
        )


def use_reranker(
    reranker: GraphReranker,
    *,
    search_type: SearchType = SearchType.GRAPH_COMPLETION,
    candidate_top_k: int = 100,
    edges: FindTripletEdges | None = None,
) -> None:
    """Let ``cognee.search`` rank with a reranker wherever a type of search is asked for.

    Args:
        reranker: The reranker.
        search_type: The type of search that is replaced.
        candidate_top_k: As of :class:`GraphRerankRetriever`.
        edges: As of :class:`GraphRerankRetriever`.
    """
    known = set(inspect.signature(GraphCompletionRetriever.__init__).parameters) - {"self"}

    def build(retriever_specific_config: dict[str, Any] | None = None, **arguments: Any) -> GraphRerankRetriever:
        given = {**arguments, **(retriever_specific_config or {})}  # all of a search's arguments
        settings = {name: value for name, value in given.items() if name in known and value is not None}
        return GraphRerankRetriever(reranker, candidate_top_k=candidate_top_k, edges=edges, **settings)

    use_retriever(search_type, build)


def edges_of_triplets(triplets: Sequence[Triplet]) -> list[Edge]:
    """Join facts that share a node, and those about one entity that follow each other in time.

    The type of an edge is that of the shared node: facts of one entity are joined as ``entity``, facts of one chunk or
    summary as ``adjacency``, facts of one kind, set, document or time as ``other``. The facts of one entity that have a
    date of effect are joined as ``adjacency``, each with the next.

    Returns:
        Edges ``(i, j, type)`` with ``i`` below ``j``, each once.
    """
    facts_of: dict[str, list[int]] = {}
    nodes: dict[str, Node] = {}
    for place, triplet in enumerate(triplets):
        for node in {node.id: node for node in (triplet.node1, triplet.node2)}.values():
            nodes[node.id] = node
            facts_of.setdefault(node.id, []).append(place)
    edges: set[Edge] = set()
    for node_id, places in facts_of.items():
        kind = SHARED.get(str(nodes[node_id].attributes.get("type")), "entity")
        edges |= {(i, j, kind) for i, j in combinations(places, 2)}
        if kind == "entity":
            dated = [(date, place) for place in places if (date := _date(triplets[place]))]
            edges |= {(min(i, j), max(i, j), "adjacency") for (_, i), (_, j) in pairwise(sorted(dated))}
    return sorted(edges)


def text_of(triplet: Triplet) -> str:
    """Return a fact as a passage: its sentence, what its two nodes say, and its date."""
    attributes = triplet.attributes
    relation = attributes.get("relationship_type") or attributes.get("relationship_name") or ""
    (first, of_first), (second, of_second) = map(_name_and_content, (triplet.node1, triplet.node2))
    sentence = attributes.get("edge_text") or relation
    if sentence == relation:
        sentence = f"{first} {relation.replace('_', ' ')} {second}"
    lines = [sentence, of_first, of_second, status_label(attributes) or _date(triplet)]
    return "\n".join(filter(None, dict.fromkeys(lines)))


def _name_and_content(node: Node) -> tuple[str, str]:
    text, name, description = (str(node.attributes.get(key) or "") for key in ("text", "name", "description"))
    content = text or (f"{name}: {description}" if name and description not in ("", name) else name or description)
    return name, content


def _date(triplet: Triplet) -> str:
    """Return the day from which a fact holds, ``YYYY-MM-DD``; empty if the memory does not know it."""
    return str(effective_date_display(triplet.attributes.get("effective_date")))


def _similarity(triplet: Triplet, place: int) -> float:
    """Sum the cosine similarities of nodes and relation to a query; one that was not found adds 0."""
    distances = [part.attributes["vector_distance"][place] for part in (triplet.node1, triplet.node2, triplet)]
    return sum(max(0.0, 1.0 - float(distance)) for distance in distances)


def _with_relevance(triplet: Triplet, score: float) -> Triplet:
    return triplet.model_copy(update={"attributes": {**triplet.attributes, "relevance_score": score}})
