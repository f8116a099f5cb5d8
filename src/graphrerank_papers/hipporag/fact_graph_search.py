"""Graph search from facts: the entities of a query's facts seed PageRank over entities and passages."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_not_negative
from graphrerank.graphs import Ranking, top_k_by_node_order
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt
from graphrerank.operators.corpus_ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.hipporag.builder import FactGraphBuilder
from graphrerank_papers.hipporag.fact_graph import FactGraphSettings
from graphrerank_papers.hipporag.fact_rerank import FactReranker, LanguageModelFactFilter, PairFactReranker
from graphrerank_papers.hipporag.fact_seeds import COMBINATIONS, entity_seeds, find_facts

RERANKERS = ("none", "cross_encoder", "language_model")
PASSAGE_SEEDS = ("retrieved", "all")


class FactGraphSearch:
    r"""Replace the retrieved passages by those that PageRank reaches from the query's facts.

    1. Retrieve the ``num_candidates`` facts most similar to the query (:func:`find_facts`), Eq. (4).
    2. Keep ``num_facts`` of them, in the order of the reranker if there is one, Eq. (5).
    3. Keep the ``num_seeds`` entities of largest weight (:func:`entity_seeds`).
    4. Rank passages by PageRank over passages and entities (:class:`CorpusPPR`), Eqs. (6) and (7).

    A query without facts keeps what was retrieved before: dense search, as in HippoRAG 2. It has none if the corpus has
    none, if none is similar (an empty query has no vector), or if the language model rejected all. Passages that
    receive no mass are not ranked, so there may be fewer than the budget.

    Source: "EA-GraphRAG", 2026, section 3.4.2. With ``passage_weight`` passages are seeds too, as in HippoRAG 2
    (Gutiérrez et al., "From RAG to Memory", 2025, section 3): by their scores, scaled to [0, 1], times that weight. Its
    seeds differ from EA-GraphRAG's in three ways: every passage is one (``passage_seeds: all``, by its dot product with
    the query), an entity takes the mean of its facts (``combination: mean``), and a language model may reject facts.
    The constructor builds the index, or reads it from its folder, and prints its report.

    Args:
        resources: Resources of the pipeline; its ``text_encoder`` encodes the index.
        folder: Folder of indexes.
        extractor: Extractor of entities and relations.
        synonymy_threshold: See :class:`FactGraphSettings`.
        max_synonyms: See :class:`FactGraphSettings`.
        num_candidates: :math:`k`, number of facts retrieved by vector; at least ``num_facts``.
        rerank: Reranker of facts: ``none``, ``cross_encoder`` (the pipeline's) or ``language_model``.
        language_model: Language model of ``rerank: language_model``.
        prompt: Of the language model (:class:`LanguageModelFactFilter`); None for the one that ships.
        cache: Folder of cached answers of the language model; None for no cache.
        num_facts: Number of facts that weigh entities.
        combination: Weight of an entity of several facts: ``last``, ``mean`` or ``sum``.
        num_seeds: :math:`k'`, number of entities.
        passage_weight: Weight of passages as seeds, not negative.
        passage_seeds: Which passages are seeds: the ``retrieved`` ones, or ``all`` of the corpus.
        restart_prob: Probability in (0, 1] of returning to the seeds at each step; 1 - the paper's damping.

    Raises:
        ValueError: If a setting is out of range, or a required model is not given.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        synonymy_threshold: float = 0.8,
        max_synonyms: int = 100,
        num_candidates: int = 5,
        rerank: str = "none",
        language_model: ChatModel | None = None,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
        num_facts: int = 5,
        combination: str = "last",
        num_seeds: int = 5,
        passage_weight: float = 0.0,
        passage_seeds: str = "retrieved",
        restart_prob: float = 0.5,
    ) -> None:
        check_counts(num_facts=num_facts, num_seeds=num_seeds)
        if num_candidates < num_facts:
            raise ValueError(f"`num_candidates` must be at least `num_facts` ({num_facts}), got {num_candidates}")
        check_choice(COMBINATIONS, combination=combination)
        check_choice(PASSAGE_SEEDS, passage_seeds=passage_seeds)
        check_not_negative(passage_weight=passage_weight)
        self.num_candidates = num_candidates
        self.num_facts = num_facts
        self.combination = combination
        self.num_seeds = num_seeds
        self.passage_weight = passage_weight
        self.passage_seeds = passage_seeds
        self._resources = resources
        self._reranker = _reranker(rerank, resources, language_model, prompt, cache)
        settings = FactGraphSettings(synonymy_threshold=synonymy_threshold, max_synonyms=max_synonyms)
        device = resources.graph.device
        builder = FactGraphBuilder(folder, extractor=extractor, encoder=resources.index_encoder, device=device)
        index = builder.build(resources.graph.all_texts, settings)
        print(index.report(), flush=True)
        self._walk = CorpusPPR(index.graph.to(device), restart_prob=restart_prob)
        self._fact_texts, self._fact_vectors = index.facts.texts, index.fact_vectors.to(device)
        self._ends, self._num_holders = index.facts.ends.to(device), index.num_holders.to(device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the facts of each query; queries without facts keep their ranking."""
        clock, num_passages = self._resources.clock, self._resources.graph.num_nodes
        with clock("retrieve"):
            vectors = state.queries.encoded.to(self._fact_vectors)
            candidates = find_facts(vectors, self._fact_vectors, top_k=self.num_candidates)
        with clock("rerank"):
            facts, scores = self._choose(state.queries.texts, candidates)
        with clock("graph"):
            entities = entity_seeds(
                facts, scores, self._ends, self._num_holders, top_k=self.num_seeds, combination=self.combination
            )
            seeds, weight = self._with_passages(state, entities)
            mass = self._walk.score(seeds, weight)[:, :num_passages]
            reached = mass.masked_fill(mass == 0, -torch.inf)
            new, old = Ranking(*top_k_by_node_order(reached, self._resources.budget)), state.ranking
            width = max(new.nodes.shape[1], old.nodes.shape[1])
            new, old, has_facts = new.padded(width), old.padded(width), facts[:, :1] >= 0
            nodes, scores = torch.where(has_facts, new.nodes, old.nodes), torch.where(has_facts, new.scores, old.scores)
            return state.with_ranking(nodes, scores)

    def _choose(self, query_texts: Sequence[str], candidates: Ranking) -> tuple[Tensor, Tensor]:
        """Return the facts that weigh entities, ``[B, num_facts]``, with their similarities."""
        if self._reranker is None:
            return candidates.nodes[:, : self.num_facts], candidates.scores[:, : self.num_facts]
        texts = [[self._fact_texts[fact] for fact in row if fact >= 0] for row in candidates.nodes.tolist()]
        order = torch.full((len(candidates), self.num_facts), -1, dtype=torch.int64)
        for row, positions in enumerate(self._reranker.rerank(query_texts, texts)):
            chosen = positions[: self.num_facts]
            order[row, : len(chosen)] = torch.tensor(chosen, dtype=torch.int64)
        order = order.to(candidates.nodes.device)
        column = order.clamp(min=0)
        facts = candidates.nodes.gather(1, column).masked_fill(order < 0, -1)
        return facts, candidates.scores.gather(1, column).masked_fill(order < 0, -torch.inf)

    def _with_passages(self, state: RetrievalState, entities: Ranking) -> tuple[Tensor, Tensor]:
        """Join entities, as nodes of the graph, and passages as seeds: ``[B, S]`` nodes and weights."""
        nodes = torch.where(entities.nodes >= 0, entities.nodes + self._resources.graph.num_nodes, -1)
        passages, scores = state.nodes, state.scores
        if self.passage_weight and self.passage_seeds == "all":
            embedding = self._resources.graph.encoded
            scores = state.queries.encoded.to(embedding) @ embedding.T
            passages = torch.arange(len(embedding), device=scores.device).expand(len(scores), -1)
        if not self.passage_weight or not passages.shape[1]:
            return nodes, entities.scores
        valid = passages >= 0
        lowest = scores.masked_fill(~valid, torch.inf).amin(1, keepdim=True)
        highest = scores.masked_fill(~valid, -torch.inf).amax(1, keepdim=True)
        scaled = torch.where(highest > lowest, (scores - lowest) / (highest - lowest), 1.0)
        weight = (self.passage_weight * scaled).masked_fill(~valid, -torch.inf)
        return torch.cat([nodes, passages], dim=1), torch.cat([entities.scores, weight], dim=1)


def _reranker(
    rerank: str,
    resources: Resources,
    language_model: ChatModel | None,
    prompt: Prompt | None,
    cache: str | Path | None,
) -> FactReranker | None:
    check_choice(RERANKERS, rerank=rerank)
    if rerank == "cross_encoder":
        return PairFactReranker(resources.cross_encoder)
    if rerank == "language_model":
        if language_model is None:
            raise ValueError("`language_model` must be given with `rerank: language_model`, got none")
        return LanguageModelFactFilter(remembering(language_model, cache), prompt=prompt)
    return None
