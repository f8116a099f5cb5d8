"""Authenticate callers: principals come from a signed token or from the header of a trusted proxy."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import Headers

from graphrerank.data.dataset import STATISTICS
from graphrerank.installation.extras import require_extra
from graphrerank.serving.engine import Refusal
from graphrerank.utils.checks import UserError, check_choice

ALGORITHMS = ("HS256", "RS256")
WRITE = "write"  # principal required to add and delete documents
KEY_BYTES = 32  # smallest size of an HS256 key, the size of its hash


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


@dataclass(frozen=True)
class PermissionSettings:
    """Source of the callers' principals. If none of these settings is used, only public documents are searched.

    Attributes:
        algorithm: Algorithm of the tokens in `Authorization: Bearer TOKEN`. One of: HS256, RS256, null (no tokens).
        key: Key to verify tokens: a secret of at least 32 bytes for HS256, or a public key in PEM format for RS256.
        audience: Audience that a token must have.
        issuer: Issuer that a token must have. null accepts any issuer.
        claim: Claim of a token with the principals: a list, or a string of names separated by spaces. Dots separate
            nested claims, as in realm_access.roles.
        header: Header with the principals, used instead of tokens. Names are separated by commas; a name that contains
            commas must be in double quotes. A proxy must set or remove the header in every request. null disables it.
        trust_body: Whether requests may name their own `principals`. Only for trials and trusted clients.
        statistics: Passages whose word frequencies and derived edges are used. One of: visible (only those visible to
            the caller), global (the whole corpus). global is faster, but leaks information about hidden documents.

    Raises:
        ValueError: If a setting is invalid.
    """

    algorithm: str | None = None
    key: str | None = field(default=None, repr=False)
    audience: str | None = None
    issuer: str | None = None
    claim: str = "principals"
    header: str | None = None
    trust_body: bool = False
    statistics: str = "visible"

    def __post_init__(self) -> None:
        check_choice(STATISTICS, **{"permissions.statistics": self.statistics})
        if self.algorithm is None:
            return
        check_choice(ALGORITHMS, **{"permissions.algorithm": self.algorithm})
        require_extra("serve", f"permissions.algorithm={self.algorithm}")
        if not self.key or not self.audience:
            raise UserError("`permissions.key` and `permissions.audience` must be set to verify tokens, got none")
        if self.algorithm == "HS256" and len(self.key.encode()) < KEY_BYTES:
            raise UserError(f"`permissions.key` must have at least {KEY_BYTES} bytes for HS256, got {len(self.key)}")
        if self.algorithm == "RS256" and "PUBLIC KEY" not in self.key:
            raise UserError("`permissions.key` must be a public key in PEM format for RS256")
        if self.header is not None:
            raise UserError("`permissions.header` must be null if `permissions.algorithm` is set")

    @property
    def are_set(self) -> bool:
        """Whether callers can have principals."""
        return self.algorithm is not None or self.header is not None or self.trust_body

    def caller(self, headers: Headers) -> Caller:
        """Return the sender of a request.

        Args:
            headers: Headers of the request.

        Returns:
            The sender, without principals if the request has no token and no header of principals.

        Raises:
            Refusal: 401, if the token or header is invalid in any way.
        """
        if not self.are_set:
            return Caller()
        names: Sequence[str] = ()
        subject = None
        if self.algorithm is not None and (credentials := _single(headers, "authorization")) is not None:
            scheme, _, token = credentials.partition(" ")
            if scheme.lower() != "bearer":
                _wrong()
            names, subject = self._of_token(token.strip())
        elif self.header is not None and (header := _single(headers, self.header)) is not None:
            names = names_in_header(header)
        principals = frozenset(name for name in names if name)
        user = User.holding(principals) if subject is None else User(SUBJECT, subject)
        return Caller(
            principals,
            self.trust_body,
            may_write=WRITE in principals,
            user=user,
            authenticated=subject is not None or bool(principals),
        )

    def _of_token(self, token: str) -> tuple[Sequence[str], str | None]:
        """Return the principals and the subject of a token."""
        import jwt

        assert self.algorithm is not None
        settings: Any = {"issuer": self.issuer, "options": {"require": ["exp", "aud"]}}
        try:
            content: Any = jwt.decode(
                token, self.key or "", algorithms=[self.algorithm], audience=self.audience, **settings
            )
        except (jwt.PyJWTError, ValueError):
            _wrong()
        subject = content.get("sub")
        if subject is not None and not (isinstance(subject, str) and subject.strip() and _is_text(subject)):
            _wrong()  # an empty subject would merge different users
        return self._principals_of_claim(content), subject

    def _principals_of_claim(self, content: Mapping[str, Any]) -> Sequence[str]:
        """Return the principals in the content of a token, or none if it has no such claim."""
        path = [self.claim] if self.claim in content else self.claim.split(".")
        claim: Any = content
        for name in path:
            if claim is None:
                return ()
            if not isinstance(claim, dict):
                _wrong()
            claim = claim.get(name)
        if claim is None:
            return ()
        principals = claim.split() if isinstance(claim, str) else claim
        if not (isinstance(principals, list) and all(isinstance(principal, str) for principal in principals)):
            _wrong()
        return principals


def names_in_header(given: str) -> list[str]:
    """Parse the principals of a header.

    Args:
        given: Names separated by commas, decoded as Latin-1. A name in double quotes may contain commas, and escaped
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
        text = given.encode("latin-1").decode()  # strict decoding keeps two invalid names from becoming equal
    except UnicodeError:
        _wrong()
    names, start = [], 0
    while start < len(text):
        match = HEADER_NAME.match(text, start)
        if match is None or match.end() == start:
            _wrong()
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
        _wrong()
    return values[0] if values else None


def _wrong() -> NoReturn:
    """Raise the error for an invalid token or header, which is always the same so that it leaks no information."""
    raise Refusal(401, "invalid token or principals header")
