"""HippoRAG and HippoRAG 2: PageRank over a graph of passages and entities, from the query's entities or facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from statistics import fmean

import torch
from pydantic import TypeAdapter
from torch import Tensor

from graphrerank.core import PairEncoder, Ranking, top_k_by_node_order
from graphrerank.core.queries import IndexEncoder
from graphrerank.corpus import CorpusGraph
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.operators.ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative, check_positive_share
from graphrerank_papers.indexing import Stages, padded_ranking, replace_where
from graphrerank_papers.knowledge.corpus_knowledge import CorpusKnowledge, merge_knowledge

MIN_NAME_CHARACTERS = 3  # letters and digits of the name of an entity with synonyms
MAX_COSINES = 1 << 23  # held at once by the search for synonyms: 32 MiB of float32

COMBINATIONS: Mapping[str, Callable[[list[float]], float]] = {"last": itemgetter(-1), "mean": fmean, "sum": sum}

# selects from the facts of each of `B` queries: unique positions in its list, most relevant first
FactReranker = Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[int]]]


@dataclass(frozen=True)
class FactGraph:
    """The index of the graph path."""

    graph: CorpusGraph  # undirected; `P` passages, then `E` entities with ids `entity:<normalised name>`
    num_passages: int  # `P`
    facts: CorpusKnowledge  # entities and facts; entity `e` is node `P + e`
    fact_vectors: Tensor  # `[F, d]` float32

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
    cosine of two names (:func:`synonym_edges`, on ``device``). A pair of both kinds takes the larger weight.

    Source: "EA-GraphRAG", 2026, section 3.1, after HippoRAG 2, except that there the cosine of a pair of both kinds
    wins.
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
    return FactGraph(graph, num_passages, facts, stages.encode(encoder, facts.facts))


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each of ``[E, d]`` vectors with its nearest ones of cosine ``threshold`` or above.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults and the limit are
    HippoRAG 2's. An entity chooses at most ``max_synonyms``, ties broken by index; either end may choose a pair.
    Returns ``[M, 2]`` int64, unique pairs, the smaller index first, ascending, and their ``[M]`` float32 cosines.

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
    """Rank the passages that PageRank reached by their mass ``[B, P]``, ``where`` ``[B, 1]``, or else if it did."""
    new = Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), budget))
    return replace_where(state, new, new.nodes[:, :1] >= 0 if where is None else where)


@dataclass(eq=False, repr=False)
class HippoRAGSearch(Step):
    r"""Replace the retrieved passages by those whose entities PageRank reaches from the query's entities.

    1. Extract the entities of the query, and link each to the entity of the corpus with the most similar name.
    2. Weigh these seeds by node specificity, :math:`s_i = 1 / |P_i|`, with :math:`P_i` the passages of an entity.
    3. Spread them by PageRank over the entities' graph of relations and synonyms.
    4. Score a passage by the sum over its entities' mass, :math:`p = n' P`.

    Source: Gutiérrez et al., "HippoRAG: Neurobiologically Inspired Long-Term Memory for Large Language Models", 2024,
    sections 2.3 and 2.4. *Where we differ:* :math:`P` holds whether a passage has an entity, not how often. A query
    without entities keeps what was retrieved before, as in the paper's code, and so does one whose entities reach no
    passage. Passages without mass are not ranked.

    Without ``node_specificity`` all seeds weigh 1.
    """

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    query_extractor: KnowledgeExtractor
    synonymy_threshold: float = 0.8
    max_synonyms: int = 100
    node_specificity: bool = True
    restart_prob: float = 0.5

    def __post_init__(self) -> None:
        device, self._encoder = self.resources.graph.device, self.resources.index_encoder
        index = _fact_graph(self)
        self._names = Stages(self.folder).encode(self._encoder, index.facts.spellings).to(device)
        self._walk = CorpusPPR(index.between_entities().to(device), restart_prob=self.restart_prob)
        self._occurrences = index.facts.entity_links.to(device)
        holders = index.num_holders.clamp(min=1)
        self._weight = (1 / (holders if self.node_specificity else torch.ones_like(holders))).tolist()

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query."""
        with self.resources.clock("retrieve"):
            seeds = padded_ranking(self._link(state)).to(self._names.device)
        with self.resources.clock("graph"):
            mass = self._walk.score(seeds.nodes, seeds.scores).T
            entity, passage = self._occurrences.unbind(1)
            scores = mass.new_zeros(self.resources.graph.num_nodes, len(seeds)).index_add_(0, passage, mass[entity]).T
            return with_reached(state, scores, budget=self.resources.budget)

    def _link(self, state: RetrievalState) -> list[dict[int, float]]:
        """Return the corpus's entities that the entities of each query are linked to, with their weights."""
        knowledge = self.query_extractor.extract(state.queries.texts)
        names = [name for query in knowledge for name in query.names]
        if not names or not len(self._names):
            return [{} for _ in knowledge]
        nearest, _ = top_k_by_node_order(self._encoder.encode(names).to(self._names) @ self._names.T, 1)
        linked = iter(nearest.flatten().tolist())
        rows = [sorted(set(islice(linked, len(query.names)))) for query in knowledge]
        return [{entity: self._weight[entity] for entity in row} for row in rows]


@dataclass(eq=False, repr=False)
class FactGraphSearch(Step):
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

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    synonymy_threshold: float = 0.8
    max_synonyms: int = 100
    num_candidates: int = 5
    rerank: str = "none"
    language_model: ChatModel | None = None
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "ea_graphrag_facts"))
    cache: str | Path | None = None
    num_facts: int = 5
    combination: str = "last"
    num_seeds: int = 5
    passage_weight: float = 0.0
    passage_seeds: str = "retrieved"
    restart_prob: float = 0.5

    def __post_init__(self) -> None:
        check_counts(num_facts=self.num_facts, num_seeds=self.num_seeds)
        if self.num_candidates < self.num_facts:
            raise UserError(
                f"`num_candidates` must be at least `num_facts` ({self.num_facts}), got {self.num_candidates}"
            )
        check_choice(COMBINATIONS, combination=self.combination)
        check_choice(("retrieved", "all"), passage_seeds=self.passage_seeds)
        check_choice(("none", "cross_encoder", "language_model"), rerank=self.rerank)
        check_not_negative(passage_weight=self.passage_weight)
        self.prompt.fill(question="", facts="")
        self._rerank: FactReranker | None = None
        if self.rerank == "cross_encoder":
            self._rerank = partial(rerank_by_pairs, self.resources.cross_encoder)
        elif self.rerank == "language_model":
            if self.language_model is None:
                raise UserError("`language_model` must be given with `rerank: language_model`, got none")
            self._rerank = partial(select_by_language_model, remembering(self.language_model, self.cache), self.prompt)
        index, device = _fact_graph(self), self.resources.graph.device
        self._walk = CorpusPPR(index.graph.to(device), restart_prob=self.restart_prob)
        self._fact_texts, self._fact_vectors = index.facts.facts, index.fact_vectors.to(device)
        self._ends, self._num_holders = index.facts.ends.tolist(), index.num_holders.tolist()

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the facts of each query; queries without facts keep their ranking."""
        clock, graph = self.resources.clock, self.resources.graph
        with clock("retrieve"):
            vectors = state.queries.encoded.to(self._fact_vectors)
            candidates = find_facts(vectors, self._fact_vectors, top_k=self.num_candidates)
        with clock("rerank"):
            facts = self._choose(state.queries.texts, candidates)
        with clock("graph"):
            entities = [entity_seeds(row, self._ends, self._num_holders, self.combination) for row in facts]
            rows = [{graph.num_nodes + e: row[e] for e in [*row][: self.num_seeds]} for row in entities]
            seeds, weight = self._with_passages(state, padded_ranking(rows).to(graph.device))
            mass = self._walk.score(seeds, weight)[:, : graph.num_nodes]
            where = torch.tensor([bool(row) for row in facts], device=graph.device, dtype=torch.bool).unsqueeze(1)
            return with_reached(state, mass, budget=self.resources.budget, where=where)

    def _choose(self, query_texts: Sequence[str], candidates: Ranking) -> list[dict[int, float]]:
        """Return the facts of each query that weigh entities, at most ``num_facts``, with their similarities."""
        pairs = zip(candidates.nodes.tolist(), candidates.scores.tolist(), strict=True)
        rows = [[(fact, score) for fact, score in zip(*pair, strict=True) if fact >= 0] for pair in pairs]
        if self._rerank is not None:
            orders = self._rerank(query_texts, [[self._fact_texts[fact] for fact, _ in row] for row in rows])
            rows = [[row[position] for position in order] for row, order in zip(rows, orders, strict=True)]
        return [dict(row[: self.num_facts]) for row in rows]

    def _with_passages(self, state: RetrievalState, entities: Ranking) -> tuple[Tensor, Tensor]:
        """Join entities and passages as seeds: ``[B, S]`` nodes and weights."""
        passages, scores = state.nodes, state.scores
        if self.passage_weight and self.passage_seeds == "all":
            embedding = self.resources.graph.encoded
            scores = state.queries.encoded.to(embedding) @ embedding.T
            passages = torch.arange(len(embedding), device=scores.device).expand(len(scores), -1)
        if not self.passage_weight or not passages.shape[1]:
            return entities.nodes, entities.scores
        valid = passages >= 0
        lowest = scores.masked_fill(~valid, torch.inf).amin(1, keepdim=True)
        highest = scores.masked_fill(~valid, -torch.inf).amax(1, keepdim=True)
        scaled = torch.where(highest > lowest, (scores - lowest) / (highest - lowest), 1.0)
        weight = (self.passage_weight * scaled).masked_fill(~valid, -torch.inf)
        return torch.cat([entities.nodes, passages], dim=1), torch.cat([entities.scores, weight], dim=1)


def _fact_graph(step: HippoRAGSearch | FactGraphSearch) -> FactGraph:
    return build_fact_graph(
        step.resources.graph.all_texts,
        folder=step.folder,
        extractor=step.extractor,
        encoder=step.resources.index_encoder,
        synonymy_threshold=step.synonymy_threshold,
        max_synonyms=step.max_synonyms,
        device=step.resources.graph.device,
    )


def rerank_by_pairs(
    encoder: PairEncoder, query_texts: Sequence[str], facts: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Order facts by a cross-encoder's logits, in the place of Eq. (5)'s language model; ties by position."""
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
    r"""Rank facts ``[F, d]`` by their normalised similarity to queries ``[B, d]``: ``[B, top_k]``, ties by index.

    .. math:: s_i = \langle M(q), M(f_i) \rangle, \qquad \tilde s_i = \frac{s_i - \min s}{\max s - \min s}

    Source: "EA-GraphRAG", 2026, Eq. (4) and TopK of Eq. (5). The paper does not say how similarities are normalised; we
    follow HippoRAG 2, where equal similarities become 1. Facts without positive similarity are not retrieved.

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
    facts: Mapping[int, float],
    ends: Sequence[Sequence[int]],
    num_holders: Sequence[int],
    combination: str = "last",
) -> dict[int, float]:
    r"""Weigh the entities of some facts; the largest weights come first, ties are broken by index.

    .. math:: w(n) = \tilde s_f / |\{c : (n, c) \in E\}|

    Source: "EA-GraphRAG", 2026, section 3.4.2 and Algorithm 1, lines 6 and 7: an entity of several facts has the weight
    of the last of them (``last``). HippoRAG 2 takes their mean.

    ``facts`` are scores by fact in the order of the algorithm; 0 of ``num_holders``, passages by entity, counts as 1.

    Example:
        >>> entity_seeds({0: 1.0, 1: 0.5}, [[0, 1], [1, 2]], [4, 1, 1])
        {1: 0.5, 2: 0.5, 0: 0.25}
    """
    given: dict[int, list[float]] = {}
    for fact, score in facts.items():
        for entity in ends[fact]:
            given.setdefault(entity, []).append(score / max(1, num_holders[entity]))
    weight = {entity: COMBINATIONS[combination](scores) for entity, scores in given.items()}
    return dict(sorted(weight.items(), key=lambda entry: (-entry[1], entry[0])))
