"""Requests and responses of ``POST`` and ``DELETE /feedback``."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, model_validator

from graphrerank.feedback.log import GAINS, WITHDRAWN
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.requests import CallerRequest, check_most, limits_of
from graphrerank.utils.checks import UserError

FEEDBACK_LISTS = (*GAINS, WITHDRAWN)  # fields with lists of results
AHEAD = 60.0  # number of seconds by which the clock of a client may be ahead
Shown = Annotated[list[Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)]], Field(fail_fast=True)]


class AddFeedback(CallerRequest):
    """Body of ``POST /feedback``: feedback on the results of one response, in at least one of the five lists."""

    request_id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", strict=True)] = Field(
        description="`id` of the response, or its header `x-request-id`."
    )
    clicked: Shown = Field(
        default=[],
        description="Results that the user opened: 1-based ranks, or ids. The id of a document of `POST /v2/rerank` is "
        "its index as a string.",
    )
    cited: Shown = Field(default=[], description="Results that a generated answer cites.")
    accepted: Shown = Field(default=[], description="Results that the user judged as correct.")
    dismissed: Shown = Field(default=[], description="Results that the user judged as wrong.")
    withdrawn: Shown = Field(
        default=[],
        description="Results of which all earlier feedback no longer counts. The other lists of this request replace "
        "that feedback.",
    )
    weight: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False, strict=True)] = Field(
        default=1.0, description="Weight of the feedback. Above 1, it has an effect only for an authenticated user."
    )
    time: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False, strict=True)] | None = Field(
        default=None,
        description="Time of the feedback in seconds since 1970, between the response and now. null is now.",
    )
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None,
        description="`user` of the original request, if the service does not authenticate callers.",
    )

    @model_validator(mode="after")
    def _says_something(self, info: ValidationInfo) -> Self:
        if not any(getattr(self, kind) for kind in FEEDBACK_LISTS):
            raise UserError(f"one of {', '.join(f'`{kind}`' for kind in FEEDBACK_LISTS)} must have a result, got none")
        for kind in FEEDBACK_LISTS:
            check_most(limits_of(info).documents, len(getattr(self, kind)), kind)
        return self

    def work(self) -> Work:
        """Return the estimated work to log the feedback."""
        return work_of({"feedback": 1}, kind="write")


class RemoveFeedback(CallerRequest):
    """Query of ``DELETE /feedback?user=USER``, or its body."""

    writes: ClassVar[bool] = True
    user: Annotated[str, Field(max_length=10_000)] = Field(
        description="User whose events are deleted: the `sub` of tokens; without it, the principals as a JSON list or "
        "separated by commas; or the `user` that requests named."
    )
    kind: Literal["sub", "principals", "name"] | None = Field(
        default=None, description="Kind of `user`. null deletes the events of users of all kinds with this name."
    )

    def work(self) -> Work:
        """Return the estimated work to search the log."""
        return work_of({"feedback": 100}, kind="delete")


class FeedbackResponse(BaseModel):
    """Response of ``POST`` and ``DELETE /feedback``. The change is already in the log."""

    id: str = Field(description="Id of this request, which is also in the logs.")
    events: int = Field(description="Number of events that were written or deleted.")
    meta: dict[str, Any] = Field(default={}, description="`warnings`, if there are any.")
