"""The entities and relations of a corpus, merged over its passages, and with vectors of their descriptions."""

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
    """Entities and relations of passages, or of the chunks of a corpus."""

    names: Sequence[str]  # `E` names normalised by `normalize_entity`, in order of first occurrence
    spellings: Sequence[str]  # `E` names as first written
    entity_texts: Sequence[str]  # `E` strings: name, type and descriptions; none without a tokenizer
    facts: Sequence[str]  # `R` relations as "head relation tail", in order of first occurrence
    relation_texts: Sequence[str]  # `R` strings: head, relation, tail and descriptions; none without a tokenizer
    ends: Tensor  # `[R, 2]` int64 entities, head and tail, which differ
    entity_links: Tensor  # `[L, 2]` int64 (entity, passage), unique, ascending
    relation_links: Tensor  # `[M, 2]` int64 (relation, passage), unique, ascending
    related: Tensor  # `[N, 2]` int64 entities joined by a relation, unique, the smaller index first, ascending
    num_statements: Tensor  # `[N]` int64, number of statements that join the pair


@dataclass
class _Merged:
    """An entity or a relation, merged over passages."""

    parts: tuple[str, ...]  # the name, or head, relation and tail, as first written
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

    A relation of an entity with itself is left out; a name without a letter or digit is no entity. With a
    ``tokenizer``, the text of an entity or relation has its distinct descriptions in the order of ``passages``, up to
    ``description_tokens``; the first is truncated to that length.

    Source: "EA-GraphRAG", 2026, section 3.1, whose pairs are counted as HippoRAG 2 weighs its relation edges; KET-RAG,
    Algorithm 1. *Where we differ:* GraphRAG, on which KET-RAG builds, summarises descriptions by a language model.

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
        told = [text for text in entry.descriptions if text]
        fitting = sum(total <= limit for total in accumulate(length[text] for text in told))
        selected = [truncated.get(text, text) for text in told[: max(1, fitting)]]
        texts.append(f"{title}: {' '.join(selected)}" if selected else title)
    return texts


def _links(merged: Sequence[_Merged]) -> Tensor:
    return pair_tensor([(index, passage) for index, entry in enumerate(merged) for passage in sorted(entry.passages)])


def pair_tensor(pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Return pairs as ``[n, 2]`` int64."""
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


@dataclass(frozen=True)
class KnowledgeGraph:
    """Entities and relations of ``P`` passages, with vectors and links."""

    merged: CorpusKnowledge  # `E` entities and `R` relations with their texts
    entity_vectors: Tensor  # `[E, d]` float32, of the entities' texts
    relation_vectors: Tensor  # `[R, d]` float32, of the relations' texts

    @cached_property
    def passages_of_entity(self) -> list[list[int]]:
        """The passages of each of ``E`` entities, ascending."""
        return grouped(self.merged.entity_links.tolist(), len(self.merged.names))

    @cached_property
    def passages_of_relation(self) -> list[list[int]]:
        """The passages of each of ``R`` relations, ascending."""
        return grouped(self.merged.relation_links.tolist(), len(self.merged.facts))

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """The entities that a relation joins with each of ``E`` entities, in either direction, ascending."""
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
    """Build the graph of ``P`` passages, or read it from the folder (:class:`Stages`), and print its size.

    Source: Guo et al., "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024, section 3.1: entities and
    relations of each chunk with a text profile, duplicates merged. *Where we differ:* the chunks are the passages, and
    merged descriptions are truncated, not summarised by a language model (:func:`merge_knowledge`).
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
    """List the second entries of pairs by their first one, ``num_rows`` lists."""
    groups: list[list[Any]] = [[] for _ in range(num_rows)]
    for row, entry in links:
        groups[row].append(entry)
    return groups
