"""Authenticate callers: principals come from a signed token or from the header of a trusted proxy."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import Headers

from graphrerank.serving.engine import Refusal
from graphrerank.serving.settings import PermissionSettings
from graphrerank.utils.checks import check_choice

WRITE = "write"  # principal required to add and delete documents

SUBJECT, PRINCIPALS, NAMED = "sub", "principals", "name"  # kinds of users
USER_KINDS = (SUBJECT, PRINCIPALS, NAMED)
# principal in a header: plain, or in double quotes, where a backslash escapes a quote or a backslash
HEADER_NAME = re.compile(r'[ \t]*(?:"((?:[^"\\]|\\["\\])*)"|([^",]*))[ \t]*(?:,|\Z)')


class User(NamedTuple):
    """Identity of a user. Users of different kinds are different users, even if their names are equal.

    Attributes:
        kind: ``sub`` for the subject of a token, ``principals`` for everybody with the same principals if there is no
            subject, or ``name`` for a name that the request states itself.
        name: Name of the user. For principals, a sorted JSON list, so that names with commas stay distinct.
    """

    kind: str
    name: str

    @classmethod
    def holding(cls, principals: Iterable[str]) -> "User":
        """Return the user that represents all callers with the same principals.

        Args:
            principals: Principals of the user.
        """
        return cls(PRINCIPALS, json.dumps(sorted(set(principals))))

    @classmethod
    def called(cls, name: str, kind: str | None = None) -> "list[User]":
        """Return all users that a name can refer to, for example to delete their data.

        Args:
            name: Subject of a token, name that requests state, or principals (a JSON list, or separated by commas).
            kind: Kind of the user. If None, users of all kinds.

        Raises:
            UserError: If there is no such kind.
        """
        if kind is not None:
            check_choice(USER_KINDS, kind=kind)
        users = [
            cls(SUBJECT, name),
            cls(NAMED, name),
            cls.holding(principal for principal in name.split(",") if principal),
        ]
        try:
            listed = json.loads(name)
        except ValueError:
            listed = None
        if isinstance(listed, list) and all(isinstance(principal, str) for principal in listed):
            users.append(cls.holding(listed))
        return [user for user in users if kind in (None, user.kind)]

    @property
    def key(self) -> str:
        """Unique identifier of the user across all kinds."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Caller:
    """Sender of a request.

    Attributes:
        principals: Principals of the sender, which decide what is visible.
        trusts_body: Whether the request may name principals itself.
        may_write: Whether the sender may add and delete documents, and delete feedback.
        user: Subject of the token, or else the principals. None if the service does not authenticate callers.
        authenticated: Whether ``user`` was verified by a token or by the header of a trusted proxy. False if the
            request named the principals itself, or named none.
        address: Network address of the connection, which is the proxy's address behind a proxy. None if unknown.
    """

    principals: frozenset[str] = frozenset()
    trusts_body: bool = False
    may_write: bool = True
    user: User | None = None
    authenticated: bool = False
    address: str | None = None

    @property
    def known_user(self) -> str | None:
        """Key of the user, or None for callers without subject and principals, who are indistinguishable."""
        return None if self.user is None or self.user == User.holding(()) else self.user.key


def authenticate(permissions: PermissionSettings, headers: Headers) -> Caller:
    """Return the sender of a request.

    Args:
        permissions: Source of the callers' principals.
        headers: Headers of the request.

    Returns:
        The sender, without principals if the request has no token and no header of principals.

    Raises:
        Refusal: 401, if the token or header is invalid in any way.
    """
    if not permissions.are_set:
        return Caller()
    names: Sequence[str] = ()
    subject = None
    if permissions.algorithm is not None and (credentials := _single(headers, "authorization")) is not None:
        scheme, _, token = credentials.partition(" ")
        if scheme.lower() != "bearer":
            _refuse()
        names, subject = _of_token(permissions, token.strip())
    elif permissions.header is not None and (header := _single(headers, permissions.header)) is not None:
        names = names_in_header(header)
    principals = frozenset(name for name in names if name)
    user = User.holding(principals) if subject is None else User(SUBJECT, subject)
    return Caller(
        principals,
        permissions.trust_body,
        may_write=WRITE in principals,
        user=user,
        authenticated=subject is not None or bool(principals),
    )


def _of_token(permissions: PermissionSettings, token: str) -> tuple[Sequence[str], str | None]:
    """Return the principals and the subject of a token."""
    import jwt

    assert permissions.algorithm is not None
    settings: Any = {"issuer": permissions.issuer, "options": {"require": ["exp", "aud"]}}
    try:
        content: Any = jwt.decode(
            token, permissions.key or "", algorithms=[permissions.algorithm], audience=permissions.audience, **settings
        )
    except (jwt.PyJWTError, ValueError):
        _refuse()
    subject = content.get("sub")
    if subject is not None and not (isinstance(subject, str) and subject.strip() and _is_text(subject)):
        _refuse()  # an empty subject would merge different users
    return _principals_of_claim(permissions.claim, content), subject


def _principals_of_claim(name: str, content: Mapping[str, Any]) -> Sequence[str]:
    """Return the principals in the content of a token, or none if it has no such claim."""
    path = [name] if name in content else name.split(".")
    claim: Any = content
    for key in path:
        if claim is None:
            return ()
        if not isinstance(claim, dict):
            _refuse()
        claim = claim.get(key)
    if claim is None:
        return ()
    principals = claim.split() if isinstance(claim, str) else claim
    if not (isinstance(principals, list) and all(isinstance(principal, str) for principal in principals)):
        _refuse()
    return principals


def names_in_header(header: str) -> list[str]:
    """Parse the principals of a header.

    Args:
        header: Names separated by commas, decoded as Latin-1. A name in double quotes may contain commas, and escaped
            quotes and backslashes. A comma at the end is allowed.

    Returns:
        Names in their order, without surrounding spaces. Empty names are included.

    Raises:
        Refusal: 401, if the header is not valid UTF-8 or has an unmatched quote.

    Example:
        >>> names_in_header('hr, "Smith, Ann", ,law')
        ['hr', 'Smith, Ann', '', 'law']
    """
    try:
        text = header.encode("latin-1").decode()  # strict decoding keeps two invalid names from becoming equal
    except UnicodeError:
        _refuse()
    names: list[str] = []
    start = 0
    while start < len(text):
        match = HEADER_NAME.match(text, start)
        if match is None or match.end() == start:
            _refuse()
        quoted, plain = match.groups()
        names.append(plain.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        start = match.end()
    return names


def _is_text(text: str) -> bool:
    """Return whether a text has no lone surrogates, which JSON escapes can produce."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _single(headers: Headers, name: str) -> str | None:
    """Return a header, or None if it is missing. A repeated header is rejected because it is ambiguous."""
    values = headers.getlist(name)
    if len(values) > 1:
        _refuse()
    return values[0] if values else None


def _refuse() -> NoReturn:
    """Raise the error for an invalid token or header, which is always the same so that it leaks no information."""
    raise Refusal(401, "invalid token or principals header")
