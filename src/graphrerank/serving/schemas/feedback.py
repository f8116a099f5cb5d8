"""``POST`` and ``DELETE /feedback``: requests and answers."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, model_validator

from graphrerank.feedback.log import GAINS
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.requests import CallerRequest, check_most, limits_of
from graphrerank.utils.checks import UserError

AHEAD = 60.0  # seconds that the clock of a client may be ahead
Shown = Annotated[list[Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)]], Field(fail_fast=True)]


class AddFeedback(CallerRequest):
    """Body of ``POST /feedback``: what became of results of one answer, at least one of the four lists.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
        request_id: ``id`` of the answer, or its header ``x-request-id``.
        clicked: Results that were opened: ranks from 1, or ids, of ``POST /v2/rerank`` the document's index as a text.
        cited: Results that a written answer cites.
        accepted: Results that were said to be right.
        dismissed: Results that were said to be wrong.
        weight: How much it counts, up to 10; above 1 only of an authenticated user.
        time: Seconds since 1970, not before the answer and not in the future; None for now.
        user: Who gives it, where the service knows no callers; the ``user`` of the answered request.
    """

    request_id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", strict=True)]
    clicked: Shown = Field([])
    cited: Shown = Field([])
    accepted: Shown = Field([])
    dismissed: Shown = Field([])
    weight: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False, strict=True)] = 1.0
    time: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False, strict=True)] | None = None
    user: Annotated[str, Field(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _says_something(self, info: ValidationInfo) -> Self:
        if not any(getattr(self, kind) for kind in GAINS):
            raise UserError(f"one of {', '.join(f'`{kind}`' for kind in GAINS)} must name a result, got none")
        for kind in GAINS:
            check_most(limits_of(info).documents, len(getattr(self, kind)), kind)
        return self

    def work(self) -> Work:
        """Estimate the work to write it."""
        return work_of({"feedback": 1}, kind="write")


class RemoveFeedback(CallerRequest):
    """Query of ``DELETE /feedback?user=USER``, or its body.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
        user: Whose events are deleted: ``sub`` of tokens; where there is none the principals, as a JSON list or with
            commas between them; or the ``user`` that requests named.
        kind: Which of these it is: ``sub``, ``principals`` or ``name``. None for users of all kinds with this name.
    """

    writes: ClassVar[bool] = True
    user: Annotated[str, Field(max_length=10_000)]
    kind: Literal["sub", "principals", "name"] | None = None

    def work(self) -> Work:
        """Estimate the work to read the log."""
        return work_of({"feedback": 100}, kind="delete")


class FeedbackResponse(BaseModel):
    """Response of ``POST`` and ``DELETE /feedback``: what it says is done."""

    #: Id of this request, as in the logs.
    id: str
    #: Number of events that were written or deleted.
    events: int
    #: Warnings, if there are any.
    meta: dict[str, Any] = {}
