"""Graph search from facts: the entities of a query's facts seed PageRank over entities and passages."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_not_negative
from graphrerank.graphs import PairEncoder, Ranking, top_k_by_node_order
from graphrerank.graphs.sparse_rows import pad_rows, positions_in_rows
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.operators.ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.hipporag.fact_graph import build_fact_graph, with_reached

COMBINATIONS = ("last", "mean", "sum")
RERANKERS = ("none", "cross_encoder", "language_model")
PASSAGE_SEEDS = ("retrieved", "all")

# selects from the facts of each of `B` queries: unique positions in its list, most relevant first
FactReranker = Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[int]]]


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

    ``rerank`` is ``none``, ``cross_encoder`` (the pipeline's) or ``language_model``, whose ``prompt`` has the places
    ``{question}`` and ``{facts}``; ``combination`` is the weight of an entity of several facts: ``last``, ``mean`` or
    ``sum``; ``passage_seeds`` are the ``retrieved`` passages or ``all``; ``restart_prob`` is 1 - the paper's damping.
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
        check_choice(RERANKERS, rerank=rerank)
        check_not_negative(passage_weight=passage_weight)
        prompt = prompt or shipped_prompt("ea_graphrag_facts")
        prompt.fill(question="", facts="")
        self.num_candidates, self.num_facts, self.num_seeds = num_candidates, num_facts, num_seeds
        self.combination, self.passage_weight, self.passage_seeds = combination, passage_weight, passage_seeds
        self._resources = resources
        self._rerank: FactReranker | None = None
        if rerank == "cross_encoder":
            self._rerank = partial(rerank_by_pairs, resources.cross_encoder)
        elif rerank == "language_model":
            if language_model is None:
                raise ValueError("`language_model` must be given with `rerank: language_model`, got none")
            self._rerank = partial(select_by_language_model, remembering(language_model, cache), prompt)
        device = resources.graph.device
        index = build_fact_graph(
            resources.graph.all_texts,
            folder=folder,
            extractor=extractor,
            encoder=resources.index_encoder,
            synonymy_threshold=synonymy_threshold,
            max_synonyms=max_synonyms,
            device=device,
        )
        self._walk = CorpusPPR(index.graph.to(device), restart_prob=restart_prob)
        self._fact_texts, self._fact_vectors = index.facts.facts, index.fact_vectors.to(device)
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
            return with_reached(state, mass, budget=self._resources.budget, where=facts[:, :1] >= 0)

    def _choose(self, query_texts: Sequence[str], candidates: Ranking) -> tuple[Tensor, Tensor]:
        """Return the facts that weigh entities, ``[B, num_facts]``, with their similarities."""
        if self._rerank is None:
            return candidates.nodes[:, : self.num_facts], candidates.scores[:, : self.num_facts]
        texts = [[self._fact_texts[fact] for fact in row if fact >= 0] for row in candidates.nodes.tolist()]
        order = torch.full((len(candidates), self.num_facts), -1, dtype=torch.int64)
        for row, positions in enumerate(self._rerank(query_texts, texts)):
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


def rerank_by_pairs(
    encoder: PairEncoder, query_texts: Sequence[str], facts: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Order facts by a cross-encoder's logits, ties broken by position; all pairs are encoded in one call.

    Source: "EA-GraphRAG", 2026, Eq. (5), with a cross-encoder instead of the language model.
    """
    pairs = [(text, fact) for text, listed in zip(query_texts, facts, strict=True) for fact in listed]
    if not pairs:
        return [[] for _ in facts]
    vectors = encoder.encode([text for text, _ in pairs], [fact for _, fact in pairs])
    logits = iter(encoder.head(vectors).tolist())
    scores = [[next(logits) for _ in listed] for listed in facts]
    return [sorted(range(len(row)), key=lambda position: (-row[position], position)) for row in scores]


def select_by_language_model(
    model: ChatModel, prompt: Prompt, query_texts: Sequence[str], facts: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Let a language model select the relevant facts of each query that has some, perhaps none of them.

    Source: "EA-GraphRAG", 2026, Eq. (5), and HippoRAG 2's recognition memory. If an answer is not the requested
    JSON, all facts of its query are kept in order.
    """
    selected = [list(range(len(listed))) for listed in facts]
    rows = [row for row, listed in enumerate(facts) if listed]
    numbered = ["\n".join(f"{number}. {fact}" for number, fact in enumerate(facts[row], 1)) for row in rows]
    questions = [prompt.fill(question=query_texts[row], facts=text) for row, text in zip(rows, numbered, strict=True)]
    answers = in_form(model, prompt.form).ask(questions, system=prompt.instructions(), read=_read)
    for row, answer in zip(rows, answers, strict=True):
        if answer is not None and all(1 <= number <= len(facts[row]) for number in answer):
            selected[row] = [number - 1 for number in dict.fromkeys(answer)]
    return selected


def _read(content: str) -> list[int] | None:
    try:
        answer = json.loads(content)
    except (ValueError, TypeError, RecursionError):  # TypeError: the model's answer was null
        return None
    if not isinstance(answer, list) or not all(type(number) is int for number in answer):
        return None
    return answer


def find_facts(queries: Tensor, facts: Tensor, *, top_k: int = 5) -> Ranking:
    r"""Rank facts by their normalised similarity to each query.

    .. math:: s_i = \langle M(q), M(f_i) \rangle, \qquad \tilde s_i = \frac{s_i - \min s}{\max s - \min s}

    Source: "EA-GraphRAG", 2026, Eq. (4) and TopK of Eq. (5). The paper does not say how similarities are normalised; we
    follow HippoRAG 2, where equal similarities become 1. Facts without positive similarity are not retrieved.

    ``queries`` are ``[B, d]``, ``facts`` ``[F, d]``. Returns ``[B, top_k]`` fact indices and :math:`\tilde s` in [0,
    1], ties broken by index.

    Example:
        >>> find_facts(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.1], [0.9, 0.0], [0.1, 0.0]]), top_k=2).scores
        tensor([[1.0000, 0.5000]])
    """
    if not len(facts):
        return Ranking(*top_k_by_node_order(queries.new_zeros(len(queries), 0), top_k))
    similarity = queries @ facts.T
    nodes, scores = top_k_by_node_order(similarity.masked_fill(similarity <= 0, -torch.inf), top_k)
    lowest, highest = similarity.amin(1, keepdim=True), similarity.amax(1, keepdim=True)
    normalised = torch.where(highest > lowest, (scores - lowest) / (highest - lowest), 1.0)
    return Ranking(nodes, normalised.masked_fill(nodes < 0, -torch.inf))


def entity_seeds(
    facts: Tensor, scores: Tensor, ends: Tensor, num_holders: Tensor, *, top_k: int = 5, combination: str = "last"
) -> Ranking:
    r"""Weigh the entities of some facts, and keep those of largest weight.

    .. math:: w(n) = \tilde s_f / |\{c : (n, c) \in E\}|

    Source: "EA-GraphRAG", 2026, section 3.4.2 and Algorithm 1, lines 6 and 7: an entity of several facts has the weight
    of the last of them (``last``). HippoRAG 2 takes their mean.

    ``facts`` are ``[B, k]`` int64 indices in the order of the algorithm, padded with -1, ``scores`` ``[B, k]`` not
    negative, ``ends`` ``[F, 2]`` the head and tail of each fact, and ``num_holders`` ``[E]`` the number of passages
    that contain each entity; 0 counts as 1. Returns ``[B, top_k]`` entity indices and weights, ties broken by index.

    Example:
        >>> facts, ends = torch.tensor([[0, 1]]), torch.tensor([[0, 1], [1, 2]])
        >>> entity_seeds(facts, torch.tensor([[1.0, 0.5]]), ends, torch.tensor([4, 1, 1]), top_k=3)
        Ranking(nodes=tensor([[1, 2, 0]]), scores=tensor([[0.5000, 0.5000, 0.2500]]), features=None, base_nodes=None)
    """
    num_entities = max(1, len(num_holders))
    row, column = torch.nonzero(facts >= 0, as_tuple=True)  # by row, then in the order of the facts
    entity = ends[facts[row, column]]  # [n, 2]
    score = (scores[row, column].unsqueeze(1) / num_holders[entity].clamp(min=1)).flatten()
    key, inverse = torch.unique((row.unsqueeze(1) * num_entities + entity).flatten(), return_inverse=True)
    if combination == "last":
        position = torch.arange(len(score), device=score.device)
        last = torch.zeros_like(key).scatter_reduce_(0, inverse, position, "amax", include_self=False)
        weight = score[last]
    else:
        weight = score.new_zeros(len(key)).scatter_reduce_(0, inverse, score, combination, include_self=False)
    order = torch.argsort(weight, descending=True, stable=True)  # keys ascend: ties by index
    order = order[torch.argsort(key[order] // num_entities, stable=True)]
    owner, seed, weight = key[order] // num_entities, key[order] % num_entities, weight[order].float()
    is_top = positions_in_rows(owner) < top_k
    nodes = pad_rows(owner[is_top], seed[is_top], len(facts), fill=-1)
    return Ranking(nodes, pad_rows(owner[is_top], weight[is_top], len(facts), fill=-torch.inf)).padded(top_k)
