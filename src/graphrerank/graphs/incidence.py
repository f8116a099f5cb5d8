"""The sparse incidence of entities that graphs read, from names as extractors write them."""

from collections.abc import Iterable, Sequence
from functools import cache

from graphrerank.graphs import EntityIncidence
from graphrerank.text import normalize_entity


def entity_incidence(entities: Sequence[Iterable[str]], *, max_share: float = 0.001) -> EntityIncidence:
    """Normalise names (:func:`~graphrerank.text.normalize_entity`), then number those of two passages or more.

    ``max_share`` is that of :meth:`~graphrerank.graphs.EntityIncidence.from_names`.

    Example:
        >>> incidence = entity_incidence([["Lothair II"], ["the Lothair II", "Metz"], []])
        >>> incidence.names, incidence.indptr.tolist(), incidence.indices.tolist()
        (['lothair ii'], [0, 1, 2, 2], [0, 0])
        >>> incidence.sizes
        tensor([1, 2, 0])
    """
    return EntityIncidence.from_names(normalized_names(entities), max_share=max_share)


def normalized_names(entities: Sequence[Iterable[str]]) -> list[set[str]]:
    """Normalise the names of each passage (:func:`~graphrerank.text.normalize_entity`); empty ones are left out."""
    normalized = cache(normalize_entity)
    return [{*map(normalized, names)} - {""} for names in entities]
