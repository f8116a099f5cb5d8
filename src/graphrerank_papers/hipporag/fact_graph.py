"""A corpus as a heterogeneous graph of passages and entities, with the facts that lead into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.checks import check_not_negative, check_positive_share
from graphrerank.graphs import CorpusGraph
from graphrerank_papers.hipporag.facts import Facts


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


def join_nodes(passages: Sequence[str], facts: Facts, synonyms: Tensor, cosine: Tensor) -> CorpusGraph:
    """Build the heterogeneous graph.

    An occurrence edge has weight 1, a relation edge the number of statements that join its ends, a synonymy edge the
    cosine. A pair that is both related and synonymous takes the larger weight.

    Source: "EA-GraphRAG", 2026, section 3.1; weights as in HippoRAG 2, except that there the cosine of a pair of both
    kinds wins. ``synonyms`` are ``[M, 2]`` int64 entities, ``cosine`` is ``[M]``.
    """
    num_passages = len(passages)
    to_entity = torch.tensor([0, num_passages])
    edges = torch.cat([facts.occurrences + to_entity, facts.related + num_passages, synonyms + num_passages])
    weight = torch.cat([torch.ones(len(facts.occurrences)), facts.num_statements.float(), cosine.float()])
    ids = [*(f"passage:{passage}" for passage in range(num_passages)), *(f"entity:{name}" for name in facts.names)]
    return CorpusGraph.from_edges(ids, [*passages, *facts.spellings], edges, weight)
