"""Entities and facts of a corpus, merged over its passages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.text import normalize_entity


@dataclass(frozen=True)
class Facts:
    """Entities and facts of a corpus."""

    names: Sequence[str]  # `E` names normalised by `normalize_entity`, in order of first occurrence
    spellings: Sequence[str]  # `E` names as first written
    texts: Sequence[str]  # `F` facts as "head relation tail", in order of first occurrence
    ends: Tensor  # `[F, 2]` int64 entities, head and tail, which differ
    occurrences: Tensor  # `[L, 2]` int64 (passage, entity), unique, ascending
    related: Tensor  # `[M, 2]` int64 entities joined by a fact, unique, the smaller index first, ascending
    num_statements: Tensor  # `[M]` int64, number of statements that join the pair


def merge_knowledge(knowledge: Sequence[Knowledge]) -> Facts:
    """Merge entities by normalised name, and facts by normalised head, relation and tail.

    A relation of an entity with itself is no fact; a name without a letter or digit is no entity.

    Source: "EA-GraphRAG", 2026, section 3.1; pairs are counted as HippoRAG 2 weighs its relation edges.

    Example:
        >>> from graphrerank.knowledge.passage_knowledge import Entity, Relation
        >>> metz, king = Entity("Metz", "", ""), Entity("Lothair II", "", "")
        >>> facts = merge_knowledge([Knowledge((metz, king), (Relation("Lothair II", "died in", "Metz", ""),))])
        >>> facts.texts, facts.ends.tolist(), facts.occurrences.tolist()
        (['Lothair II died in Metz'], [[1, 0]], [[0, 0], [0, 1]])
    """
    entity_index: dict[str, int] = {}
    spellings: list[str] = []
    facts: dict[tuple[int, str, int], str] = {}
    occurrences: set[tuple[int, int]] = set()
    statements: Counter[tuple[int, int]] = Counter()
    for passage, passage_knowledge in enumerate(knowledge):
        entity_of: dict[str, int] = {}
        for entity in passage_knowledge.entities:
            if name := normalize_entity(entity.name):
                entity_of[entity.name] = entity_index.setdefault(name, len(entity_index))
                if entity_of[entity.name] == len(spellings):
                    spellings.append(entity.name.strip())
                occurrences.add((passage, entity_of[entity.name]))
        for relation in passage_knowledge.relations:
            head, tail = entity_of.get(relation.head), entity_of.get(relation.tail)
            if head is not None and tail is not None and head != tail:
                text = " ".join(part.strip() for part in (relation.head, relation.relation, relation.tail))
                facts.setdefault((head, normalize_entity(relation.relation), tail), text)
                statements[min(head, tail), max(head, tail)] += 1
    related = sorted(statements)
    return Facts(
        names=list(entity_index),
        spellings=spellings,
        texts=list(facts.values()),
        ends=_pairs([(head, tail) for head, _, tail in facts]),
        occurrences=_pairs(sorted(occurrences)),
        related=_pairs(related),
        num_statements=torch.tensor([statements[pair] for pair in related], dtype=torch.int64),
    )


def _pairs(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
