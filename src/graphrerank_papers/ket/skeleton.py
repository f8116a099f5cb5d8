"""KET-RAG's knowledge-graph skeleton: entities and relations of the core chunks, linked to the chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.text import Tokenizer, count_tokens, normalize_entity
from graphrerank_papers.ket.chunks import Chunks


@dataclass(frozen=True)
class Skeleton:
    """Entities, relations and their links to chunks."""

    names: Sequence[str]  # `E` entity names, normalised by `normalize_entity`
    entity_texts: Sequence[str]  # `E` strings: name, type and descriptions
    relation_texts: Sequence[str]  # `R` strings: head, relation, tail and descriptions
    ends: Tensor  # `[R, 2]` int64 entities, which differ
    entity_links: Tensor  # `[L, 2]` int64 (entity, chunk), ascending
    relation_links: Tensor  # `[M, 2]` int64 (relation, chunk), ascending


@dataclass
class _Merged:
    """An entity or relation, merged over chunks."""

    title: str
    kind: str = ""
    descriptions: dict[str, None] = field(default_factory=dict)
    chunks: dict[int, None] = field(default_factory=dict)


def build_skeleton(
    knowledge: Sequence[Knowledge], chunks: Sequence[int], tokenizer: Tokenizer, *, description_tokens: int = 100
) -> Skeleton:
    """Merge entities by normalised name, and relations by normalised head, relation and tail.

    Source: KET-RAG, Algorithm 1. *Where we differ:* the paper does not say how the descriptions of an entity are
    merged; GraphRAG, on which it builds, summarises them by a language model. We join the distinct ones in chunk order,
    up to ``description_tokens``; the first one is truncated to that length. A relation of an entity with itself is left
    out. ``knowledge`` is of the ``C`` chunks whose indices are ``chunks``.
    """
    if len(knowledge) != len(chunks):
        raise ValueError(f"`knowledge` must have one entry per chunk ({len(chunks)}), got {len(knowledge)}")
    check_counts(description_tokens=description_tokens)
    entities: dict[str, _Merged] = {}
    relations: dict[tuple[str, str, str], _Merged] = {}
    for chunk_knowledge, chunk in zip(knowledge, chunks, strict=True):
        for entity in chunk_knowledge.entities:
            if name := normalize_entity(entity.name):
                merged = entities.setdefault(name, _Merged(entity.name.strip()))
                merged.kind = merged.kind or entity.type.strip()
                merged.descriptions[entity.description.strip()] = None
                merged.chunks[chunk] = None
        for relation in chunk_knowledge.relations:
            head, tail = normalize_entity(relation.head), normalize_entity(relation.tail)
            if head and tail and head != tail:
                title = f"{relation.head.strip()} | {relation.relation.strip()} | {relation.tail.strip()}"
                key = (head, normalize_entity(relation.relation), tail)
                merged = relations.setdefault(key, _Merged(title))
                merged.descriptions[relation.description.strip()] = None
                merged.chunks[chunk] = None
    index = {name: entity for entity, name in enumerate(entities)}
    return Skeleton(
        names=list(entities),
        entity_texts=_texts(list(entities.values()), tokenizer, description_tokens),
        relation_texts=_texts(list(relations.values()), tokenizer, description_tokens),
        ends=_pairs([(index[head], index[tail]) for head, _, tail in relations]),
        entity_links=_links(list(entities.values())),
        relation_links=_links(list(relations.values())),
    )


def rewire(skeleton: Skeleton, sub_chunks: Chunks) -> Skeleton:
    """Link entities and relations to sub-chunks instead of the chunks that these were cut from.

    Source: KET-RAG, section 5.1, "edges rewired accordingly". The paper does not say to which sub-chunks of a chunk: we
    take those with the most of the names, which are the entity's, or those of the relation's two ends.
    """
    children: dict[int, list[int]] = {}
    for sub_chunk, parent in enumerate(sub_chunks.parent.tolist()):
        children.setdefault(parent, []).append(sub_chunk)
    is_halved = any(len(sub_chunks_of) > 1 for sub_chunks_of in children.values())
    texts = [f" {normalize_entity(text)} " for text in sub_chunks.texts] if is_halved else []

    def best_sub_chunks(chunk: int, names: Sequence[str]) -> list[int]:
        candidates = children[chunk]
        if len(candidates) == 1:
            return candidates
        counts = [sum(f" {name} " in texts[candidate] for name in names) for candidate in candidates]
        return [candidate for candidate, count in zip(candidates, counts, strict=True) if count == max(counts)]

    names, ends = skeleton.names, skeleton.ends.tolist()
    entity_links = [
        (entity, sub_chunk)
        for entity, chunk in skeleton.entity_links.tolist()
        for sub_chunk in best_sub_chunks(chunk, [names[entity]])
    ]
    relation_links = [
        (relation, sub_chunk)
        for relation, chunk in skeleton.relation_links.tolist()
        for sub_chunk in best_sub_chunks(chunk, [names[end] for end in ends[relation]])
    ]
    return replace(skeleton, entity_links=_pairs(entity_links), relation_links=_pairs(relation_links))


def _texts(merged: Sequence[_Merged], tokenizer: Tokenizer, limit: int) -> list[str]:
    descriptions = list(dict.fromkeys(text for entry in merged for text in entry.descriptions if text))
    length = dict(zip(descriptions, count_tokens(tokenizer, descriptions), strict=True))
    too_long = [text for text in descriptions if length[text] > limit]
    spans = tokenizer.spans(too_long)
    truncated = {text: text[: tokens[limit - 1][1]] for text, tokens in zip(too_long, spans, strict=True)}
    texts = []
    for entry in merged:
        title = f"{entry.title} ({entry.kind})" if entry.kind else entry.title
        selected: list[str] = []
        remaining = limit
        for text in filter(None, entry.descriptions):
            if selected and length[text] > remaining:
                break
            selected.append(truncated.get(text, text))
            remaining -= length[text]
        texts.append(f"{title}: {' '.join(selected)}" if selected else title)
    return texts


def _links(merged: Sequence[_Merged]) -> Tensor:
    return _pairs([(index, chunk) for index, entry in enumerate(merged) for chunk in sorted(entry.chunks)])


def _pairs(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
