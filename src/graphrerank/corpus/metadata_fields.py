"""Metadata fields with a special meaning: principals, relations and times."""

from collections.abc import Mapping
from typing import Any

from graphrerank.corpus.permissions import PRINCIPALS, misplaced_principals
from graphrerank.corpus.times import parse_time
from graphrerank.utils.checks import UserError

#: Fields with a list of ids of other passages, some of which may be hidden.
RELATION_FIELDS = SUPERSEDES, CONTRADICTS = "supersedes", "contradicts"
#: Inverse of ``supersedes``, in edge files and in answers.
SUPERSEDED = "superseded_by"
#: Fields that no filter may use.
RESERVED = (PRINCIPALS, *RELATION_FIELDS)
#: Fields whose texts are times in ISO 8601.
TIMES = VALID_FROM, VALID_TO = "valid_from", "valid_to"


def check_record(record: Mapping[str, Any]) -> None:
    """Raise an error if the metadata of a passage would be misinterpreted.

    A passage without ``principals`` is public. If its principals were misspelt or in the wrong place, it would be
    public without anybody noticing, so such a record is refused. A warning would come after the passage was shown. If
    the record has ``principals`` as well, these decide who sees the passage, and other fields may have any name.

    Args:
        record: Metadata of one passage.

    Raises:
        UserError: If ``valid_from`` or ``valid_to`` is not a time in ISO 8601, or if a field looks like misspelt or
            misplaced principals.
    """
    for name in TIMES:
        if record.get(name) is not None:
            try:
                parse_time(record[name])
            except UserError as error:
                raise UserError(f"`metadata.{name}`: {error}") from None
    if PRINCIPALS not in record and (path := misplaced_principals(record)) is not None:
        raise UserError(
            f"`metadata.{path}` must be named `metadata.{PRINCIPALS}` if it restricts who may see the passage. Without "
            "that field the passage is public. Rename the field if it means something else"
        )
