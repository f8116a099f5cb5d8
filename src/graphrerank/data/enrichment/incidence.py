"""From the entities that an extractor finds to the sparse matrix that graphs read."""

from collections.abc import Iterable, Sequence

from graphrerank.graphs import EntityIncidence
from graphrerank.text import normalize_entity


def entity_incidence(entities: Sequence[Iterable[str]], *, max_share: float = 0.001) -> EntityIncidence:
    """Make names comparable (:func:`~graphrerank.text.normalize_entity`), then number those of two passages or more.

    Args:
        entities: ``N`` collections of names as an extractor gives them.
        max_share: As of :meth:`~graphrerank.graphs.EntityIncidence.from_names`.

    Raises:
        ValueError: If ``max_share`` is out of range.

    Example:
        >>> incidence = entity_incidence([["Lothair II"], ["the Lothair II", "Metz"], []])
        >>> incidence.names, incidence.indptr.tolist(), incidence.indices.tolist()
        (['lothair ii'], [0, 1, 2, 2], [0, 0])
        >>> incidence.sizes
        tensor([1, 2, 0])
    """
    cleaned: dict[str, str] = {}
    rows = []
    for row in entities:
        names = list(row)
        for name in names:
            if name not in cleaned:
                cleaned[name] = normalize_entity(name)
        rows.append({cleaned[name] for name in names} - {""})
    return EntityIncidence.from_names(rows, max_share=max_share)
