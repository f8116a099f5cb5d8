"""HippoRAG and HippoRAG 2: PageRank over a graph of passages and entities, from the query's entities or facts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.checks import UserError, check_choice, check_counts, check_not_negative, check_positive_share
from graphrerank.graphs import CorpusGraph, PairEncoder, Ranking, top_k_by_node_order
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.graphs.sparse_rows import pad_rows, positions_in_rows
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.operators.ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing import Stages
from graphrerank_papers.knowledge.corpus_knowledge import CorpusKnowledge, merge_knowledge

MIN_NAME_CHARACTERS = 3  # letters and digits of the name of an entity with synonyms
MAX_COSINES = 1 << 23  # held at once by the search for synonyms: 32 MiB of float32

# selects from the facts of each of `B` queries: unique positions in its list, most relevant first
FactReranker = Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[int]]]


@dataclass(frozen=True)
class FactGraph:
    """The index of the graph path."""

    graph: CorpusGraph  # undirected; `P` passages, then `E` entities with ids `entity:<normalised name>`
    num_passages: int  # `P`
    facts: CorpusKnowledge  # entities and facts; entity `e` is node `P + e`
    fact_vectors: Tensor  # `[F, d]` float32
    num_synonyms: int  # number of synonymy edges, each pair counted once

    @cached_property
    def num_holders(self) -> Tensor:
        """``[E]`` int64, number of passages that contain each entity."""
        return torch.bincount(self.facts.entity_links[:, 0], minlength=len(self.facts.names))

    def between_entities(self) -> CorpusGraph:
        """Return the graph of the ``E`` entities alone: relation and synonymy edges."""
        graph, first = self.graph, self.num_passages
        origin = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
        kept = (origin >= first) & (graph.indices >= first) & (origin < graph.indices)
        edges = torch.stack([origin[kept], graph.indices[kept]], dim=1) - first
        ids, texts = graph.node_ids[first:], graph.texts[first:]
        return CorpusGraph.from_edges(ids, texts, edges, graph.weight[kept])


def build_fact_graph(
    passages: Sequence[str],
    *,
    folder: str | Path,
    extractor: KnowledgeExtractor,
    encoder: IndexEncoder,
    synonymy_threshold: float = 0.8,
    max_synonyms: int = 100,
    device: str | torch.device = "cpu",
) -> FactGraph:
    """Build the index of ``P`` passages, or read it from the folder (:class:`Stages`), and print its size.

    An occurrence edge has weight 1, a relation edge the number of statements that join its ends, a synonymy edge the
    cosine of two names, which have 3 letters and digits or more (:func:`synonym_edges`, on ``device``). A pair that is
    both related and synonymous takes the larger weight. Queries need the same encoder.

    Source: "EA-GraphRAG", 2026, section 3.1, after HippoRAG 2, except that there the cosine of a pair of both kinds
    wins. When a corpus grows, an ``extractor`` and an ``encoder`` with a cache (``KnowledgeCache``, ``VectorCache``)
    process the new texts only.
    """
    check_positive_share(synonymy_threshold=synonymy_threshold)
    check_not_negative(max_synonyms=max_synonyms)
    stages, num_passages = Stages(folder), len(passages)
    facts_key = stages.key("corpus_knowledge", hash_texts(passages).hex(), extractor.fingerprint)
    numbers = range(num_passages)
    facts = stages.get(
        facts_key, CorpusKnowledge, lambda: merge_knowledge(extractor.extract(passages), passages=numbers)
    )

    def find_synonyms() -> tuple[Tensor, Tensor]:
        is_long = [sum(map(str.isalnum, name)) >= MIN_NAME_CHARACTERS for name in facts.names]
        entities = torch.tensor(is_long, dtype=torch.bool).nonzero().flatten()
        spellings = [facts.spellings[entity] for entity in entities.tolist()]
        vectors = stages.encode(encoder, spellings).to(device)
        pairs, cosine = synonym_edges(vectors, threshold=synonymy_threshold, max_synonyms=max_synonyms)
        return entities[pairs.cpu()], cosine.cpu()

    key = stages.key("synonyms", facts_key, encoder.fingerprint, synonymy_threshold, max_synonyms)
    pairs, cosine = stages.get(key, tuple[Tensor, Tensor], find_synonyms)
    occurrences = facts.entity_links.flip(1) + torch.tensor([0, num_passages])
    edges = torch.cat([occurrences, facts.related + num_passages, pairs + num_passages])
    weight = torch.cat([torch.ones(len(occurrences)), facts.num_statements.float(), cosine.float()])
    ids = [*(f"passage:{passage}" for passage in range(num_passages)), *(f"entity:{name}" for name in facts.names)]
    graph = CorpusGraph.from_edges(ids, [*passages, *facts.spellings], edges, weight)
    without_entity = num_passages - len(torch.unique(facts.entity_links[:, 1]))
    print(
        f"fact graph: {num_passages:,} passages ({without_entity:,} without an entity), {len(facts.names):,} entities, "
        f"{len(facts.facts):,} facts; edges: {len(occurrences):,} occurrence, {len(facts.related):,} relation, "
        f"{len(pairs):,} synonymy",
        flush=True,
    )
    return FactGraph(graph, num_passages, facts, stages.encode(encoder, facts.facts), len(pairs))


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each entity with its nearest entities of cosine ``threshold`` or above.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults and the limit are
    HippoRAG 2's. The search is exact, in blocks of rows: quadratic in time, linear in memory.

    ``vectors`` are ``[E, d]``; a zero vector has no synonyms. An entity chooses at most ``max_synonyms``, ties broken
    by index; either end may choose a pair. Returns ``[M, 2]`` int64, unique pairs, the smaller index first, ascending,
    and their ``[M]`` float32 cosines.

    Example:
        >>> synonym_edges(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]]), threshold=0.7)
        (tensor([[0, 1]]), tensor([0.8000]))
    """
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    num_entities = max(1, len(unit))
    block = max(1, MAX_COSINES // num_entities)
    keys, cosines = [torch.zeros(0, dtype=torch.int64, device=unit.device)], [unit.new_zeros(0)]
    for start in range(0, len(unit) if max_synonyms else 0, block):
        cosine = unit[start : start + block] @ unit.T
        cosine.diagonal(start).fill_(-torch.inf)
        nearest, similarity = top_k_by_node_order(cosine.masked_fill_(cosine < threshold, -torch.inf), max_synonyms)
        row, rank = torch.nonzero(nearest >= 0, as_tuple=True)
        one, other = row + start, nearest[row, rank]
        keys.append(torch.minimum(one, other) * num_entities + torch.maximum(one, other))
        cosines.append(similarity[row, rank])
    key, pair = torch.unique(torch.cat(keys), return_inverse=True)
    weight = unit.new_zeros(len(key)).scatter_reduce_(0, pair, torch.cat(cosines), "amax")  # chosen by one end or both
    return torch.stack([key // num_entities, key % num_entities], dim=1), weight


def with_reached(state: RetrievalState, mass: Tensor, *, budget: int, where: Tensor | None = None) -> RetrievalState:
    """Rank the passages that PageRank reached by their mass ``[B, P]``; queries without any keep their ranking.

    ``where`` is ``[B, 1]`` bool, the queries whose ranking is replaced; None: those with a passage that was reached.
    """
    new = Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), budget))
    where = new.nodes[:, :1] >= 0 if where is None else where
    width = max(new.nodes.shape[1], state.nodes.shape[1])
    new, old = new.padded(width), state.ranking.padded(width)
    return state.with_ranking(torch.where(where, new.nodes, old.nodes), torch.where(where, new.scores, old.scores))


class HippoRAGSearch:
    r"""Replace the retrieved passages by those whose entities PageRank reaches from the query's entities.

    1. Extract the entities of the query, and link each to the entity of the corpus with the most similar name.
    2. Weigh these seeds by node specificity, :math:`s_i = 1 / |P_i|`, with :math:`P_i` the passages of an entity.
    3. Spread them by PageRank over the entities' graph of relations and synonyms.
    4. Score a passage by the sum over its entities' mass, :math:`p = n' P`.

    Source: Gutiérrez et al., "HippoRAG: Neurobiologically Inspired Long-Term Memory for Large Language Models", 2024,
    sections 2.3 and 2.4. *Where we differ:* :math:`P` holds whether a passage has an entity, not how often. A query
    without entities keeps what was retrieved before, as in the paper's code, and so does one whose entities reach no
    passage. Passages without mass are not ranked.

    ``node_specificity``: whether seeds are weighted; else all weigh 1. The index of facts is that of
    :class:`FactGraphSearch`, whose other settings it shares.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        query_extractor: KnowledgeExtractor,
        synonymy_threshold: float = 0.8,
        max_synonyms: int = 100,
        node_specificity: bool = True,
        restart_prob: float = 0.5,
    ) -> None:
        self._resources = resources
        self._encoder = resources.index_encoder
        self._query_extractor = query_extractor
        device = resources.graph.device
        index = build_fact_graph(
            resources.graph.all_texts,
            folder=folder,
            extractor=extractor,
            encoder=self._encoder,
            synonymy_threshold=synonymy_threshold,
            max_synonyms=max_synonyms,
            device=device,
        )
        self._names = Stages(folder).encode(self._encoder, index.facts.spellings).to(device)
        self._walk = CorpusPPR(index.between_entities().to(device), restart_prob=restart_prob)
        self._occurrences = index.facts.entity_links.to(device)
        weight = 1 / index.num_holders.clamp(min=1) if node_specificity else torch.ones(len(index.num_holders))
        self._weight = torch.cat([weight, torch.zeros(1)]).to(device)  # the last is that of padding, -1

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query."""
        with self._resources.clock("retrieve"):
            seeds = self._link(state)
        with self._resources.clock("graph"):
            mass = self._walk.score(seeds, self._weight[seeds]).T
            entity, passage = self._occurrences.unbind(1)
            scores = mass.new_zeros(self._resources.graph.num_nodes, len(seeds)).index_add_(0, passage, mass[entity]).T
            return with_reached(state, scores, budget=self._resources.budget)

    def _link(self, state: RetrievalState) -> Tensor:
        """Return the corpus's entities that the queries' entities are linked to: ``[B, S]`` int64, padded with -1."""
        knowledge = self._query_extractor.extract(state.queries.texts)
        device = self._names.device
        pairs = [(row, name) for row, query in enumerate(knowledge) for name in query.names]
        links = torch.zeros(0, 2, dtype=torch.int64, device=device)
        if pairs and len(self._names):
            rows, names = zip(*pairs, strict=True)
            nearest, _ = top_k_by_node_order(self._encoder.encode(list(names)).to(self._names) @ self._names.T, 1)
            links = torch.unique(torch.cat([torch.tensor(rows, device=device).unsqueeze(1), nearest], dim=1), dim=0)
        return pad_rows(links[:, 0], links[:, 1], len(state.queries), fill=-1)


class FactGraphSearch:
    r"""Replace the retrieved passages by those that PageRank reaches from the query's facts.

    1. Retrieve the ``num_candidates`` facts most similar to the query (:func:`find_facts`), Eq. (4).
    2. Keep ``num_facts`` of them, in the order of the reranker if there is one, Eq. (5).
    3. Keep the ``num_seeds`` entities of largest weight (:func:`entity_seeds`).
    4. Rank passages by PageRank over passages and entities (:class:`CorpusPPR`), Eqs. (6) and (7).

    A query without facts, of which none is similar or the language model rejected all, keeps what was retrieved before:
    dense search, as in HippoRAG 2. Passages that receive no mass are not ranked.

    Source: "EA-GraphRAG", 2026, section 3.4.2. With ``passage_weight`` passages are seeds too, as in HippoRAG 2
    (Gutiérrez et al., "From RAG to Memory", 2025, section 3): by their scores, scaled to [0, 1], times that weight. Its
    seeds differ from EA-GraphRAG's in three ways: every passage is one (``passage_seeds: all``, by its dot product with
    the query), an entity takes the mean of its facts (``combination: mean``), and a language model may reject facts.

    ``rerank`` is ``none``, ``cross_encoder`` (the pipeline's) or ``language_model``, whose ``prompt`` has the
    placeholders ``{question}`` and ``{facts}``; ``combination`` is the weight of an entity of several facts: ``last``,
    ``mean`` or ``sum``; ``passage_seeds`` are the ``retrieved`` passages or ``all``; ``restart_prob`` is 1 - the
    paper's damping.
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
            raise UserError(f"`num_candidates` must be at least `num_facts` ({num_facts}), got {num_candidates}")
        check_choice(("last", "mean", "sum"), combination=combination)
        check_choice(("retrieved", "all"), passage_seeds=passage_seeds)
        check_choice(("none", "cross_encoder", "language_model"), rerank=rerank)
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
                raise UserError("`language_model` must be given with `rerank: language_model`, got none")
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
        nodes, scores = candidates.nodes[:, : self.num_facts], candidates.scores[:, : self.num_facts]
        if self._rerank is None:
            return nodes, scores
        texts = [[self._fact_texts[fact] for fact in row if fact >= 0] for row in candidates.nodes.tolist()]
        nodes, scores = torch.full_like(nodes, -1), torch.full_like(scores, -torch.inf)
        for row, positions in enumerate(self._rerank(query_texts, texts)):
            chosen = positions[: self.num_facts]
            nodes[row, : len(chosen)] = candidates.nodes[row, chosen]
            scores[row, : len(chosen)] = candidates.scores[row, chosen]
        return nodes, scores

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
    logits = encoder.head(encoder.encode(*map(list, zip(*pairs, strict=True))))
    by_query = torch.split(logits, [len(listed) for listed in facts])
    return [torch.argsort(row, descending=True, stable=True).tolist() for row in by_query]


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
    answers = in_form(model, prompt.form).ask(questions, system=prompt.instructions(), read=read_selection)
    for row, answer in zip(rows, answers, strict=True):
        if answer is not None and all(1 <= number <= len(facts[row]) for number in answer):
            selected[row] = [number - 1 for number in dict.fromkeys(answer)]
    return selected


def read_selection(content: str) -> list[int] | None:
    """Parse an answer, strictly: a list of numbers; None for any other."""
    try:
        return TypeAdapter(list[int]).validate_json(content, strict=True)
    except (ValueError, TypeError):  # TypeError: the model's answer was null
        return None


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
