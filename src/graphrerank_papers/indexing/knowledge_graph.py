"""A corpus's entities and relations, described, with vectors of their descriptions and links to the passages."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text import WordTokenizer
from graphrerank_papers.indexing.stages import Stages
from graphrerank_papers.ket.skeleton import Skeleton, build_skeleton


@dataclass(frozen=True)
class KnowledgeGraph:
    """Entities and relations of ``P`` passages."""

    skeleton: Skeleton  # `E` entities and `R` relations with their texts; its chunks are the passages
    entity_vectors: Tensor  # `[E, d]` float32, of the entities' texts
    relation_vectors: Tensor  # `[R, d]` float32, of the relations' texts

    @cached_property
    def passages_of_entity(self) -> list[list[int]]:
        """The passages of each of ``E`` entities, ascending."""
        return _grouped(self.skeleton.entity_links, len(self.skeleton.names))

    @cached_property
    def passages_of_relation(self) -> list[list[int]]:
        """The passages of each of ``R`` relations, ascending."""
        return _grouped(self.skeleton.relation_links, len(self.skeleton.relation_texts))

    @cached_property
    def relations_of(self) -> list[list[int]]:
        """The relations that each of ``E`` entities is an end of, ascending."""
        relation = torch.arange(len(self.skeleton.ends)).unsqueeze(1).expand(-1, 2)
        links = torch.stack([self.skeleton.ends, relation], dim=2).reshape(-1, 2)
        return _grouped(links, len(self.skeleton.names))

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """The entities that a relation joins with each of ``E`` entities, in either direction, ascending."""
        ends = self.skeleton.ends
        return _grouped(torch.unique(torch.cat([ends, ends.flip(1)]), dim=0), len(self.skeleton.names))

    def report(self) -> str:
        """Return one line with the numbers of entities, relations and links."""
        skeleton = self.skeleton
        return (
            f"knowledge graph: {len(skeleton.names):,} entities in {len(skeleton.entity_links):,} places, "
            f"{len(skeleton.relation_texts):,} relations in {len(skeleton.relation_links):,} places"
        )


def build_knowledge_graph(
    passages: Sequence[str],
    *,
    folder: str | Path,
    extractor: KnowledgeExtractor,
    encoder: IndexEncoder,
    description_tokens: int = 40,
) -> KnowledgeGraph:
    """Build the graph of ``P`` passages stage by stage, reading finished stages from the folder (:class:`Stages`).

    Entities are merged by normalised name, relations by normalised ends and predicate; their texts are the distinct
    descriptions up to ``description_tokens`` words (:func:`build_skeleton`).

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.1: entities and
    relations of each chunk with a text profile, duplicates merged. *Where we differ:* the chunks are the passages, and
    merged descriptions are truncated, not summarised by a language model.

    Args:
        passages: Their texts.
        folder: Folder of indexes.
        extractor: Extractor of entities and relations.
        encoder: Encoder of the texts of entities and relations; queries need the same one.
        description_tokens: Words of an entity's or a relation's description, at most.

    Raises:
        ValueError: If ``description_tokens`` is below 1, or a file of the folder is damaged.
    """
    stages, chunks = Stages(folder), range(len(passages))
    key = stages.key("knowledge", hash_texts(passages).hex(), extractor.fingerprint, description_tokens)
    skeleton = stages.get(
        key,
        Skeleton,
        lambda: build_skeleton(
            extractor.extract(passages), chunks, WordTokenizer(), description_tokens=description_tokens
        ),
    )
    entity_vectors = stages.encode(encoder, skeleton.entity_texts)
    return KnowledgeGraph(skeleton, entity_vectors, stages.encode(encoder, skeleton.relation_texts))


def _grouped(links: Tensor, num_rows: int) -> list[list[int]]:
    """List the second entries of pairs ``[L, 2]`` by their first one."""
    groups: list[list[int]] = [[] for _ in range(num_rows)]
    for row, entry in links.tolist():
        groups[row].append(entry)
    return groups
