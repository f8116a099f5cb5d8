"""A corpus as a heterogeneous graph of passages and entities, and the facts that lead into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph
from graphrerank.indexes.facts.facts import Facts


@dataclass(frozen=True)
class FactGraphSettings:
    """What a fact graph is made of.

    Attributes:
        synonymy_threshold: Least cosine in (0, 1] of two entities that are joined as synonyms.
        max_synonyms: Synonyms of an entity at most; 0: no synonymy edges.
        min_name_characters: Letters and digits that an entity's name must have to be a synonym of another.

    Raises:
        ValueError: If a setting is out of range.
    """

    synonymy_threshold: float = 0.8
    max_synonyms: int = 100
    min_name_characters: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.synonymy_threshold <= 1:
            raise ValueError(f"`synonymy_threshold` must lie in (0, 1], got {self.synonymy_threshold}")
        for name in ("max_synonyms", "min_name_characters"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True)
class FactGraph:
    """The index of the graph path.

    Attributes:
        graph: ``P`` passages, then ``E`` entities, whose ids are their normalised names behind ``entity:``; undirected.
        num_passages: ``P``.
        facts: Entities and facts; a fact's ends are entity numbers, and node ``P + e`` is entity ``e``.
        fact_vectors: ``[F, d]`` float32.
        num_synonyms: Synonymy edges, each pair once.
    """

    graph: CorpusGraph
    num_passages: int
    facts: Facts
    fact_vectors: Tensor
    num_synonyms: int

    @cached_property
    def num_holders(self) -> Tensor:
        """``[E]`` int64, passages that hold each entity."""
        return torch.bincount(self.facts.occurrences[:, 1], minlength=len(self.facts.names))

    def report(self) -> str:
        """Write in one line how many nodes, facts and edges there are."""
        bare = self.num_passages - len(torch.unique(self.facts.occurrences[:, 0]))
        return (
            f"fact graph: {self.num_passages:,} passages ({bare:,} without an entity), {len(self.facts.names):,} "
            f"entities, {len(self.facts.texts):,} facts; edges: {len(self.facts.occurrences):,} occurrence, "
            f"{len(self.facts.related):,} relation, {self.num_synonyms:,} synonymy"
        )


def join_nodes(passages: Sequence[str], facts: Facts, synonyms: Tensor, cosine: Tensor) -> CorpusGraph:
    """Make the heterogeneous graph.

    An occurrence edge weighs 1, a relation edge the number of statements that join its ends, a synonymy edge the
    cosine; of a pair that is related and synonymous the larger counts.

    Source: "EA-GraphRAG", 2026, section 3.1; weights as in HippoRAG 2, where in the last case the cosine counts.

    Args:
        passages: ``P`` texts.
        facts: Entities and facts.
        synonyms: ``[M, 2]`` int64 entity numbers.
        cosine: ``[M]``.
    """
    num_passages = len(passages)
    to_entity = torch.tensor([0, num_passages])
    edges = torch.cat([facts.occurrences + to_entity, facts.related + num_passages, synonyms + num_passages])
    weight = torch.cat([torch.ones(len(facts.occurrences)), facts.num_statements.float(), cosine.float()])
    ids = [*(f"passage:{number}" for number in range(num_passages)), *(f"entity:{name}" for name in facts.names)]
    return CorpusGraph.from_edges(ids, [*passages, *facts.spellings], edges, weight)
