"""Who sends a request: principals from a signed token, or from the header of a trusted proxy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.datastructures import Headers

from graphrerank.checks import UserError, check_choice
from graphrerank.data.dataset import STATISTICS
from graphrerank.extras import require_extra
from graphrerank.serving.engine import Refusal

ALGORITHMS = ("HS256", "RS256")
WRITE = "write"  # the principal of those who may add and delete documents
KEY_BYTES = 32  # of a key of HS256, at least: as many as of its hash


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    principals: frozenset[str] = frozenset()
    trusts_body: bool = False  # whether the request may name principals itself
    may_write: bool = True  # whether it may add and delete documents, and delete feedback
    user: str | None = None  # `sub` of the token, else the principals; None: the service knows no callers


@dataclass(frozen=True)
class PermissionSettings:
    """Where principals come from; without any, only public documents are searched.

    A ValueError if a setting does not fit.
    """

    algorithm: str | None = None  # of tokens, HS256 or RS256; None: no tokens are read
    key: str | None = field(default=None, repr=False)  # a secret, or a public key in PEM
    audience: str | None = None  # that a token must name
    issuer: str | None = None  # that a token must name; None: any
    claim: str = "principals"  # of a token: a list, or a text with blanks between names; dots: its own, or nested ones
    header: str | None = None  # of a proxy, which sets or removes it in every request; commas between names
    trust_body: bool = False  # whether requests may name their principals: for trials, and trusted clients alone
    statistics: str = "visible"  # global: of the whole corpus, quicker, which tells something of what is hidden

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
            names, subject = self._of_token(token.strip()) if scheme.lower() == "bearer" else _wrong()
        elif self.header is not None and (given := _single(headers, self.header)) is not None:
            names = given.encode("latin-1").decode("utf-8", "replace").split(",")
        principals = frozenset(name for name in map(str.strip, names) if name)
        caller = Caller(principals, self.trust_body, may_write=WRITE in principals, user=user_of(principals))
        return caller if subject is None else replace(caller, user=subject)

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
        for part in [self.claim] if self.claim in content else self.claim.split("."):
            content = content.get(part) if isinstance(content, dict) else content if content is None else _wrong()
        if content is None:
            return (), subject
        names = content.split() if isinstance(content, str) else content
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            _wrong()
        return names, subject


def user_of(principals: Iterable[str]) -> str:
    """Return the user that some principals are, where nothing else names one."""
    return ",".join(sorted(principals))


def _single(headers: Headers, name: str) -> str | None:
    """Return a header; two of one name could be read in two ways."""
    given = headers.getlist(name)
    return _wrong() if len(given) > 1 else given[0] if given else None


def _wrong() -> Any:
    raise Refusal(401, "the token or the header of principals is wrong")
