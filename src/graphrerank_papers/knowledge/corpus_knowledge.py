"""Merge the entities and relations of passages into a knowledge graph of the corpus, with vectors of descriptions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.core.queries import IndexEncoder
from graphrerank.knowledge.passage_knowledge import Knowledge, KnowledgeExtractor
from graphrerank.text import Tokenizer, WordTokenizer, count_tokens, normalize_entity
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.indexing import Stages


@dataclass(frozen=True)
class CorpusKnowledge:
    """Entities and relations of a corpus, linked to its passages or chunks.

    Attributes:
        names: Names of the ``E`` entities, normalised by :func:`~graphrerank.text.normalize_entity`, in order of first
            occurrence.
        spellings: Names as first spelled in the corpus.
        entity_texts: Name, type and descriptions of each entity as one text. Empty if there was no tokenizer.
        facts: The ``R`` relations as "head relation tail", in order of first occurrence.
        relation_texts: Head, relation, tail and descriptions of each relation as one text. Empty if there was no
            tokenizer.
        ends: Head and tail entity of each relation ``[R, 2]`` int64. They differ.
        entity_links: Pairs of an entity and a passage that mentions it ``[L, 2]`` int64, unique, ascending.
        relation_links: Pairs of a relation and a passage that states it ``[M, 2]`` int64, unique, ascending.
        related: Pairs of related entities ``[N, 2]`` int64, unique, smaller index first, ascending.
        num_statements: Number of statements that relate each pair ``[N]`` int64.
    """

    names: Sequence[str]
    spellings: Sequence[str]
    entity_texts: Sequence[str]
    facts: Sequence[str]
    relation_texts: Sequence[str]
    ends: Tensor
    entity_links: Tensor
    relation_links: Tensor
    related: Tensor
    num_statements: Tensor


@dataclass
class _Merged:
    """Entity or relation, merged over passages."""

    parts: tuple[str, ...]  # name; or head, relation and tail, as first spelled
    kind: str = ""
    descriptions: dict[str, None] = field(default_factory=dict)
    passages: set[int] = field(default_factory=set)


def merge_knowledge(
    knowledge: Sequence[Knowledge],
    *,
    passages: Sequence[int] | None = None,
    tokenizer: Tokenizer | None = None,
    description_tokens: int = 100,
) -> CorpusKnowledge:
    """Merge entities by normalised name, and relations by normalised head, relation and tail.

    Relations of an entity with itself are ignored, and so are names without a letter or digit.

    Source: "EA-GraphRAG", 2026, section 3.1; "KET-RAG", 2025, Algorithm 1. Statements are counted per pair of entities,
    as in the weights of HippoRAG 2's relation edges. *Differences from the paper:* GraphRAG, on which KET-RAG builds,
    summarises descriptions with a language model. Here, they are truncated.

    Args:
        knowledge: Entities and relations of each passage.
        passages: Indices of these passages in the corpus. If None, the passages are numbered from 0.
        tokenizer: Tokenizer that limits the descriptions. If None, ``entity_texts`` and ``relation_texts`` are empty.
        description_tokens: Maximum number of tokens of the descriptions of an entity or a relation. Distinct
            descriptions are joined in the order of ``passages`` while they fit. The first one is truncated if
            necessary.

    Returns:
        Merged entities and relations.

    Raises:
        ValueError: If ``knowledge`` and ``passages`` have different lengths, or ``description_tokens`` is not positive.

    Example:
        >>> from graphrerank.knowledge.passage_knowledge import Entity, Relation
        >>> metz, king = Entity("Metz", "", ""), Entity("Lothair II", "", "")
        >>> merged = merge_knowledge([Knowledge((metz, king), (Relation("Lothair II", "died in", "Metz", ""),))])
        >>> merged.facts, merged.ends.tolist(), merged.entity_links.tolist()
        (['Lothair II died in Metz'], [[1, 0]], [[0, 0], [1, 0]])
    """
    passages = range(len(knowledge)) if passages is None else passages
    if len(knowledge) != len(passages):
        raise UserError(f"`knowledge` must have one entry per passage ({len(passages)}), got {len(knowledge)}")
    check_counts(description_tokens=description_tokens)
    entities: dict[str, _Merged] = {}
    relations: dict[tuple[str, str, str], _Merged] = {}
    statements: Counter[tuple[int, int]] = Counter()
    index: dict[str, int] = {}
    for passage, extracted in zip(passages, knowledge, strict=True):
        for entity in extracted.entities:
            if name := normalize_entity(entity.name):
                index.setdefault(name, len(index))
                merged = entities.setdefault(name, _Merged((entity.name.strip(),)))
                merged.kind = merged.kind or entity.type.strip()
                merged.descriptions[entity.description.strip()] = None
                merged.passages.add(passage)
        for relation in extracted.relations:
            head, tail = normalize_entity(relation.head), normalize_entity(relation.tail)
            if head and tail and head != tail:
                parts = (relation.head.strip(), relation.relation.strip(), relation.tail.strip())
                key = (head, normalize_entity(relation.relation), tail)
                merged = relations.setdefault(key, _Merged(parts))
                merged.descriptions[relation.description.strip()] = None
                merged.passages.add(passage)
                statements[min(index[head], index[tail]), max(index[head], index[tail])] += 1
    related, all_entities, all_relations = sorted(statements), list(entities.values()), list(relations.values())
    return CorpusKnowledge(
        names=list(entities),
        spellings=[entity.parts[0] for entity in all_entities],
        entity_texts=[] if tokenizer is None else _texts(all_entities, tokenizer, description_tokens),
        facts=[" ".join(relation.parts) for relation in all_relations],
        relation_texts=[] if tokenizer is None else _texts(all_relations, tokenizer, description_tokens),
        ends=pair_tensor([(index[head], index[tail]) for head, _, tail in relations]),
        entity_links=_links(all_entities),
        relation_links=_links(all_relations),
        related=pair_tensor(related),
        num_statements=torch.tensor([statements[pair] for pair in related], dtype=torch.int64),
    )


def _texts(merged: Sequence[_Merged], tokenizer: Tokenizer, limit: int) -> list[str]:
    descriptions = list(dict.fromkeys(text for entry in merged for text in entry.descriptions if text))
    length = dict(zip(descriptions, count_tokens(tokenizer, descriptions), strict=True))
    too_long = [text for text in descriptions if length[text] > limit]
    spans = tokenizer.spans(too_long)
    truncated = {text: text[: tokens[limit - 1][1]] for text, tokens in zip(too_long, spans, strict=True)}
    texts = []
    for entry in merged:
        title = " | ".join(entry.parts) + (f" ({entry.kind})" if entry.kind else "")
        nonempty = [text for text in entry.descriptions if text]
        fitting = sum(total <= limit for total in accumulate(length[text] for text in nonempty))
        selected = [truncated.get(text, text) for text in nonempty[: max(1, fitting)]]
        texts.append(f"{title}: {' '.join(selected)}" if selected else title)
    return texts


def _links(merged: Sequence[_Merged]) -> Tensor:
    return pair_tensor([(index, passage) for index, entry in enumerate(merged) for passage in sorted(entry.passages)])


def pair_tensor(pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return pairs as an int64 tensor ``[n, 2]``, also if there are none.

    Args:
        pairs: Pairs of indices.
    """
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


@dataclass(frozen=True)
class KnowledgeGraph:
    """Knowledge graph of a corpus, with vectors of its entities and relations.

    Attributes:
        merged: ``E`` entities and ``R`` relations with their texts and passages.
        entity_vectors: Vectors of the entities' texts ``[E, d]`` float32.
        relation_vectors: Vectors of the relations' texts ``[R, d]`` float32.
    """

    merged: CorpusKnowledge
    entity_vectors: Tensor
    relation_vectors: Tensor

    @cached_property
    def passages_of_entity(self) -> list[list[int]]:
        """Passages of each entity, ascending."""
        return grouped(self.merged.entity_links.tolist(), len(self.merged.names))

    @cached_property
    def passages_of_relation(self) -> list[list[int]]:
        """Passages of each relation, ascending."""
        return grouped(self.merged.relation_links.tolist(), len(self.merged.facts))

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """Entities related to each entity, in either direction, ascending."""
        related = self.merged.related
        return grouped(torch.unique(torch.cat([related, related.flip(1)]), dim=0).tolist(), len(self.merged.names))


def build_knowledge_graph(
    passages: Sequence[str],
    *,
    folder: str | Path,
    extractor: KnowledgeExtractor,
    encoder: IndexEncoder,
    description_tokens: int = 40,
) -> KnowledgeGraph:
    """Build the knowledge graph of a corpus, or read it from a folder where it was built before, and print its size.

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.1: entities and
    relations are extracted from each chunk with a text profile, and duplicates are merged. *Differences from the
    paper:* chunks are whole passages. Merged descriptions are truncated instead of summarised by a language model
    (:func:`merge_knowledge`).

    Args:
        passages: Texts of the passages.
        folder: Folder of the graph (:class:`~graphrerank_papers.indexing.Stages`).
        extractor: Extractor of entities and relations.
        encoder: Encoder of their texts.
        description_tokens: Maximum number of words of the descriptions of an entity or a relation.

    Returns:
        Knowledge graph. Its vectors are on the CPU.
    """
    stages = Stages(folder)
    key = stages.key("descriptions", hash_texts(passages).hex(), extractor.fingerprint, description_tokens)

    def merge() -> CorpusKnowledge:
        knowledge = extractor.extract(passages)
        return merge_knowledge(knowledge, tokenizer=WordTokenizer(), description_tokens=description_tokens)

    merged = stages.get(key, CorpusKnowledge, merge)
    entities = f"{len(merged.names):,} entities in {len(merged.entity_links):,} passages"
    relations = f"{len(merged.facts):,} relations in {len(merged.relation_links):,} passages"
    print(f"knowledge graph: {entities}, {relations}", flush=True)
    entity_vectors = stages.encode(encoder, merged.entity_texts)
    return KnowledgeGraph(merged, entity_vectors, stages.encode(encoder, merged.relation_texts))


def grouped(links: Iterable[Sequence[Any]], num_rows: int) -> list[list[Any]]:
    """Group the second elements of pairs by the first element.

    Args:
        links: Pairs of a row index and an element.
        num_rows: Number of rows.

    Returns:
        Elements of each row, in order.

    Example:
        >>> grouped([(2, "a"), (0, "b"), (2, "c")], 3)
        [['b'], [], ['a', 'c']]
    """
    groups: list[list[Any]] = [[] for _ in range(num_rows)]
    for row, entry in links:
        groups[row].append(entry)
    return groups
