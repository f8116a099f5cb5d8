"""KET-RAG's knowledge-graph skeleton: the entities and relations of the core chunks, each tied to its chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from graphrerank.indexes.chunks import Chunks
from graphrerank.knowledge import Knowledge
from graphrerank.text import Tokenizer, count_tokens, normalize_entity


@dataclass(frozen=True)
class Skeleton:
    """Entities, relations and where they stand.

    Attributes:
        names: ``E`` entity names as :func:`normalize_entity` makes them.
        entity_texts: ``E`` strings: name, type and descriptions.
        relation_texts: ``R`` strings: head, relation, tail and descriptions.
        ends: ``[R, 2]`` int64 entity numbers, two different ones.
        entity_links: ``[L, 2]`` int64 (entity, chunk), ascending.
        relation_links: ``[M, 2]`` int64 (relation, chunk), ascending.
    """

    names: Sequence[str]
    entity_texts: Sequence[str]
    relation_texts: Sequence[str]
    ends: Tensor
    entity_links: Tensor
    relation_links: Tensor


@dataclass
class _Merged:
    """What several passages say of one thing."""

    title: str
    kind: str = ""
    descriptions: dict[str, None] = field(default_factory=dict)
    chunks: dict[int, None] = field(default_factory=dict)


def build_skeleton(
    knowledge: Sequence[Knowledge], chunks: Sequence[int], tokenizer: Tokenizer, *, description_tokens: int = 100
) -> Skeleton:
    """Merge what chunks say: entities by normalised name, relations by ends and normalised relation.

    Source: KET-RAG, Algorithm 1. *Where we differ:* it does not say how descriptions of one entity become one;
    GraphRAG, which it builds on, lets a language model sum them up. We join different ones, in the order of the chunks,
    as far as ``description_tokens`` go; the first one always, cut there. A relation of an entity with itself is left
    out.

    Args:
        knowledge: Of each of ``C`` chunks.
        chunks: ``C`` chunk numbers.
        tokenizer: What a token is.
        description_tokens: Most tokens of an entity's or a relation's descriptions.

    Raises:
        ValueError: If there are not as many chunks as knowledge, or ``description_tokens`` is below 1.
    """
    if len(knowledge) != len(chunks):
        raise ValueError(f"`knowledge` must have one entry per chunk ({len(chunks)}), got {len(knowledge)}")
    if description_tokens < 1:
        raise ValueError(f"`description_tokens` must be a positive integer, got {description_tokens}")
    entities: dict[str, _Merged] = {}
    relations: dict[tuple[str, str, str], _Merged] = {}
    for told, chunk in zip(knowledge, chunks, strict=True):
        for entity in told.entities:
            if name := normalize_entity(entity.name):
                merged = entities.setdefault(name, _Merged(entity.name.strip()))
                merged.kind = merged.kind or entity.type.strip()
                merged.descriptions[entity.description.strip()] = None
                merged.chunks[chunk] = None
        for relation in told.relations:
            head, tail = normalize_entity(relation.head), normalize_entity(relation.tail)
            if head and tail and head != tail:
                title = f"{relation.head.strip()} | {relation.relation.strip()} | {relation.tail.strip()}"
                key = (head, normalize_entity(relation.relation), tail)
                merged = relations.setdefault(key, _Merged(title))
                merged.descriptions[relation.description.strip()] = None
                merged.chunks[chunk] = None
    number = {name: i for i, name in enumerate(entities)}
    ends = torch.tensor([[number[head], number[tail]] for head, _, tail in relations], dtype=torch.int64)
    return Skeleton(
        names=list(entities),
        entity_texts=_texts(list(entities.values()), tokenizer, description_tokens),
        relation_texts=_texts(list(relations.values()), tokenizer, description_tokens),
        ends=ends.reshape(-1, 2),
        entity_links=_links(list(entities.values())),
        relation_links=_links(list(relations.values())),
    )


def rewire(skeleton: Skeleton, sub_chunks: Chunks) -> Skeleton:
    """Tie entities and relations to sub-chunks in place of the chunks they were cut from.

    Source: KET-RAG, section 5.1, "edges rewired accordingly". The paper does not say to which of a chunk's sub-chunks:
    we take those that hold the entity's name, both names of a relation's ends, or else one of them; where none does,
    all of them.

    Args:
        skeleton: Tied to chunks.
        sub_chunks: Cut from these chunks.
    """
    parts: dict[int, list[int]] = {}
    for sub_chunk, parent in enumerate(sub_chunks.parent.tolist()):
        parts.setdefault(parent, []).append(sub_chunk)
    if all(len(own) == 1 for own in parts.values()):
        texts: Sequence[str] = []
    else:
        texts = [f" {normalize_entity(text)} " for text in sub_chunks.texts]

    def holders(own: list[int], names: Sequence[str]) -> list[int]:
        if len(own) == 1:
            return own
        held = {part: sum(f" {name} " in texts[part] for name in names) for part in own}
        most = max(held.values())
        return [part for part, count in held.items() if count == most]

    names, ends = skeleton.names, skeleton.ends.tolist()
    entity_links = [
        (entity, part)
        for entity, chunk in skeleton.entity_links.tolist()
        for part in holders(parts[chunk], [names[entity]])
    ]
    relation_links = [
        (relation, part)
        for relation, chunk in skeleton.relation_links.tolist()
        for part in holders(parts[chunk], [names[end] for end in ends[relation]])
    ]
    return replace(skeleton, entity_links=_pairs(entity_links), relation_links=_pairs(relation_links))


def _texts(merged: Sequence[_Merged], tokenizer: Tokenizer, limit: int) -> list[str]:
    described = [[text for text in entry.descriptions if text] for entry in merged]
    every = list(dict.fromkeys(text for texts in described for text in texts))
    length = dict(zip(every, count_tokens(tokenizer, every), strict=True))
    cut = [text for text in every if length[text] > limit]
    short = {text: text[: spans[limit - 1][1]] for text, spans in zip(cut, tokenizer.spans(cut), strict=True)}
    found = []
    for entry, texts in zip(merged, described, strict=True):
        title = f"{entry.title} ({entry.kind})" if entry.kind else entry.title
        kept: list[str] = []
        room = limit
        for text in texts:
            if kept and length[text] > room:
                break
            kept.append(short.get(text, text))
            room -= length[text]
        found.append(f"{title}: {' '.join(kept)}" if kept else title)
    return found


def _links(merged: Sequence[_Merged]) -> Tensor:
    return _pairs([(number, chunk) for number, entry in enumerate(merged) for chunk in sorted(entry.chunks)])


def _pairs(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
