"""Who sends a request: principals from a signed token, or from the header of a trusted proxy."""

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
WRITE = "write"  # the principal of those who may add and delete documents
KEY_BYTES = 32  # of a key of HS256, at least: as many as of its hash


SUBJECT, PRINCIPALS, NAMED = "sub", "principals", "name"  # kinds of users
USER_KINDS = (SUBJECT, PRINCIPALS, NAMED)
# a principal in a header: between double quotes, where a backslash escapes a quote or a backslash, or without quotes
HEADER_NAME = re.compile(r'[ \t]*(?:"((?:[^"\\]|\\["\\])*)"|([^",]*))[ \t]*(?:,|\Z)')


class User(NamedTuple):
    """Who a request is of: users of different kinds are different users, whatever their names.

    Attributes:
        kind: ``sub`` for the subject of a token, ``principals`` for all holders of the same principals where nothing
            else tells users apart, or ``name`` for what a request says of itself.
        name: The name. Principals are a JSON list in ascending order, so that names with commas stay apart.
    """

    kind: str
    name: str

    @classmethod
    def holding(cls, principals: Iterable[str]) -> "User":
        """Return the user that the holders of some principals are together."""
        return cls(PRINCIPALS, json.dumps(sorted(set(principals))))

    @classmethod
    def called(cls, name: str, kind: str | None = None) -> "list[User]":
        """List the users that somebody may mean by a name, for example to forget them.

        Args:
            name: A subject, a name of requests, or principals: a JSON list, or names with commas between.
            kind: The kind of user that is meant. If None, all kinds.

        Raises:
            UserError: If there is no such kind.
        """
        if kind is not None:
            check_choice(USER_KINDS, kind=kind)
        users = [cls(SUBJECT, name), cls(NAMED, name), cls.holding(part for part in name.split(",") if part)]
        try:
            listed = json.loads(name)
        except ValueError:
            listed = None
        if isinstance(listed, list) and all(isinstance(principal, str) for principal in listed):
            users.append(cls.holding(listed))
        return [user for user in users if kind in (None, user.kind)]

    @property
    def key(self) -> str:
        """A text that no other user has."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Caller:
    """Sender of a request.

    Attributes:
        principals: Principals of the sender, which decide what they see.
        trusts_body: Whether the request may name principals itself.
        may_write: Whether the sender may add and delete documents, and delete feedback.
        user: The subject of the token, or else the principals. None if the service knows no callers.
        authenticated: Whether a token or the header of a trusted proxy says who ``user`` is. False if the request named
            principals itself, or named none.
        address: Network address of the connection, which is the proxy's where there is one. None if it is unknown.
    """

    principals: frozenset[str] = frozenset()
    trusts_body: bool = False
    may_write: bool = True
    user: User | None = None
    authenticated: bool = False
    address: str | None = None

    @property
    def known_user(self) -> str | None:
        """Key of the user; None for callers whom nothing tells apart, neither a subject nor a principal."""
        return None if self.user is None or self.user == User.holding(()) else self.user.key


@dataclass(frozen=True)
class PermissionSettings:
    """Source of the callers' principals. Without any of these settings only public documents are searched.

    Attributes:
        algorithm: Algorithm of the tokens in `Authorization: Bearer TOKEN`. One of: HS256, RS256, null (no tokens).
        key: Key that checks tokens: a secret of at least 32 bytes, or a public key in PEM.
        audience: Audience that a token must name.
        issuer: Issuer that a token must name. null accepts any.
        claim: Claim of a token that holds the principals: a list, or a text with blanks between names. Dots separate
            nested claims, as in realm_access.roles.
        header: Header with the principals in place of tokens, separated by commas, with double quotes around a name
            with commas. A proxy must set or remove it in every request. null reads none.
        trust_body: Whether requests may name their own `principals`, which is for trials and trusted clients.
        statistics: Passages whose word frequencies and found edges are used. One of: visible (those that the caller may
            see), global (the whole corpus, quicker, but it tells something of what is hidden).

    Raises:
        ValueError: If a setting does not fit.
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
            raise UserError("`permissions.key` and `permissions.audience` must be given to check tokens, got none")
        if self.algorithm == "HS256" and len(self.key.encode()) < KEY_BYTES:
            raise UserError(f"`permissions.key` must have at least {KEY_BYTES} bytes for HS256, got {len(self.key)}")
        if self.algorithm == "RS256" and "PUBLIC KEY" not in self.key:
            raise UserError("`permissions.key` must be a public key in PEM for RS256")
        if self.header is not None:
            raise UserError("`permissions.header` must be null where tokens are read")

    @property
    def are_set(self) -> bool:
        """Whether principals come from anywhere."""
        return self.algorithm is not None or self.header is not None or self.trust_body

    def caller(self, headers: Headers) -> Caller:
        """Read who sends a request; a refusal, 401, for a token that is wrong in any way."""
        if not self.are_set:
            return Caller()
        names: Sequence[str] = ()
        subject = None
        if self.algorithm is not None and (given := _single(headers, "authorization")) is not None:
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer":
                _wrong()
            names, subject = self._of_token(token.strip())
        elif self.header is not None and (given := _single(headers, self.header)) is not None:
            names = names_in_header(given)
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
        """Return the principals and the subject."""
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
            _wrong()  # all who have an empty one would be one user
        return self._principals_of_claim(content), subject

    def _principals_of_claim(self, content: Mapping[str, Any]) -> Sequence[str]:
        """Return the principals in a token's content; none if it has no claim."""
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
    """Read the principals of a header.

    Args:
        given: Names between commas, as the server decodes a header (Latin-1). A name between double quotes may contain
            commas, and quotes and backslashes after a backslash. Nothing follows the last comma.

    Returns:
        Names without surrounding blanks, in their order; empty ones too.

    Raises:
        Refusal: 401, if the header is not UTF-8 or has an odd quote.

    Example:
        >>> names_in_header('hr, "Smith, Ann", ,law')
        ['hr', 'Smith, Ann', '', 'law']
    """
    try:
        text = given.encode("latin-1").decode()  # headers are bytes: two broken names must not become one
    except UnicodeError:
        _wrong()
    names, start = [], 0
    while start < len(text):
        found = HEADER_NAME.match(text, start)
        if found is None or found.end() == start:
            _wrong()
        quoted, plain = found.groups()
        names.append(plain.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        start = found.end()
    return names


def _is_text(text: str) -> bool:
    """Return whether a text has no half of a character, which JSON can escape."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _single(headers: Headers, name: str) -> str | None:
    """Return a header; two of one name could be read in two ways."""
    given = headers.getlist(name)
    if len(given) > 1:
        _wrong()
    return given[0] if given else None


def _wrong() -> NoReturn:
    """Refuse a request whose token or header is invalid; always the same, so that it tells nothing."""
    raise Refusal(401, "the token or the header of principals is wrong")
