"""The types of edges, few and of general meaning, so that a model trained on one corpus can read another's.

- ``reference``: one passage names, links, cites or is stated to relate to the other; a foreign key.
- ``entity``: both hold the same entity.
- ``adjacency``: they are neighbours in a document.
- ``similarity``: their vectors are near.
- ``other``: anything else, and edges without a type.
"""

from collections.abc import Iterable, Mapping

from graphrerank.utils.checks import UserError

EDGE_TYPES = ("reference", "entity", "adjacency", "similarity", "other")  # the order of numbers everywhere
REFERENCE, ENTITY, ADJACENCY, SIMILARITY, OTHER = range(len(EDGE_TYPES))

MEANINGS = {  # of names in edge files, in addition to those of the types themselves
    "reference": (
        "call calls cites cited_by citation contradicts foreign_key hyperlink import imports inherits key_name link "
        "links_to mention mentions references reply replies superseded_by supersedes tests "
        "title_mention"
    ),
    "entity": "concept conceptual shared_entity",
    "adjacency": "adjacent contextual neighbouring_chunk next next_chunk previous previous_chunk",
    "similarity": "knn nearest semantic similar synonym",
}
_TYPE_OF_NAME = {name: type_name for type_name, names in MEANINGS.items() for name in names.split()}


def edge_type_of(name: str, meanings: Mapping[str, str] | None = None) -> int:
    """Return the number of the type that a name in an edge file means; names that mean nothing here are ``other``.

    Capitals, and blanks or hyphens instead of underscores, make no difference. ``meanings`` are names of a user, with
    one of :data:`EDGE_TYPES` for each, and for ``other`` that of all names that mean nothing.

    Example:
        >>> EDGE_TYPES[edge_type_of("FOREIGN KEY")], EDGE_TYPES[edge_type_of("likes", {"likes": "reference"})]
        ('reference', 'reference')
        >>> [EDGE_TYPES[edge_type_of(name, {"other": "reference"})] for name in ("likes", "knows", "Entity")]
        ['reference', 'reference', 'entity']
    """
    named, plain = meanings or {}, name.strip().lower().replace(" ", "_").replace("-", "_")
    meaning = named.get(name, _TYPE_OF_NAME.get(plain, plain if plain in EDGE_TYPES else "other"))
    if meaning == "other" and name not in named:
        name, meaning = "other", named.get("other", "other")
    return edge_type_numbers([meaning], argument=f"edge_meanings[{name!r}]")[0]


def edge_type_numbers(names: Iterable[str], *, argument: str = "edge_types") -> list[int]:
    """Return the numbers of types by their names; a ValueError that names the argument if one is none of them."""
    listed = list(names)
    for position, name in enumerate(listed):
        if name not in EDGE_TYPES:
            raise UserError(f"`{argument}` must be of {EDGE_TYPES}, got {name!r} at place {position}")
    return [EDGE_TYPES.index(name) for name in listed]
