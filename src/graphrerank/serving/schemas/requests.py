"""Base classes and fields of request bodies, whose limits are the validation context."""

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
NO_CONFIDENCE = f"`return_confidence` needs an artifact with a `list_confidence`, this one has none; {CALIBRATE}"


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits of a request's validation; the defaults if it has none."""
    return info.context if isinstance(info.context, Limits) else Limits()


def check_most(most: int, count: int, name: str) -> None:
    """Require at most a number of something; ``name`` is that of its field."""
    if count > most:
        raise UserError(f"`{name}` must be at most {most}, got {count}")


def _check_query(query: str, info: ValidationInfo) -> str:
    if not query.strip():
        raise UserError("`query` must be a non-blank string")
    if len(query) > (most := limits_of(info).query_chars):
        raise UserError(f"`query` must have at most {most} characters, got {len(query)}")
    return query


Query = Annotated[str, Field(json_schema_extra={"minLength": 1, "pattern": r"\S"}), AfterValidator(_check_query)]


class EngineRequest(BaseModel):
    """A request that its engine answers as it is; a subclass has a method ``work``, some ``texts_to_encode``."""

    model_config = ConfigDict(extra="forbid")

    def to_job(self) -> Self:
        """Return the request: the engine needs all of it."""
        return self

    @property
    def bad_items(self) -> Counter[str]:
        """How many items are read otherwise than given, by what is done with them."""
        return Counter()


class CallerRequest(EngineRequest):
    """A request whose answer depends on who sends it.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
    """

    writes: ClassVar[bool] = False  # whether it needs the principal to write
    principals: list[str] = Field(default=[], max_length=1000)
    _caller: Caller = PrivateAttr(default=Caller())

    def sent_by(self, caller: Caller) -> None:
        """Note who sends the request; a refusal if it names principals and is not trusted, or may not write."""
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
            raise Refusal(422, "principals: come from the token or the proxy's header; see `permissions.trust_body`")
        if self.writes and not caller.may_write:
            raise Refusal(403, f"adding and deleting needs the principal `{WRITE}`")
        self._caller = caller

    @property
    def caller(self) -> Caller:
        """Who sends the request."""
        return self._caller


class QueryRequest(EngineRequest):
    """A request with a query.

    Attributes:
        query: The query, not blank.
    """

    query: Query

    def work(self) -> Work:
        """Estimate the work to search for the query, or to parse it."""
        counts = {"searches": 1, "search_query_characters": len(self.query)}
        return work_of(counts, encoded_chars=num_encoded_chars([self.query]), kind="search")

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the query, and no passage."""
        return [self.query], []
