"""What the passages of a corpus say, put together: entities, facts and where they stand."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.knowledge import Knowledge
from graphrerank.text import normalize_entity


@dataclass(frozen=True)
class Facts:
    """Entities and facts of a corpus.

    Attributes:
        names: ``E`` names as :func:`~graphrerank.text.normalize_entity` makes them, in the order of first places.
        spellings: ``E`` names as they were written first.
        texts: ``F`` facts as "head relation tail", in the order of first places.
        ends: ``[F, 2]`` int64 entity numbers, head and tail, two different ones.
        occurrences: ``[L, 2]`` int64 (passage, entity), each pair once, ascending.
        related: ``[M, 2]`` int64 entities that a fact joins, each pair once, the smaller number first, ascending.
        num_statements: ``[M]`` int64, how often a passage joins the pair.
    """

    names: Sequence[str]
    spellings: Sequence[str]
    texts: Sequence[str]
    ends: Tensor
    occurrences: Tensor
    related: Tensor
    num_statements: Tensor


def merge_knowledge(knowledge: Sequence[Knowledge]) -> Facts:
    """Merge what passages say: entities by normalised name, facts by their ends' names and the normalised relation.

    A relation of an entity with itself is no fact; a name without a letter or digit is no entity.

    Source: "EA-GraphRAG", 2026, section 3.1; the triples' pairs are counted as HippoRAG 2 weighs its relation edges.

    Args:
        knowledge: Of each of ``P`` passages.

    Example:
        >>> from graphrerank.text import Entity, Relation
        >>> metz, king = Entity("Metz", "", ""), Entity("Lothair II", "", "")
        >>> facts = merge_knowledge([Knowledge((metz, king), (Relation("Lothair II", "died in", "Metz", ""),))])
        >>> facts.texts, facts.ends.tolist(), facts.occurrences.tolist()
        (['Lothair II died in Metz'], [[1, 0]], [[0, 0], [0, 1]])
    """
    number: dict[str, int] = {}
    spellings: list[str] = []
    facts: dict[tuple[int, str, int], str] = {}
    occurrences: set[tuple[int, int]] = set()
    statements: Counter[tuple[int, int]] = Counter()
    for passage, told in enumerate(knowledge):
        own: dict[str, int] = {}
        for entity in told.entities:
            if name := normalize_entity(entity.name):
                own[entity.name] = number.setdefault(name, len(number))
                if own[entity.name] == len(spellings):
                    spellings.append(entity.name.strip())
                occurrences.add((passage, own[entity.name]))
        for relation in told.relations:
            head, tail = own.get(relation.head), own.get(relation.tail)
            if head is not None and tail is not None and head != tail:
                text = " ".join(part.strip() for part in (relation.head, relation.relation, relation.tail))
                facts.setdefault((head, normalize_entity(relation.relation), tail), text)
                statements[min(head, tail), max(head, tail)] += 1
    related = sorted(statements)
    return Facts(
        names=list(number),
        spellings=spellings,
        texts=list(facts.values()),
        ends=_pairs([(head, tail) for head, _, tail in facts]),
        occurrences=_pairs(sorted(occurrences)),
        related=_pairs(related),
        num_statements=torch.tensor([statements[pair] for pair in related], dtype=torch.int64),
    )


def _pairs(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
