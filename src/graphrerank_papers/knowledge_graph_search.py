"""LightRAG and PathRAG: passages by the entities, relations and paths of a knowledge graph like the query."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_positive_share
from graphrerank.graphs import Queries, top_k_by_node_order
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_object
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing import with_listed
from graphrerank_papers.knowledge.corpus_knowledge import build_knowledge_graph

Levels = tuple[list[str], list[str]]  # keywords
WeightedPath = tuple[float, tuple[int, ...]]  # reliability, entities


class LightRAGSearch:
    """Replace the retrieved passages by those of the entities and relations most similar to the query.

    - ``local``: the ``num_entities`` entities by their descriptions; the passages of each entity in turn, those first
      that contain most of its one-hop neighbours.
    - ``global``: the ``num_relations`` relations by their descriptions; the passages of each relation in turn.
    - ``hybrid``: both lists, by turns.

    With ``order: similarity`` the passages of each list are ordered by their similarity to the query instead.

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.2; the order of
    passages, which the paper leaves open, as in the authors' code (``graph``: first versions; ``similarity``: later
    ones). *Where we differ:* without a language model the query itself is searched on both levels, in place of its
    low- and high-level keywords. We rank passages; LightRAG also gives the descriptions themselves to its reader. A
    query to which nothing is similar keeps what was retrieved before.

    A ``language_model`` writes keywords; its ``prompt`` has the placeholder ``{question}``, and ``cache`` is the folder
    of its answers. ``description_tokens`` are words of a description, at most.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        description_tokens: int = 40,
        mode: str = "hybrid",
        order: str = "similarity",
        num_entities: int = 40,
        num_relations: int = 40,
        language_model: ChatModel | None = None,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
    ) -> None:
        check_choice(("local", "global", "hybrid"), mode=mode)
        check_choice(("graph", "similarity"), order=order)
        check_counts(num_entities=num_entities, num_relations=num_relations)
        self.mode, self.order = mode, order
        self.num_entities, self.num_relations = num_entities, num_relations
        self._resources = resources
        self._model = None if language_model is None else remembering(language_model, cache)
        self._prompt = prompt or shipped_prompt("light_rag_keywords")
        self._prompt.fill(question="")
        self._encoder = resources.index_encoder
        self._graph = build_knowledge_graph(
            resources.graph.all_texts,
            folder=folder,
            extractor=extractor,
            encoder=self._encoder,
            description_tokens=description_tokens,
        )
        self._entities = self._graph.entity_vectors.to(resources.graph.device)
        self._relations = self._graph.relation_vectors.to(resources.graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search on the levels of the mode."""
        with self._resources.clock("retrieve"):
            low, high = self._levels(state.queries)
            lists = []
            if self.mode != "global":
                lists.append([self._local(row) for row in nearest(low, self._entities, self.num_entities)])
            if self.mode != "local":
                lists.append([self._global(row) for row in nearest(high, self._relations, self.num_relations)])
        with self._resources.clock("graph"):
            if self.order == "similarity":
                vectors = state.queries.encoded
                lists = [[self._by_similarity(row, vectors[i]) for i, row in enumerate(rows)] for rows in lists]
            listed = [_by_turns(rows) for rows in zip(*lists, strict=True)]
            return with_listed(state, listed, budget=self._resources.budget)

    def _levels(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the vectors of both levels, ``[B, d]`` each; a level without keywords takes the query's vector."""
        low, high = queries.encoded.clone(), queries.encoded.clone()
        if self._model is not None:
            keywords = query_levels(self._model, queries.texts, self._prompt)
            for level, vectors in enumerate((low, high)):
                texts = {row: ", ".join(found[level]) for row, found in enumerate(keywords) if found[level]}
                if texts:
                    vectors[list(texts)] = self._encoder.encode(list(texts.values())).to(vectors)
        return low, high

    def _local(self, entities: Iterable[int]) -> list[int]:
        passages_of, neighbours = self._graph.passages_of_entity, self._graph.neighbours
        listed: dict[int, None] = {}
        for entity in entities:
            held = dict.fromkeys(passages_of[entity], 0)
            for neighbour in neighbours[entity]:
                for passage in passages_of[neighbour]:
                    if passage in held:
                        held[passage] += 1
            listed |= dict.fromkeys(sorted(held, key=lambda passage: (-held[passage], passage)))
        return list(listed)

    def _global(self, relations: Iterable[int]) -> list[int]:
        passages_of = self._graph.passages_of_relation
        return list(dict.fromkeys(passage for relation in relations for passage in passages_of[relation]))

    def _by_similarity(self, passages: list[int], query: Tensor) -> list[int]:
        embedding = self._resources.graph.encoded
        scores = embedding[passages] @ query.to(embedding)
        return [passages[position] for position in torch.argsort(scores, descending=True, stable=True).tolist()]


def _by_turns(lists: Iterable[list[int]]) -> list[int]:
    """Merge lists by taking the first of each, then the second and so on; repeated entries are dropped."""
    turns = (entry for turn in zip_longest(*lists) for entry in turn)
    return list(dict.fromkeys(entry for entry in turns if entry is not None))


def nearest(queries: Tensor, vectors: Tensor, top_k: int) -> list[list[int]]:
    """List the ``top_k`` rows of ``vectors`` ``[n, d]`` of largest positive dot product with each of ``B`` queries."""
    if not len(vectors):
        return [[] for _ in queries]
    similarity = queries.to(vectors) @ vectors.T
    nodes, _ = top_k_by_node_order(similarity.masked_fill(similarity <= 0, -torch.inf), top_k)
    return [[node for node in row if node >= 0] for row in nodes.tolist()]


def query_levels(model: ChatModel, questions: Sequence[str], prompt: Prompt) -> list[Levels]:
    """Let a language model write the low- and the high-level keywords of ``B`` questions; none without a usable answer.

    Source: LightRAG, section 3.2, query keyword extraction. A blank question has no keywords and is not sent.
    """
    rows = [row for row, question in enumerate(questions) if question.strip()]
    filled = [prompt.fill(question=questions[row]) for row in rows]
    answers = ask_strictly(model, filled, system=prompt.instructions(), parse=parse_levels, form=prompt.form)
    levels = dict(zip(rows, answers, strict=True))
    return [levels.get(row) or ([], []) for row in range(len(questions))]


def parse_levels(content: str) -> Levels:
    """Parse an answer: a JSON object with the lists of strings ``low_level`` and ``high_level``."""
    words = list[Annotated[str, Field(min_length=1)]]
    answer = read_object(content, low_level=words, high_level=words)
    return list(dict.fromkeys(answer.low_level)), list(dict.fromkeys(answer.high_level))


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

    ``num_entities`` is :math:`N` and ``num_paths`` :math:`K`, both per query.
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
        limits = {"decay": self.decay, "threshold": self.threshold}
        ranked = sorted(
            (-reliability, path)
            for start in entities
            for reliability, path in flow_paths(self._graph.neighbours, start, max_hops=self.max_hops, **limits)
            if path[-1] in entities
        )
        best: dict[frozenset[int], tuple[int, ...]] = {}
        for _, path in ranked:
            best.setdefault(frozenset(path), path)
        return list(best.values())[: self.num_paths]

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
