"""Graph search from facts: entities that a query's facts speak of, PageRank over entities and passages."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.graphs import Ranking, top_k_by_node_order
from graphrerank.indexes import FactGraphBuilder, FactGraphSettings, IndexEncoder
from graphrerank.knowledge import KnowledgeExtractor
from graphrerank.language_models import ChatModel, remembering
from graphrerank.operators import (
    CorpusPPR,
    FactReranker,
    LanguageModelFactFilter,
    PairFactReranker,
    entity_seeds,
    find_facts,
)
from graphrerank.operators.fact_seeds import COMBINATIONS
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace

RERANKERS = ("none", "cross_encoder", "language_model")


class FactGraphSearch:
    r"""Replace the retrieved passages by those that PageRank reaches from the query's facts.

    1. The ``num_candidates`` facts most like the query (:func:`find_facts`), Eq. (4).
    2. ``num_facts`` of them, in the order of the reranker where there is one, Eq. (5).
    3. The ``num_seeds`` heaviest of their entities (:func:`entity_seeds`).
    4. PageRank over passages and entities from these (:class:`CorpusPPR`), Eq. (6); its passages, Eq. (7).

    A query for which no fact is found, because there is none in the corpus, none is like it (an empty query without a
    vector), or the language model threw all out, keeps what was retrieved before: dense search, as in HippoRAG 2. A
    passage that no mass reaches is not ranked, so that there may be fewer than the budget.

    Source: "EA-GraphRAG", 2026, section 3.4.2. With ``passage_weight`` the retrieved passages are seeds too, as in
    HippoRAG 2: their scores, 0 for the least and 1 for the best retrieved, times that weight (HippoRAG 2 seeds the
    whole corpus). The index is built, or read from its folder, when the step is; its report is printed.

    Args:
        workplace: What the pipeline's steps share; its ``text_encoder`` makes the index.
        folder: Where the index lies, beside those of other corpora and settings.
        extractor: Tells entities and relations of passages.
        synonymy_threshold: As :class:`FactGraphSettings`.
        max_synonyms: As there.
        num_candidates: :math:`k`, facts by their vectors; at least ``num_facts``.
        rerank: Who chooses among them: ``none``, ``cross_encoder`` (the pipeline's) or ``language_model``.
        language_model: Who is asked with ``rerank: language_model``.
        cache: Folder that keeps the language model's answers; each run asks anew when None.
        num_facts: Facts that weigh entities.
        combination: Weight of an entity of several facts: ``last``, ``mean`` or ``sum``.
        num_seeds: :math:`k'`, entities.
        passage_weight: Of the retrieved passages as seeds, not negative.
        restart_prob: Probability in (0, 1] of returning to the seeds at each step; 1 - the paper's damping.

    Raises:
        ValueError: If a setting is out of range, or a model that is needed is not given.
    """

    def __init__(
        self,
        workplace: Workplace,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        synonymy_threshold: float = 0.8,
        max_synonyms: int = 100,
        num_candidates: int = 5,
        rerank: str = "none",
        language_model: ChatModel | None = None,
        cache: str | Path | None = None,
        num_facts: int = 5,
        combination: str = "last",
        num_seeds: int = 5,
        passage_weight: float = 0.0,
        restart_prob: float = 0.5,
    ) -> None:
        encoder = workplace.text_encoder
        if not isinstance(encoder, IndexEncoder):
            raise ValueError(
                f"`text_encoder` must be given for an index, with a fingerprint (encoder=...), got {encoder}"
            )
        for name, number in (("num_facts", num_facts), ("num_seeds", num_seeds)):
            if number < 1:
                raise ValueError(f"`{name}` must be a positive integer, got {number}")
        if num_candidates < num_facts:
            raise ValueError(f"`num_candidates` must be at least `num_facts` ({num_facts}), got {num_candidates}")
        if combination not in COMBINATIONS:
            raise ValueError(f"`combination` must be one of {list(COMBINATIONS)}, got {combination!r}")
        if passage_weight < 0:
            raise ValueError(f"`passage_weight` must not be negative, got {passage_weight}")
        self.num_candidates = num_candidates
        self.num_facts = num_facts
        self.combination = combination
        self.num_seeds = num_seeds
        self.passage_weight = passage_weight
        self._workplace = workplace
        self._reranker = _reranker(rerank, workplace, language_model, cache)
        settings = FactGraphSettings(synonymy_threshold=synonymy_threshold, max_synonyms=max_synonyms)
        device = workplace.graph.device
        builder = FactGraphBuilder(folder, extractor=extractor, encoder=encoder, device=device)
        index = builder.build(workplace.graph.texts, settings)
        print(index.report(), flush=True)
        self._walk = CorpusPPR(index.graph.to(device), restart_prob=restart_prob)
        self._fact_texts, self._fact_vectors = index.facts.texts, index.fact_vectors.to(device)
        self._ends, self._num_holders = index.facts.ends.to(device), index.num_holders.to(device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the facts of each query; keep what was retrieved where there is none."""
        clock, num_passages = self._workplace.clock, self._workplace.graph.num_nodes
        with clock("retrieve"):
            vectors = state.queries.encoded.to(self._fact_vectors)
            found = find_facts(vectors, self._fact_vectors, top_k=self.num_candidates)
        with clock("rerank"):
            facts, scores = self._choose(state.queries.texts, found)
        with clock("graph"):
            entities = entity_seeds(
                facts, scores, self._ends, self._num_holders, top_k=self.num_seeds, combination=self.combination
            )
            seeds, weight = self._with_passages(state, entities)
            mass = self._walk.score(seeds, weight)[:, :num_passages]
            reached = mass.masked_fill(mass == 0, -torch.inf)
            nodes, ranked = top_k_by_node_order(reached, self._workplace.budget)
            return _where(state, facts[:, 0] >= 0, Ranking(nodes, ranked))

    def _choose(self, query_texts: Sequence[str], found: Ranking) -> tuple[Tensor, Tensor]:
        """Take the facts that weigh entities, ``[B, num_facts]``, with their similarities."""
        if self._reranker is None:
            return found.nodes[:, : self.num_facts], found.scores[:, : self.num_facts]
        texts = [[self._fact_texts[fact] for fact in row if fact >= 0] for row in found.nodes.tolist()]
        order = torch.full((len(found), self.num_facts), -1, dtype=torch.int64)
        for row, places in enumerate(self._reranker.rerank(query_texts, texts)):
            kept = places[: self.num_facts]
            order[row, : len(kept)] = torch.tensor(kept, dtype=torch.int64)
        order = order.to(found.nodes.device)
        at = order.clamp(min=0)
        facts = found.nodes.gather(1, at).masked_fill(order < 0, -1)
        return facts, found.scores.gather(1, at).masked_fill(order < 0, -torch.inf)

    def _with_passages(self, state: RetrievalState, entities: Ranking) -> tuple[Tensor, Tensor]:
        """Put entities, as nodes of the graph, and retrieved passages together as seeds: ``[B, S]`` nodes, weights."""
        nodes = torch.where(entities.nodes >= 0, entities.nodes + self._workplace.graph.num_nodes, -1)
        if not self.passage_weight or not state.nodes.shape[1]:
            return nodes, entities.scores
        valid = state.nodes >= 0
        least = state.scores.masked_fill(~valid, torch.inf).amin(1, keepdim=True)
        most = state.scores.masked_fill(~valid, -torch.inf).amax(1, keepdim=True)
        scaled = torch.where(most > least, (state.scores - least) / (most - least), 1.0)
        weight = (self.passage_weight * scaled).masked_fill(~valid, -torch.inf)
        return torch.cat([nodes, state.nodes], dim=1), torch.cat([entities.scores, weight], dim=1)


def _reranker(
    rerank: str, workplace: Workplace, language_model: ChatModel | None, cache: str | Path | None
) -> FactReranker | None:
    if rerank not in RERANKERS:
        raise ValueError(f"`rerank` must be one of {list(RERANKERS)}, got {rerank!r}")
    if rerank == "cross_encoder":
        return PairFactReranker(workplace.reader)
    if rerank == "language_model":
        if language_model is None:
            raise ValueError("`language_model` must be given with `rerank: language_model`, got none")
        return LanguageModelFactFilter(remembering(language_model, cache))
    return None


def _where(state: RetrievalState, chosen: Tensor, found: Ranking) -> RetrievalState:
    """Replace the rankings of chosen queries, ``[B]`` bool; the others keep theirs."""
    width = max(state.nodes.shape[1], found.nodes.shape[1])
    rows = chosen.unsqueeze(1)

    def either(new: Tensor, old: Tensor, fill: float) -> Tensor:
        new, old = (torch.nn.functional.pad(part, (0, width - part.shape[1]), value=fill) for part in (new, old))
        return torch.where(rows, new, old)

    return state.with_ranking(either(found.nodes, state.nodes, -1), either(found.scores, state.scores, -torch.inf))
