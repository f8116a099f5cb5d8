"""LightRAG and PathRAG: retrieve passages by the entities, relations and paths of a knowledge graph."""

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

#: Low-level and high-level keywords of a question.
Levels = tuple[list[str], list[str]]
#: Reliability and nodes of a path.
WeightedPath = tuple[float, tuple[int, ...]]


@dataclass(eq=False, repr=False)
class _KnowledgeGraphSearch(Step):
    """Step that searches a knowledge graph of the corpus, which is built once. Its subclasses describe the fields."""

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    description_tokens: int = 40

    def knowledge_graph(self) -> KnowledgeGraph:
        """Return the knowledge graph of the corpus, building and storing it first if necessary."""
        return build_knowledge_graph(
            self.resources.graph.all_texts,
            folder=self.folder,
            extractor=self.extractor,
            encoder=self.resources.index_encoder,
            description_tokens=self.description_tokens,
        )


@dataclass(eq=False, repr=False)
class LightRAGSearch(_KnowledgeGraphSearch):
    """Replace the retrieved passages by those of the entities and relations that are most similar to the query.

    - ``local``: retrieve the ``num_entities`` entities with the most similar descriptions, and return their passages.
    - ``global``: retrieve the ``num_relations`` relations with the most similar descriptions, and return their
      passages.
    - ``hybrid``: alternate between the passages of both.

    The passages of the entities, and those of the relations, are each ordered by similarity to the query. A query that
    is not similar to any entity or relation keeps its previous ranking.

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.2. The paper does
    not specify the order of passages. Here, it follows later versions of the authors' code. *Differences from the
    paper:* only passages are returned, while LightRAG also gives the descriptions to its reader. Without a language
    model, the query itself replaces its low-level and high-level keywords.

    Args:
        resources: Resources of the pipeline. The graph needs an embedding, and the text encoder a fingerprint.
        folder: Folder of the knowledge graph, which is built once.
        extractor: Extractor of entities and relations.
        description_tokens: Maximum number of words of the descriptions of an entity or a relation.
        mode: ``local``, ``global`` or ``hybrid``.
        num_entities: Number of entities to retrieve per query.
        num_relations: Number of relations to retrieve per query.
        language_model: Language model that writes the keywords of a query. If None, the query itself is used.
        prompt: Prompt of the language model, with the placeholder ``{question}``.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.

    Raises:
        ValueError: If a setting is out of range, or the pipeline has no text encoder.
    """

    _: KW_ONLY
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
        self._graph = self.knowledge_graph()
        self._entities = self._graph.entity_vectors.to(graph.device)
        self._relations = self._graph.relation_vectors.to(graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search for entities, relations or both, depending on the mode.

        Args:
            state: State of ``B`` queries. Their retrieved passages are replaced.

        Returns:
            State with at most ``budget`` passages per query.
        """
        with self.resources.clock("retrieve"):
            low, high = self._levels(state.queries)
            levels = []
            if self.mode != "global":
                levels.append((nearest(low, self._entities, self.num_entities), self._graph.passages_of_entity))
            if self.mode != "local":
                levels.append((nearest(high, self._relations, self.num_relations), self._graph.passages_of_relation))
        with self.resources.clock("graph"):
            lists = [self._by_similarity(state.queries, *level) for level in levels]
            alternating = (chain.from_iterable(zip_longest(*rows)) for rows in zip(*lists, strict=True))
            listed = [list(dict.fromkeys(passage for passage in row if passage is not None)) for row in alternating]
            return with_listed(state, listed, budget=self.resources.budget)

    def _levels(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the vectors of both keyword levels, ``[B, d]``. A level without keywords uses the query's vector."""
        low, high = queries.encoded.clone(), queries.encoded.clone()
        if self.language_model is not None:
            keywords = query_levels(remembering(self.language_model, self.cache), queries.texts, self.prompt)
            for level, vectors in enumerate((low, high)):
                texts = {row: ", ".join(words[level]) for row, words in enumerate(keywords) if words[level]}
                if texts:
                    vectors[list(texts)] = self._encoder.encode(list(texts.values())).to(vectors)
        return low, high

    def _by_similarity(
        self, queries: Queries, nodes: Sequence[Sequence[int]], passages_of: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Rank the passages of each query's nodes by similarity to the query. Ties keep the order of the nodes."""
        rows = [list(dict.fromkeys(passage for node in row for passage in passages_of[node])) for row in nodes]
        scores = scores_of(self.resources.graph.encoded, queries.encoded, rows)
        return [sorted(row, key=score.__getitem__, reverse=True) for row, score in zip(rows, scores, strict=True)]


def nearest(queries: Tensor, vectors: Tensor, top_k: int) -> list[list[int]]:
    """Return the vectors with the largest positive dot products with each query.

    Args:
        queries: Query vectors ``[B, d]``.
        vectors: Vectors to search ``[n, d]``.
        top_k: Maximum number of vectors per query.

    Returns:
        Row indices of the vectors for each query, best first. Vectors with a dot product of at most 0 are ignored.
    """
    if not len(vectors):
        return [[] for _ in queries]
    similarity = queries.to(vectors) @ vectors.T
    nodes, _ = top_k_by_node_order(similarity.masked_fill(similarity <= 0, -torch.inf), top_k)
    return [[node for node in row if node >= 0] for row in nodes.tolist()]


def query_levels(model: ChatModel, questions: Sequence[str], prompt: Prompt) -> list[Levels]:
    """Generate the low-level and high-level keywords of questions with a language model.

    Source: "LightRAG", 2024, section 3.2, query keyword extraction.

    Args:
        model: Chat model.
        questions: ``B`` questions. Blank questions are not sent to the model.
        prompt: Prompt with the placeholder ``{question}``.

    Returns:
        Low-level and high-level keywords of each question. Both are empty for a blank question, or if the model gave no
        usable answer.
    """
    rows = [row for row, question in enumerate(questions) if question.strip()]
    filled = [prompt.fill(question=questions[row]) for row in rows]
    answers = ask_strictly(model, filled, system=prompt.instructions(), parse=parse_levels, form=prompt.form)
    levels = dict(zip(rows, answers, strict=True))
    return [levels.get(row) or ([], []) for row in range(len(questions))]


def parse_levels(content: str) -> Levels:
    """Parse an answer that must be a JSON object with the lists of strings ``low_level`` and ``high_level``.

    Args:
        content: Answer of a language model.

    Returns:
        Low-level and high-level keywords, without duplicates.

    Raises:
        ValueError: If the answer has another form.

    Example:
        >>> parse_levels('{"low_level": ["Metz"], "high_level": ["history"]}')
        (['Metz'], ['history'])
    """
    words = list[Annotated[str, Field(min_length=1)]]
    answer = parse_object_answer(content, low_level=words, high_level=words)
    return list(dict.fromkeys(answer.low_level)), list(dict.fromkeys(answer.high_level))


class Adjacency(Protocol):
    """Neighbours of each node, ascending."""

    def __getitem__(self, node: int, /) -> Sequence[int]: ...


@dataclass(eq=False, repr=False, kw_only=True)
class PathSettings:
    """Settings of a search for the most reliable paths between nodes, as in PathRAG.

    Attributes:
        num_paths: Maximum number of paths per query.
        decay: Share of its resource that a node passes on to its neighbours, in (0, 1].
        threshold: Minimum resource per neighbour, in (0, 1]. A node with less passes nothing on.
        max_hops: Maximum number of edges of a path.
    """

    num_paths: int = 15
    decay: float = 0.8
    threshold: float = 0.05
    max_hops: int = 3

    def check_paths(self) -> None:
        """Check the settings.

        Raises:
            UserError: If a setting is out of range.
        """
        check_counts(num_paths=self.num_paths, max_hops=self.max_hops)
        check_positive_share(decay=self.decay, threshold=self.threshold)

    def paths_between(self, nodes: Sequence[int], neighbours: Adjacency) -> list[tuple[int, ...]]:
        """Return the most reliable paths between nodes, best first (:func:`reliable_paths`).

        Args:
            nodes: Nodes where paths may start and end.
            neighbours: Neighbours of each node.
        """
        flow: dict[str, Any] = {"decay": self.decay, "threshold": self.threshold, "max_hops": self.max_hops}
        return reliable_paths(neighbours, nodes, num_paths=self.num_paths, **flow)


@dataclass(eq=False, repr=False)
class PathRAGSearch(_KnowledgeGraphSearch, PathSettings):
    """Replace the retrieved passages by those of the most reliable paths between entities that resemble the query.

    1. Retrieve the ``num_entities`` entities whose descriptions are most similar to the query.
    2. Let a resource flow from each of these entities along relations (:func:`flow_paths`), and keep the paths that end
       at another of these entities.
    3. Keep the ``num_paths`` most reliable paths. Of the paths through the same entities, keep only the best.
    4. Return the passages of the relations along each path, best path first, and then those of the retrieved entities.

    The passages of a relation or an entity are ordered by similarity to the query. A query that is not similar to any
    entity keeps its previous ranking.

    Source: Chen et al., "PathRAG: Pruning Graph-based Retrieval Augmented Generation with Relational Paths", 2025,
    sections 3.2 and 3.3. *Differences from the paper:* the query itself replaces the keywords that a language model
    writes. Relations are followed in both directions. Passages are returned, while PathRAG gives its reader the texts
    of the paths, most reliable path last.

    Args:
        resources: Resources of the pipeline. The graph needs an embedding, and the text encoder a fingerprint.
        folder: Folder of the knowledge graph, which is built once.
        extractor: Extractor of entities and relations.
        description_tokens: Maximum number of words of the descriptions of an entity or a relation.
        num_entities: Number of entities to retrieve per query.
        num_paths: Maximum number of paths per query.
        decay: Share of the resource that remains after each hop, in (0, 1].
        threshold: Minimum resource per neighbour for an entity to pass it on, in (0, 1].
        max_hops: Maximum number of relations in a path.

    Raises:
        ValueError: If a setting is out of range, or the pipeline has no text encoder.
    """

    _: KW_ONLY
    num_entities: int = 40

    def __post_init__(self) -> None:
        check_counts(num_entities=self.num_entities)
        self.check_paths()
        self._graph = self.knowledge_graph()
        self._entities = self._graph.entity_vectors.to(self.resources.graph.device)
        self._between: dict[tuple[int, int], list[int]] = {}
        for relation, (head, tail) in enumerate(self._graph.merged.ends.tolist()):
            self._between.setdefault((min(head, tail), max(head, tail)), []).append(relation)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search for paths between the entities that resemble each query.

        Args:
            state: State of ``B`` queries. Their retrieved passages are replaced.

        Returns:
            State with at most ``budget`` passages per query.
        """
        with self.resources.clock("retrieve"):
            seeds = nearest(state.queries.encoded, self._entities, self.num_entities)
        with self.resources.clock("graph"):
            groups = []
            for entities in seeds:
                paths = self.paths_between(entities, self._graph.neighbours)
                between = [self._passages_between(*step) for path in paths for step in pairwise(path)]
                groups.append(between + [self._graph.passages_of_entity[entity] for entity in entities])
            passages = [chain.from_iterable(query_groups) for query_groups in groups]
            listed = []
            scores = scores_of(self.resources.graph.encoded, state.queries.encoded, passages)
            for query_groups, score in zip(groups, scores, strict=True):
                ranked = (sorted(group, key=lambda passage: (-score[passage], passage)) for group in query_groups)
                listed.append(list(dict.fromkeys(chain.from_iterable(ranked))))
            return with_listed(state, listed, budget=self.resources.budget)

    def _passages_between(self, one: int, other: int) -> list[int]:
        relations = self._between[min(one, other), max(one, other)]
        return sorted({passage for relation in relations for passage in self._graph.passages_of_relation[relation]})


def reliable_paths(
    neighbours: Adjacency, nodes: Sequence[int], *, num_paths: int, **flow: Any
) -> list[tuple[int, ...]]:
    """Return the most reliable paths between nodes, best first. Only the best path through a set of nodes is returned.

    Args:
        neighbours: Neighbours of each node.
        nodes: Nodes where paths may start and end.
        num_paths: Maximum number of paths.
        **flow: Further arguments of :func:`flow_paths`.
    """
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
    r"""Find the paths along which a resource flows from a node, and compute their reliability.

    .. math:: S(v) = \sum_{u \in N(v)} \frac{\alpha\, S(u)}{|N(u)|}, \qquad
        S(P) = \frac{1}{|E_P|} \sum_{v \in V_P} S(v)

    The start node has the resource :math:`S = 1`. A node with :math:`S(u) / |N(u)| < \theta` passes nothing on.

    Source: "PathRAG", 2025, Eqs. (3) to (5). The paper does not specify the order of the flow. Here, the resource flows
    outwards hop by hop, so a node only receives from nodes that are one hop closer to the start.

    Args:
        neighbours: Neighbours of each node.
        start: Node where all paths start.
        decay: Share of the resource that remains after each hop, :math:`\alpha`, in (0, 1].
        threshold: Minimum resource per neighbour for a node to pass it on, :math:`\theta`.
        max_hops: Maximum number of edges in a path.

    Returns:
        Reliability :math:`S(P)` and nodes of each path. A path has at least two nodes.

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
