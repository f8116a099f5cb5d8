"""PathRAG: the passages of the most reliable paths between the entities like the query."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from graphrerank.checks import check_counts, check_positive_share
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing import with_listed
from graphrerank_papers.knowledge.corpus_knowledge import build_knowledge_graph
from graphrerank_papers.light_rag import nearest

WeightedPath = tuple[float, tuple[int, ...]]  # reliability, entities


class PathRAGSearch:
    """Replace the retrieved passages by those of the most reliable paths between retrieved entities.

    1. Retrieve the ``num_entities`` entities most similar to the query by their descriptions.
    2. From each of them, let a resource flow along relations (:func:`flow_paths`), and keep the paths that end at
       another retrieved entity.
    3. Keep the ``num_paths`` most reliable paths, one per set of entities.
    4. List the passages of the relations along each path, path by path; then those of the retrieved entities.

    Among the passages of one relation or entity, those most similar to the query come first.

    Source: Chen et al., "PathRAG: Pruning Graph-based Retrieval Augmented Generation with Relational Paths", 2025,
    sections 3.2 and 3.3. *Where we differ:* the query itself is searched in place of keywords that a language model
    writes; relations are followed in both directions; we rank passages, where PathRAG gives the texts of the paths to
    its reader, the most reliable last. A query to which no entity is similar keeps what was retrieved before.

    ``num_entities`` is :math:`N` and ``num_paths`` :math:`K`, both per query; ``description_tokens`` are words of a
    description, at most.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        description_tokens: int = 40,
        num_entities: int = 40,
        num_paths: int = 15,
        decay: float = 0.8,
        threshold: float = 0.05,
        max_hops: int = 3,
    ) -> None:
        check_counts(num_entities=num_entities, num_paths=num_paths, max_hops=max_hops)
        check_positive_share(decay=decay, threshold=threshold)
        self.num_entities, self.num_paths = num_entities, num_paths
        self.decay, self.threshold, self.max_hops = decay, threshold, max_hops
        self._resources = resources
        self._graph = build_knowledge_graph(
            resources.graph.all_texts,
            folder=folder,
            extractor=extractor,
            encoder=resources.index_encoder,
            description_tokens=description_tokens,
        )
        self._entities = self._graph.entity_vectors.to(resources.graph.device)
        self._between: dict[tuple[int, int], list[int]] = {}
        for relation, (head, tail) in enumerate(self._graph.merged.ends.tolist()):
            self._between.setdefault((min(head, tail), max(head, tail)), []).append(relation)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query."""
        with self._resources.clock("retrieve"):
            found = nearest(state.queries.encoded, self._entities, self.num_entities)
        with self._resources.clock("graph"):
            embedding = self._resources.graph.encoded
            listed = []
            for entities, query in zip(found, state.queries.encoded.to(embedding), strict=True):
                groups = [self._passages_between(*step) for path in self._paths(entities) for step in pairwise(path)]
                groups += [self._graph.passages_of_entity[entity] for entity in entities]
                passages = sorted({passage for group in groups for passage in group})
                score = dict(zip(passages, (embedding[passages] @ query).tolist(), strict=True))
                ranked = (sorted(group, key=lambda passage: (-score[passage], passage)) for group in groups)
                listed.append(list(dict.fromkeys(passage for group in ranked for passage in group)))
            return with_listed(state, listed, budget=self._resources.budget)

    def _paths(self, entities: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the most reliable paths between some entities, one per set of entities, best first."""
        best: dict[frozenset[int], WeightedPath] = {}
        for start in entities:
            paths = flow_paths(
                self._graph.neighbours, start, decay=self.decay, threshold=self.threshold, max_hops=self.max_hops
            )
            for reliability, path in paths:
                key = frozenset(path)
                if path[-1] in entities and (key not in best or _order((reliability, path)) < _order(best[key])):
                    best[key] = reliability, path
        return [path for _, path in sorted(best.values(), key=_order)[: self.num_paths]]

    def _passages_between(self, one: int, other: int) -> list[int]:
        relations = self._between[min(one, other), max(one, other)]
        return sorted({passage for relation in relations for passage in self._graph.passages_of_relation[relation]})


def flow_paths(
    neighbours: Sequence[Sequence[int]], start: int, *, decay: float = 0.8, threshold: float = 0.05, max_hops: int = 3
) -> list[WeightedPath]:
    r"""List the paths along which a resource flows from a node, with their reliability.

    .. math:: S(v) = \sum_{u \in N(v)} \frac{\alpha\, S(u)}{|N(u)|}, \qquad
        S(P) = \frac{1}{|E_P|} \sum_{v \in V_P} S(v)

    from :math:`S = 1` at the start; a node with :math:`S(u) / |N(u)|` below the threshold :math:`\theta` passes nothing
    on. Source: "PathRAG", 2025, Eqs. (3) to (5). *Our reading:* the resource flows outwards, hop by hop: a node
    receives from the nodes one hop nearer to the start, which paths visit in that order.

    ``neighbours`` lists those of each node; ``decay`` is :math:`\alpha` and ``threshold`` :math:`\theta`, both in (0,
    1]; a path has at most ``max_hops`` edges. Returns ``(S(P), nodes of P)`` of each path of one edge or more.

    Example:
        >>> flow_paths([[1, 2], [0, 2], [0, 1]], 0, decay=0.8)
        [(1.4, (0, 1)), (1.4, (0, 2))]
    """
    resource, layer, depth = {start: 1.0}, [start], {start: 0}
    paths: list[tuple[int, ...]] = [(start,)]
    ending: dict[int, list[tuple[int, ...]]] = {start: [(start,)]}
    for hop in range(1, max_hops + 1):
        following: dict[int, None] = {}
        for node in layer:
            share = resource[node] / max(1, len(neighbours[node]))
            if share < threshold:
                continue
            for other in neighbours[node]:
                if depth.setdefault(other, hop) == hop:
                    following[other] = None
                    resource[other] = resource.get(other, 0.0) + decay * share
                    ending.setdefault(other, []).extend((*path, other) for path in ending[node])
        layer = sorted(following)
        paths += [path for node in layer for path in ending[node]]
    return [(sum(resource[node] for node in path) / (len(path) - 1), path) for path in paths[1:]]


def _order(weighted: WeightedPath) -> tuple[float, tuple[int, ...]]:
    return -weighted[0], weighted[1]
