"""LightRAG: entities and relations like the query, and the passages that they come from."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts
from graphrerank.graphs import Queries, top_k_by_node_order
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing.knowledge_graph import KnowledgeGraphBuilder
from graphrerank_papers.indexing.listed_passages import round_robin, with_listed
from graphrerank_papers.light_rag.query_levels import LanguageModelQueryLevels

MODES = ("local", "global", "hybrid")
ORDERS = ("graph", "similarity")


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

    Args:
        resources: Resources of the pipeline; its ``text_encoder`` encodes the index.
        folder: Folder of indexes.
        extractor: Extractor of entities and relations.
        description_tokens: Words of a description, at most.
        mode: ``local``, ``global`` or ``hybrid``.
        order: ``graph`` or ``similarity``.
        num_entities: Entities per query.
        num_relations: Relations per query.
        language_model: Language model that writes keywords; None for the query itself.
        prompt: Of the language model, with the place ``{question}``; None for the one that ships.
        cache: Folder of cached answers of the language model; None for no cache.

    Raises:
        ValueError: If a setting is out of range, or there is no encoder with a fingerprint.
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
        check_choice(MODES, mode=mode)
        check_choice(ORDERS, order=order)
        check_counts(num_entities=num_entities, num_relations=num_relations)
        self.mode, self.order = mode, order
        self.num_entities, self.num_relations = num_entities, num_relations
        self._resources = resources
        self._keywords = (
            None
            if language_model is None
            else LanguageModelQueryLevels(
                remembering(language_model, cache), prompt=prompt or shipped_prompt("light_rag_keywords")
            )
        )
        encoder = resources.index_encoder
        builder = KnowledgeGraphBuilder(
            folder, extractor=extractor, encoder=encoder, description_tokens=description_tokens
        )
        self._graph = builder.build(resources.graph.all_texts)
        print(self._graph.report(), flush=True)
        self._encoder = encoder
        device = resources.graph.device
        self._entities, self._relations = (
            vectors.to(device) for vectors in (self._graph.entity_vectors, self._graph.relation_vectors)
        )

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
            listed = [round_robin(rows) for rows in zip(*lists, strict=True)]
            return with_listed(state, listed, budget=self._resources.budget)

    def _levels(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the vectors of both levels, ``[B, d]`` each; a level without keywords takes the query's vector."""
        vectors = queries.encoded
        if self._keywords is None:
            return vectors, vectors
        found = self._keywords.find(queries.texts)
        levels = []
        for level in range(2):
            texts = [", ".join(keywords[level]) for keywords in found]
            rows = [row for row, text in enumerate(texts) if text]
            own = vectors.clone()
            if rows:
                own[rows] = self._encoder.encode([texts[row] for row in rows]).to(own)
            levels.append(own)
        return levels[0], levels[1]

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


def nearest(queries: Tensor, vectors: Tensor, top_k: int) -> list[list[int]]:
    """List the ``top_k`` rows of ``vectors`` ``[n, d]`` of largest positive dot product with each of ``B`` queries."""
    if not len(vectors):
        return [[] for _ in queries]
    similarity = queries.to(vectors) @ vectors.T
    nodes, _ = top_k_by_node_order(similarity.masked_fill(similarity <= 0, -torch.inf), top_k)
    return [[node for node in row if node >= 0] for row in nodes.tolist()]
