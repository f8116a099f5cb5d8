"""Edge types, which are few and general, so that a model trained on one corpus works on another.

- ``reference``: one passage mentions, links, cites or is otherwise explicitly related to the other, such as by a
  foreign key.
- ``entity``: both passages contain the same entity.
- ``adjacency``: the passages are adjacent in a document.
- ``similarity``: the vectors of the passages are close.
- ``other``: anything else, including edges without a type.
"""

from collections.abc import Iterable, Mapping

from graphrerank.utils.checks import UserError

#: Names of the edge types. A type is represented by its index in this tuple.
EDGE_TYPES = ("reference", "entity", "adjacency", "similarity", "other")
REFERENCE, ENTITY, ADJACENCY, SIMILARITY, OTHER = range(len(EDGE_TYPES))

#: Edge type of other names in edge files.
MEANINGS = {
    "reference": (
        "call calls cites cited_by citation contradicts foreign_key hyperlink import imports inherits key_name link "
        "links_to mention mentions references reply replies superseded_by supersedes tests "
        "title_mention"
    ),
    "entity": "concept conceptual shared_entity",
    "adjacency": "adjacent contextual neighbouring_chunk next next_chunk previous previous_chunk same_speaker",
    "similarity": "knn nearest semantic similar synonym",
}
_TYPE_OF_NAME = {name: type_name for type_name, names in MEANINGS.items() for name in names.split()}


def edge_type_of(name: str, meanings: Mapping[str, str] | None = None) -> int:
    """Return the index of the edge type for a name in an edge file. Unknown names are ``other``.

    The comparison ignores case, and treats blanks and hyphens as underscores.

    Args:
        name: Name in an edge file.
        meanings: Edge types, one of :data:`EDGE_TYPES` each, for further names. The entry for ``other`` applies to all
            unknown names. If None, there are no further names.

    Raises:
        UserError: If ``meanings`` contains an unknown edge type.

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
    """Return the indices of edge types.

    Args:
        names: Names of edge types.
        argument: Name of the argument in errors.

    Raises:
        UserError: If a name is not an edge type.
    """
    listed = list(names)
    for position, name in enumerate(listed):
        if name not in EDGE_TYPES:
            raise UserError(f"`{argument}` must be one of {EDGE_TYPES}, got {name!r} at index {position}")
    return [EDGE_TYPES.index(name) for name in listed]
