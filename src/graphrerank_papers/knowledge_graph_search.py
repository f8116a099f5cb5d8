"""LightRAG and PathRAG: passages by the entities, relations and paths of a knowledge graph like the query."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
from pydantic import Field
from torch import Tensor

from graphrerank.core import Queries, top_k_by_node_order
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.utils.checks import check_choice, check_counts, check_positive_share
from graphrerank_papers.indexing import scores_of, with_listed
from graphrerank_papers.knowledge.corpus_knowledge import KnowledgeGraph, build_knowledge_graph

Levels = tuple[list[str], list[str]]  # keywords
WeightedPath = tuple[float, tuple[int, ...]]  # reliability, entities


@dataclass(eq=False, repr=False)
class LightRAGSearch(Step):
    """Replace the retrieved passages by those of the entities and relations most similar to the query.

    - ``local``: the ``num_entities`` entities by their descriptions, and their passages.
    - ``global``: the ``num_relations`` relations by their descriptions, and their passages.
    - ``hybrid``: both lists, by turns.

    The passages of each list are ordered by their similarity to the query.

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.2; the order of
    passages, which the paper leaves open, as in later versions of the authors' code. *Where we differ:* without a
    language model the query itself is searched on both levels, in place of its low- and high-level keywords. We rank
    passages; LightRAG also gives the descriptions themselves to its reader. A query to which nothing is similar keeps
    what was retrieved before.

    A ``language_model`` writes keywords; its ``prompt`` has the placeholder ``{question}``.
    """

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    description_tokens: int = 40
    mode: str = "hybrid"
    num_entities: int = 40
    num_relations: int = 40
    language_model: ChatModel | None = None
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "light_rag_keywords"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_choice(("local", "global", "hybrid"), mode=self.mode)
        check_counts(num_entities=self.num_entities, num_relations=self.num_relations)
        self.prompt.fill(question="")
        graph, self._encoder = self.resources.graph, self.resources.index_encoder
        self._graph = _knowledge_graph(self)
        self._entities = self._graph.entity_vectors.to(graph.device)
        self._relations = self._graph.relation_vectors.to(graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search on the levels of the mode."""
        with self.resources.clock("retrieve"):
            low, high = self._levels(state.queries)
            levels = []
            if self.mode != "global":
                levels.append((nearest(low, self._entities, self.num_entities), self._graph.passages_of_entity))
            if self.mode != "local":
                levels.append((nearest(high, self._relations, self.num_relations), self._graph.passages_of_relation))
        with self.resources.clock("graph"):
            lists = [self._by_similarity(state.queries, *level) for level in levels]
            turns = (chain.from_iterable(zip_longest(*of_query)) for of_query in zip(*lists, strict=True))
            listed = [list(dict.fromkeys(passage for passage in row if passage is not None)) for row in turns]
            return with_listed(state, listed, budget=self.resources.budget)

    def _levels(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the vectors of both levels, ``[B, d]`` each; a level without keywords takes the query's vector."""
        low, high = queries.encoded.clone(), queries.encoded.clone()
        if self.language_model is not None:
            keywords = query_levels(remembering(self.language_model, self.cache), queries.texts, self.prompt)
            for level, vectors in enumerate((low, high)):
                texts = {row: ", ".join(found[level]) for row, found in enumerate(keywords) if found[level]}
                if texts:
                    vectors[list(texts)] = self._encoder.encode(list(texts.values())).to(vectors)
        return low, high

    def _by_similarity(
        self, queries: Queries, nodes: Sequence[Sequence[int]], passages_of: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Rank the passages of the nodes that were found for each query; equal ones as the nodes list them."""
        rows = [list(dict.fromkeys(passage for node in row for passage in passages_of[node])) for row in nodes]
        scores = scores_of(self.resources.graph.encoded, queries.encoded, rows)
        return [sorted(row, key=score.__getitem__, reverse=True) for row, score in zip(rows, scores, strict=True)]


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
    answer = parse_object_answer(content, low_level=words, high_level=words)
    return list(dict.fromkeys(answer.low_level)), list(dict.fromkeys(answer.high_level))


@dataclass(eq=False, repr=False)
class PathRAGSearch(Step):
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
    """

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    description_tokens: int = 40
    num_entities: int = 40
    num_paths: int = 15
    decay: float = 0.8
    threshold: float = 0.05
    max_hops: int = 3

    def __post_init__(self) -> None:
        check_counts(num_entities=self.num_entities, num_paths=self.num_paths, max_hops=self.max_hops)
        check_positive_share(decay=self.decay, threshold=self.threshold)
        self._graph = _knowledge_graph(self)
        self._entities = self._graph.entity_vectors.to(self.resources.graph.device)
        self._between: dict[tuple[int, int], list[int]] = {}
        for relation, (head, tail) in enumerate(self._graph.merged.ends.tolist()):
            self._between.setdefault((min(head, tail), max(head, tail)), []).append(relation)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query."""
        with self.resources.clock("retrieve"):
            found = nearest(state.queries.encoded, self._entities, self.num_entities)
        flow: dict[str, Any] = {"decay": self.decay, "threshold": self.threshold, "max_hops": self.max_hops}
        with self.resources.clock("graph"):
            groups = []
            for entities in found:
                paths = reliable_paths(self._graph.neighbours, entities, num_paths=self.num_paths, **flow)
                between = [self._passages_between(*step) for path in paths for step in pairwise(path)]
                groups.append(between + [self._graph.passages_of_entity[entity] for entity in entities])
            passages = [chain.from_iterable(of_query) for of_query in groups]
            listed = []
            scores = scores_of(self.resources.graph.encoded, state.queries.encoded, passages)
            for of_query, score in zip(groups, scores, strict=True):
                ranked = (sorted(group, key=lambda passage: (-score[passage], passage)) for group in of_query)
                listed.append(list(dict.fromkeys(chain.from_iterable(ranked))))
            return with_listed(state, listed, budget=self.resources.budget)

    def _passages_between(self, one: int, other: int) -> list[int]:
        relations = self._between[min(one, other), max(one, other)]
        return sorted({passage for relation in relations for passage in self._graph.passages_of_relation[relation]})


def _knowledge_graph(step: LightRAGSearch | PathRAGSearch) -> KnowledgeGraph:
    return build_knowledge_graph(
        step.resources.graph.all_texts,
        folder=step.folder,
        extractor=step.extractor,
        encoder=step.resources.index_encoder,
        description_tokens=step.description_tokens,
    )


class Adjacency(Protocol):
    """The neighbours of each node, ascending."""

    def __getitem__(self, node: int, /) -> Sequence[int]: ...


def reliable_paths(
    neighbours: Adjacency, nodes: Sequence[int], *, num_paths: int, **flow: Any
) -> list[tuple[int, ...]]:
    """Return the most reliable paths (:func:`flow_paths`) between some nodes, one per set of nodes, best first."""
    ends = set(nodes)
    ranked = sorted(
        (-reliability, path)
        for start in nodes
        for reliability, path in flow_paths(neighbours, start, **flow)
        if path[-1] in ends
    )
    best: dict[frozenset[int], tuple[int, ...]] = {}
    for _, path in ranked:
        best.setdefault(frozenset(path), path)
    return list(best.values())[:num_paths]


def flow_paths(
    neighbours: Adjacency, start: int, *, decay: float = 0.8, threshold: float = 0.05, max_hops: int = 3
) -> list[WeightedPath]:
    r"""List the paths along which a resource flows from a node, with their reliability.

    .. math:: S(v) = \sum_{u \in N(v)} \frac{\alpha\, S(u)}{|N(u)|}, \qquad
        S(P) = \frac{1}{|E_P|} \sum_{v \in V_P} S(v)

    from :math:`S = 1` at the start; a node with :math:`S(u) / |N(u)|` below the threshold :math:`\theta` passes nothing
    on. Source: "PathRAG", 2025, Eqs. (3) to (5). *Our reading:* the resource flows outwards, hop by hop: a node
    receives from the nodes one hop nearer to the start, which paths visit in that order.

    ``decay`` is :math:`\alpha`, ``threshold`` :math:`\theta`. Returns ``(S(P), nodes of P)``, at least two nodes each.

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
