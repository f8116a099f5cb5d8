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

#: Minimum number of letters and digits in the name of an entity that may have synonyms.
MIN_NAME_CHARACTERS = 3
#: Maximum number of cosines in memory during the search for synonyms, which is 32 MiB of float32.
MAX_COSINES = 1 << 23

#: Functions that combine the weights that an entity gets from several facts.
COMBINATIONS: Mapping[str, Callable[[list[float]], float]] = {"last": itemgetter(-1), "mean": fmean, "sum": sum}

#: Function that takes the texts of queries and the facts of each query. It returns the distinct indices of the selected
#: facts of each query, most relevant first.
FactReranker = Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[int]]]


@dataclass(frozen=True)
class FactGraph:
    """Index of the facts of a corpus: a graph of passages and entities, and the vectors of the facts.

    Attributes:
        graph: Undirected graph of ``P`` passages followed by ``E`` entities with the ids ``entity:<normalised name>``.
        num_passages: Number of passages ``P``.
        facts: Entities and facts of the corpus. Entity ``e`` is node ``P + e``.
        fact_vectors: Vectors of the facts ``[F, d]`` float32.
    """

    graph: CorpusGraph
    num_passages: int
    facts: CorpusKnowledge
    fact_vectors: Tensor

    @cached_property
    def num_holders(self) -> Tensor:
        """Number of passages that contain each entity, ``[E]`` int64."""
        return torch.bincount(self.facts.entity_links[:, 0], minlength=len(self.facts.names))

    def between_entities(self) -> CorpusGraph:
        """Return the graph of the ``E`` entities alone, with the relation and synonymy edges."""
        graph, first = self.graph, self.num_passages
        origin = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
        mask = (origin >= first) & (graph.indices >= first) & (origin < graph.indices)
        edges = torch.stack([origin[mask], graph.indices[mask]], dim=1) - first
        ids, texts = graph.node_ids[first:], graph.texts[first:]
        return CorpusGraph.from_edges(ids, texts, edges, graph.weight[mask])


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
    """Build the index of the facts of a corpus, or read it from its folder, and print its size.

    An occurrence edge joins a passage and an entity and has weight 1. A relation edge joins two entities and is
    weighted by the number of facts that relate them. A synonymy edge joins two entities and is weighted by the cosine
    of their names (:func:`synonym_edges`). A pair of entities with both kinds of edge has the larger weight.

    Source: "EA-GraphRAG", 2026, section 3.1, after HippoRAG 2.

    *Differences from the paper:* in HippoRAG 2, a pair with both kinds of edge has the weight of the synonymy edge.

    Args:
        passages: ``P`` texts.
        folder: Folder of the index (:class:`Stages`).
        extractor: Extractor of entities and facts.
        encoder: Encoder of names and facts.
        synonymy_threshold: Minimum cosine of synonyms, in (0, 1].
        max_synonyms: Maximum number of synonyms that an entity chooses. 0 disables synonymy edges.
        device: Device of the search for synonyms.

    Returns:
        Index on the CPU.

    Raises:
        UserError: If an argument is outside its range, or the folder cannot be written.
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
    r"""Join each entity with the entities whose names are most similar.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`. The defaults and the maximum number of
    synonyms are HippoRAG 2's.

    Args:
        vectors: Vectors of the names ``[E, d]``.
        threshold: Minimum cosine.
        max_synonyms: Maximum number of entities that an entity chooses. Ties are broken by index. A pair is joined if
            either entity chooses the other.

    Returns:
        Distinct pairs ``[M, 2]`` int64, in ascending order with the smaller index first, and their cosines ``[M]``
        float32.

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
    # Both entities of a pair may have chosen each other.
    weight = unit.new_zeros(len(key)).scatter_reduce_(0, pair, torch.cat(cosines), "amax")
    return torch.stack([key // num_entities, key % num_entities], dim=1), weight


def with_reached(state: RetrievalState, mass: Tensor, *, budget: int, where: Tensor | None = None) -> RetrievalState:
    """Rank passages by their PageRank mass.

    Args:
        state: State whose ranking is replaced.
        mass: PageRank mass ``[B, P]``. Passages without mass are not ranked.
        budget: Maximum number of passages per query.
        where: Mask ``[B, 1]`` of the queries to replace. If None, the queries for which a passage has mass.

    Returns:
        State with the new ranking. The other queries keep theirs.
    """
    new = Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), budget))
    return replace_where(state, new, new.nodes[:, :1] >= 0 if where is None else where)


@dataclass(eq=False, repr=False)
class _FactGraphSearch(Step):
    """Step that searches a graph of passages, entities and facts. Its subclasses describe the fields."""

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    extractor: KnowledgeExtractor
    synonymy_threshold: float = 0.8
    max_synonyms: int = 100

    def fact_graph(self) -> FactGraph:
        """Return the graph of the corpus, building and storing it first if necessary."""
        return build_fact_graph(
            self.resources.graph.all_texts,
            folder=self.folder,
            extractor=self.extractor,
            encoder=self.resources.index_encoder,
            synonymy_threshold=self.synonymy_threshold,
            max_synonyms=self.max_synonyms,
            device=self.resources.graph.device,
        )


@dataclass(eq=False, repr=False)
class HippoRAGSearch(_FactGraphSearch):
    """Replace the ranking by a PageRank search from the entities of the query.

    1. Extract the entities of the query, and link each to the entity of the corpus with the most similar name.
    2. Weight these seeds by node specificity, :math:`s_i = 1 / |P_i|`, where :math:`P_i` are the passages of the
       entity.
    3. Run PageRank from the seeds over the graph of entities, with relation and synonymy edges.
    4. Score a passage by the total mass of its entities, :math:`p = n' P`.

    Passages without mass are not ranked. A query without entities keeps the ranking of the previous step, as in the
    paper's code, and so does a query whose entities reach no passage.

    Source: Gutiérrez et al., "HippoRAG: Neurobiologically Inspired Long-Term Memory for Large Language Models", 2024,
    sections 2.3 and 2.4.

    *Differences from the paper:* :math:`P` is binary and does not count how often a passage mentions an entity.

    Attributes:
        resources: Resources of the pipeline.
        folder: Folder of the index (:class:`Stages`).
        extractor: Extractor of the passages' entities and facts.
        query_extractor: Extractor of the query's entities.
        synonymy_threshold: Minimum cosine of synonyms, in (0, 1].
        max_synonyms: Maximum number of synonyms that an entity chooses.
        node_specificity: Whether seeds are weighted by node specificity. If False, all seeds have weight 1.
        restart_prob: Probability of returning to the seeds at each step of PageRank, in (0, 1].
    """

    _: KW_ONLY
    query_extractor: KnowledgeExtractor
    node_specificity: bool = True
    restart_prob: float = 0.5

    def __post_init__(self) -> None:
        device, self._encoder = self.resources.graph.device, self.resources.index_encoder
        index = self.fact_graph()
        self._names = Stages(self.folder).encode(self._encoder, index.facts.spellings).to(device)
        self._walk = CorpusPPR(index.between_entities().to(device), restart_prob=self.restart_prob)
        self._occurrences = index.facts.entity_links.to(device)
        holders = index.num_holders.clamp(min=1)
        self._weight = (1 / (holders if self.node_specificity else torch.ones_like(holders))).tolist()

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query.

        Args:
            state: State of the pipeline.

        Returns:
            State with the new ranking.
        """
        with self.resources.clock("retrieve"):
            seeds = padded_ranking(self._link(state)).to(self._names.device)
        with self.resources.clock("graph"):
            mass = self._walk.score(seeds.nodes, seeds.scores).T
            entity, passage = self._occurrences.unbind(1)
            scores = mass.new_zeros(self.resources.graph.num_nodes, len(seeds)).index_add_(0, passage, mass[entity]).T
            return with_reached(state, scores, budget=self.resources.budget)

    def _link(self, state: RetrievalState) -> list[dict[int, float]]:
        """Return the corpus entities linked to the entities of each query, with their weights."""
        knowledge = self.query_extractor.extract(state.queries.texts)
        names = [name for query in knowledge for name in query.names]
        if not names or not len(self._names):
            return [{} for _ in knowledge]
        nearest, _ = top_k_by_node_order(self._encoder.encode(names).to(self._names) @ self._names.T, 1)
        linked = iter(nearest.flatten().tolist())
        rows = [sorted(set(islice(linked, len(query.names)))) for query in knowledge]
        return [{entity: self._weight[entity] for entity in row} for row in rows]


@dataclass(eq=False, repr=False)
class FactGraphSearch(_FactGraphSearch):
    """Replace the ranking by a PageRank search from the facts that are most similar to the query.

    1. Retrieve the ``num_candidates`` facts most similar to the query (:func:`find_facts`), Eq. (4).
    2. Select ``num_facts`` of them, in the order of the reranker if there is one, Eq. (5).
    3. Select the ``num_seeds`` entities of largest weight (:func:`entity_seeds`).
    4. Rank passages by PageRank over passages and entities (:class:`CorpusPPR`), Eqs. (6) and (7).

    Passages without mass are not ranked. A query without facts, because none is similar or the language model rejected
    all, keeps the ranking of the previous step, which is dense search as in HippoRAG 2.

    Source: "EA-GraphRAG", 2026, section 3.4.2. HippoRAG 2 (Gutiérrez et al., "From RAG to Memory", 2025, section 3)
    differs from it in four ways: passages are seeds too (``passage_weight`` above 0), every passage is one
    (``passage_seeds: all``), an entity has the mean weight of its facts (``combination: mean``), and a language model
    may reject facts (``rerank: language_model``).

    Attributes:
        resources: Resources of the pipeline.
        folder: Folder of the index (:class:`Stages`).
        extractor: Extractor of the passages' entities and facts.
        synonymy_threshold: Minimum cosine of synonyms, in (0, 1].
        max_synonyms: Maximum number of synonyms that an entity chooses.
        num_candidates: Number of facts to retrieve. At least ``num_facts``.
        rerank: Reranker of the facts. One of ``none``, ``cross_encoder`` (that of the pipeline) and ``language_model``.
        language_model: Chat model that selects facts. Required by ``rerank: language_model``.
        prompt: Prompt of the chat model, with the placeholders ``{question}`` and ``{facts}``.
        cache: Folder of the cached answers of the chat model. If None, they are not stored.
        num_facts: Number of facts that weight entities.
        combination: Weight of an entity that occurs in several facts. One of ``last``, ``mean`` and ``sum``.
        num_seeds: Number of entities that are seeds.
        passage_weight: Weight of passages as seeds. It multiplies their scores, which are scaled to [0, 1]. 0 disables
            passage seeds.
        passage_seeds: Passages that are seeds. ``retrieved``, or ``all`` with their dot product with the query.
        restart_prob: Probability of returning to the seeds at each step of PageRank, which is 1 minus the paper's
            damping.
    """

    _: KW_ONLY
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
                raise UserError("`language_model` is required by `rerank: language_model`, got None")
            self._rerank = partial(select_by_language_model, remembering(self.language_model, self.cache), self.prompt)
        index, device = self.fact_graph(), self.resources.graph.device
        self._walk = CorpusPPR(index.graph.to(device), restart_prob=self.restart_prob)
        self._fact_texts, self._fact_vectors = index.facts.facts, index.fact_vectors.to(device)
        self._ends, self._num_holders = index.facts.ends.tolist(), index.num_holders.tolist()

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the facts of each query. Queries without facts keep their ranking.

        Args:
            state: State of the pipeline.

        Returns:
            State with the new ranking.
        """
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
        """Return the facts of each query that weight entities, at most ``num_facts``, with their similarities."""
        pairs = zip(candidates.nodes.tolist(), candidates.scores.tolist(), strict=True)
        rows = [[(fact, score) for fact, score in zip(*pair, strict=True) if fact >= 0] for pair in pairs]
        if self._rerank is not None:
            orders = self._rerank(query_texts, [[self._fact_texts[fact] for fact, _ in row] for row in rows])
            rows = [[row[position] for position in order] for row, order in zip(rows, orders, strict=True)]
        return [dict(row[: self.num_facts]) for row in rows]

    def _with_passages(self, state: RetrievalState, entities: Ranking) -> tuple[Tensor, Tensor]:
        """Return the nodes and weights ``[B, S]`` of the seeds, which are entities and, if enabled, passages."""
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


def rerank_by_pairs(
    encoder: PairEncoder, query_texts: Sequence[str], facts: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Order facts by the logits of a cross-encoder, which replaces the language model of Eq. (5).

    Args:
        encoder: Cross-encoder that scores the facts.
        query_texts: Texts of ``B`` queries.
        facts: Facts of each query.

    Returns:
        Indices of each query's facts, best first. Ties are broken by index.
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
    """Select the relevant facts of each query with a language model, which may reject all of them.

    If the answer for a query is not the requested JSON, all its facts are returned in order. Queries without facts are
    not sent.

    Source: "EA-GraphRAG", 2026, Eq. (5), and HippoRAG 2's recognition memory.

    Args:
        model: Chat model.
        prompt: Prompt with the placeholders ``{question}`` and ``{facts}``.
        query_texts: Texts of ``B`` queries.
        facts: Facts of each query.

    Returns:
        Distinct indices of the selected facts of each query, in the order of the answer.
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
    """Parse a selection of facts.

    Args:
        content: Answer of the language model.

    Returns:
        Numbers of the facts, or None if ``content`` is not a JSON list of integers.
    """
    try:
        return TypeAdapter(list[int]).validate_json(content, strict=True)
    except (ValueError, TypeError):  # TypeError: the model's answer was null
        return None


def find_facts(queries: Tensor, facts: Tensor, *, top_k: int = 5) -> Ranking:
    r"""Rank facts by their normalised similarity to queries.

    .. math:: s_i = \langle M(q), M(f_i) \rangle, \qquad \tilde s_i = \frac{s_i - \min s}{\max s - \min s}

    Source: "EA-GraphRAG", 2026, Eq. (4) and TopK of Eq. (5). The paper does not define the normalisation, so we follow
    HippoRAG 2, in which equal similarities become 1. Facts without positive similarity are not retrieved.

    Args:
        queries: Query vectors ``[B, d]``.
        facts: Vectors of the facts ``[F, d]``.
        top_k: Number of facts per query.

    Returns:
        Ranking ``[B, top_k]`` of facts. Ties are broken by index.

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
    r"""Weight the entities of a query's facts.

    .. math:: w(n) = \tilde s_f / |\{c : (n, c) \in E\}|

    Source: "EA-GraphRAG", 2026, section 3.4.2 and Algorithm 1, lines 6 and 7, where an entity of several facts has the
    weight from the last of them. HippoRAG 2 takes the mean.

    Args:
        facts: Score by fact, in the order of the algorithm.
        ends: Entities of each fact.
        num_holders: Number of passages that contain each entity. 0 is treated as 1.
        combination: Weight of an entity that occurs in several facts. One of ``last``, ``mean`` and ``sum``.

    Returns:
        Weight by entity, largest first. Ties are broken by index.

    Example:
        >>> entity_seeds({0: 1.0, 1: 0.5}, [[0, 1], [1, 2]], [4, 1, 1])
        {1: 0.5, 2: 0.5, 0: 0.25}
    """
    weights: dict[int, list[float]] = {}
    for fact, score in facts.items():
        for entity in ends[fact]:
            weights.setdefault(entity, []).append(score / max(1, num_holders[entity]))
    weight = {entity: COMBINATIONS[combination](scores) for entity, scores in weights.items()}
    return dict(sorted(weight.items(), key=lambda entry: (-entry[1], entry[0])))
