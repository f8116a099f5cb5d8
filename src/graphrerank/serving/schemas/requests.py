"""Base classes and fields of request bodies. The context of their validation is the limits of the service."""

from collections import Counter
from dataclasses import replace
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo

from graphrerank.calibration.list_confidence import CALIBRATE
from graphrerank.serving.auth import WRITE, Caller, User
from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.work_estimates import num_encoded_chars
from graphrerank.utils.checks import UserError

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
NO_CONFIDENCE = f"`return_confidence` needs an artifact with a `list_confidence`, but this one has none. {CALIBRATE}"


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits of the service, or the default limits if the context has none.

    Args:
        info: Context of the validation.
    """
    return info.context if isinstance(info.context, Limits) else Limits()


def check_most(limit: int, count: int, name: str) -> None:
    """Check that a number does not exceed a limit.

    Args:
        limit: Largest allowed number.
        count: Number to check.
        name: Name of the field, for the error message.

    Raises:
        UserError: If ``count`` exceeds ``limit``.
    """
    if count > limit:
        raise UserError(f"`{name}` must have at most {limit} entries, got {count}")


def _check_query(query: str, info: ValidationInfo) -> str:
    if not query.strip():
        raise UserError("`query` must be a non-blank string")
    limit = limits_of(info).query_chars
    if len(query) > limit:
        raise UserError(f"`query` must have at most {limit} characters, got {len(query)}")
    return query


Query = Annotated[str, Field(json_schema_extra={"minLength": 1, "pattern": r"\S"}), AfterValidator(_check_query)]


class EngineRequest(BaseModel):
    """Request that is itself the job of its engine.

    A subclass has a method ``work``, and a method ``texts_to_encode`` if its engine needs vectors.
    """

    model_config = ConfigDict(extra="forbid")

    def to_job(self) -> Self:
        """Return the request as the job of the engine."""
        return self

    @property
    def bad_items(self) -> Counter[str]:
        """Number of problematic items, keyed by how they were handled."""
        return Counter()


class CallerRequest(EngineRequest):
    """Request whose response depends on its sender."""

    #: Whether the sender needs the principal ``write``.
    writes: ClassVar[bool] = False
    principals: list[str] = Field(
        default=[],
        max_length=1000,
        description="Principals of the caller. Allowed only if the service trusts requests (`permissions.trust_body`).",
    )
    _caller: Caller = PrivateAttr(default=Caller())

    def sent_by(self, caller: Caller) -> None:
        """Set the sender of the request.

        Args:
            caller: Sender of the request.

        Raises:
            Refusal: If the request names principals and is not trusted to, or if the sender may not write.
        """
        if caller.trusts_body:
            principals = caller.principals.union(self.principals)
            caller = replace(
                caller,
                principals=principals,
                may_write=WRITE in principals,
                user=User.holding(principals),
                authenticated=caller.authenticated and not self.principals,
            )
        elif self.principals:
            raise Refusal(
                422,
                "principals: must come from the token or the proxy's header, not from the request; see "
                "`permissions.trust_body`",
            )
        if self.writes and not caller.may_write:
            raise Refusal(403, f"adding and deleting require the principal `{WRITE}`")
        self._caller = caller

    @property
    def caller(self) -> Caller:
        """Sender of the request."""
        return self._caller


class QueryRequest(EngineRequest):
    """Request with a query."""

    query: Query = Field(description="Text of the query. Must not be blank.")

    def work(self) -> Work:
        """Return the estimated work to search for the query."""
        counts = {"searches": 1, "search_query_characters": len(self.query)}
        return work_of(counts, encoded_chars=num_encoded_chars([self.query]), kind="search")

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the queries and the passages (none) to encode."""
        return [self.query], []
