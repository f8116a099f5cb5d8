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
from graphrerank.pipelines.step import Resources
from graphrerank_papers.hipporag.facts import Facts, merge_knowledge
from graphrerank_papers.indexing.stages import Stages

MAX_COSINES = 1 << 23  # held at once by the search for synonyms: 32 MiB of float32


@dataclass(frozen=True)
class FactGraphSettings:
    """Settings of a fact graph."""

    synonymy_threshold: float = 0.8  # minimum cosine, in (0, 1], of two entities joined as synonyms
    max_synonyms: int = 100  # maximum number of synonyms of an entity; 0: no synonymy edges
    min_name_characters: int = 3  # minimum number of letters and digits in the name of an entity with synonyms

    def __post_init__(self) -> None:
        check_positive_share(synonymy_threshold=self.synonymy_threshold)
        check_not_negative(max_synonyms=self.max_synonyms, min_name_characters=self.min_name_characters)


@dataclass(frozen=True)
class FactGraph:
    """The index of the graph path."""

    graph: CorpusGraph  # undirected; `P` passages, then `E` entities with ids `entity:<normalised name>`
    num_passages: int  # `P`
    facts: Facts  # entities and facts; entity `e` is node `P + e`
    fact_vectors: Tensor  # `[F, d]` float32
    num_synonyms: int  # number of synonymy edges, each pair counted once

    @cached_property
    def num_holders(self) -> Tensor:
        """``[E]`` int64, number of passages that contain each entity."""
        return torch.bincount(self.facts.occurrences[:, 1], minlength=len(self.facts.names))

    def between_entities(self) -> CorpusGraph:
        """Return the graph of the ``E`` entities alone: relation and synonymy edges."""
        graph, first = self.graph, self.num_passages
        origin = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
        kept = (origin >= first) & (graph.indices >= first) & (origin < graph.indices)
        edges = torch.stack([origin[kept], graph.indices[kept]], dim=1) - first
        ids, texts = graph.node_ids[first:], graph.texts[first:]
        return CorpusGraph.from_edges(ids, texts, edges, graph.weight[kept])

    def report(self) -> str:
        """Return one line with the numbers of nodes, facts and edges."""
        without_entity = self.num_passages - len(torch.unique(self.facts.occurrences[:, 0]))
        return (
            f"fact graph: {self.num_passages:,} passages ({without_entity:,} without an entity), "
            f"{len(self.facts.names):,} entities, {len(self.facts.texts):,} facts; edges: "
            f"{len(self.facts.occurrences):,} occurrence, {len(self.facts.related):,} relation, "
            f"{self.num_synonyms:,} synonymy"
        )


def build_fact_graph(
    passages: Sequence[str],
    *,
    folder: str | Path,
    extractor: KnowledgeExtractor,
    encoder: IndexEncoder,
    settings: FactGraphSettings | None = None,
    device: str | torch.device = "cpu",
) -> FactGraph:
    """Build the index of a corpus stage by stage, reading finished stages from the folder (:class:`Stages`).

    An occurrence edge has weight 1, a relation edge the number of statements that join its ends, a synonymy edge the
    cosine. A pair that is both related and synonymous takes the larger weight.

    Source: "EA-GraphRAG", 2026, section 3.1, after HippoRAG 2, except that there the cosine of a pair of both kinds
    wins. When a corpus grows, an ``extractor`` and an ``encoder`` with a cache (``KnowledgeCache``, ``VectorCache``)
    process the new texts only.

    Args:
        passages: ``P`` texts.
        folder: Folder of indexes.
        extractor: Extractor of entities and relations.
        encoder: Encoder of entities and facts; queries need the same one.
        settings: Settings of the index; None for the defaults.
        device: Device of the search for synonyms.

    Raises:
        ValueError: If a model's output does not fit, or a file of the folder is damaged.
    """
    stages, settings = Stages(folder), settings or FactGraphSettings()

    def extract() -> Facts:
        knowledge = extractor.extract(passages)
        if len(knowledge) != len(passages):
            raise ValueError(f"`extractor` must return one entry per passage ({len(passages)}), got {len(knowledge)}")
        return merge_knowledge(knowledge)

    facts_key = stages.key("facts", hash_texts(passages).hex(), extractor.fingerprint)
    facts = stages.get(facts_key, Facts, extract)

    def find_synonyms() -> tuple[Tensor, Tensor]:
        is_long = [sum(map(str.isalnum, name)) >= settings.min_name_characters for name in facts.names]
        entities = torch.tensor(is_long, dtype=torch.bool).nonzero().flatten()
        spellings = [facts.spellings[entity] for entity in entities.tolist()]
        pairs, cosine = synonym_edges(
            stages.encode(encoder, spellings).to(device),
            threshold=settings.synonymy_threshold,
            max_synonyms=settings.max_synonyms,
        )
        return entities[pairs.cpu()], cosine.cpu()

    key = stages.key("synonyms", facts_key, encoder.fingerprint, settings)
    pairs, cosine = stages.get(key, tuple[Tensor, Tensor], find_synonyms)
    num_passages = len(passages)
    to_entity = torch.tensor([0, num_passages])
    edges = torch.cat([facts.occurrences + to_entity, facts.related + num_passages, pairs + num_passages])
    weight = torch.cat([torch.ones(len(facts.occurrences)), facts.num_statements.float(), cosine.float()])
    ids = [*(f"passage:{passage}" for passage in range(num_passages)), *(f"entity:{name}" for name in facts.names)]
    graph = CorpusGraph.from_edges(ids, [*passages, *facts.spellings], edges, weight)
    return FactGraph(graph, num_passages, facts, stages.encode(encoder, facts.texts), len(pairs))


def read_fact_graph(
    resources: Resources,
    folder: str | Path,
    extractor: KnowledgeExtractor,
    *,
    synonymy_threshold: float,
    max_synonyms: int,
) -> FactGraph:
    """Build the index of a pipeline's corpus, or read it from the folder, and print its report."""
    index = build_fact_graph(
        resources.graph.all_texts,
        folder=folder,
        extractor=extractor,
        encoder=resources.index_encoder,
        settings=FactGraphSettings(synonymy_threshold=synonymy_threshold, max_synonyms=max_synonyms),
        device=resources.graph.device,
    )
    print(index.report(), flush=True)
    return index


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each entity with its nearest entities of cosine ``threshold`` or above.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults and the limit are
    HippoRAG 2's. The search is exact, in blocks of rows: quadratic in time, linear in memory.

    Args:
        vectors: ``[E, d]``; a zero vector has no synonyms.
        threshold: :math:`\tau` in (0, 1].
        max_synonyms: Maximum that an entity chooses, ties broken by index; either end may choose a pair.

    Returns:
        ``[M, 2]`` int64, unique pairs, the smaller index first, ascending; ``[M]`` float32 cosines.

    Example:
        >>> synonym_edges(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]]), threshold=0.7)
        (tensor([[0, 1]]), tensor([0.8000]))
    """
    check_positive_share(threshold=threshold)
    check_not_negative(max_synonyms=max_synonyms)
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
