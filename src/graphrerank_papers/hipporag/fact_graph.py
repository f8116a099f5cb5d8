"""A corpus as a heterogeneous graph of passages and entities, with the facts that lead into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.checks import check_not_negative, check_positive_share
from graphrerank.graphs import CorpusGraph, Ranking, top_k_by_node_order
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank_papers.indexing import Stages
from graphrerank_papers.knowledge.corpus_knowledge import CorpusKnowledge, merge_knowledge

MIN_NAME_CHARACTERS = 3  # letters and digits of the name of an entity with synonyms
MAX_COSINES = 1 << 23  # held at once by the search for synonyms: 32 MiB of float32


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

    Raises:
        ValueError: If a setting is out of range, a model's output does not fit, or a file of the folder is damaged.
    """
    check_positive_share(synonymy_threshold=synonymy_threshold)
    check_not_negative(max_synonyms=max_synonyms)
    stages, num_passages = Stages(folder), len(passages)

    def merge() -> CorpusKnowledge:
        return merge_knowledge(extractor.extract(passages), passages=range(num_passages))

    facts_key = stages.key("corpus_knowledge", hash_texts(passages).hex(), extractor.fingerprint)
    facts = stages.get(facts_key, CorpusKnowledge, merge)

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
    if vectors.dim() != 2 or not torch.isfinite(vectors).all():
        raise ValueError(f"`vectors` must be a finite [E, d] matrix, got {list(vectors.shape)}")
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
