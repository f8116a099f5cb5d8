"""``POST`` and ``DELETE /feedback``, and the record of what was shown that they are about."""

import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, model_validator
from pydantic_core import to_json

from graphrerank.feedback.log import EARLY, FEEDBACK, GAINS, INTERLEAVED, LIVE, SHOWN
from graphrerank.serving import metrics
from graphrerank.serving.callers import NAMED, Caller, User
from graphrerank.serving.engine import Check, Engine, Refusal
from graphrerank.serving.feedback_log import FeedbackSettings, FeedbackStore
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import CallerRequest, check_most, limits_of
from graphrerank.serving.prices import Work, work_of
from graphrerank.utils.checks import UserError

MAX_SHOWN = 100  # results of an answer that are remembered, the first ones
MAX_IDS_BYTES = 16_384  # of their ids as JSON: results beyond are not remembered
AHEAD = 60.0  # seconds that the clock of a client may be ahead
MAX_EXPLORED = 10  # results of which two neighbours may be exchanged
LOG_SECONDS = 60.0  # between two lines about a log that cannot be written

Shown = Annotated[list[Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)]], Field(fail_fast=True)]


@dataclass(frozen=True)
class Answered:
    """An engine's answer, a ``SearchResponse`` or ``RankedDocuments``, with the artifact that ranked."""

    answer: Any
    artifact: str | None = None
    corpus: str | None = None  # fingerprint
    ranker: str = LIVE
    teams: Sequence[str] | None = None  # of interleaved results: the artifact of each
    between: tuple[str, str] | None = None  # the artifacts that are interleaved


class Recorder:
    """Writes what is shown into the log, and exchanges neighbours if it is to explore."""

    def __init__(self, log: FeedbackStore, settings: FeedbackSettings) -> None:
        self._log, self._explore = log, settings.explore
        self._next_line = 0.0  # when a further one may be logged, of the monotonic clock

    def record(self, job: Any, answered: Answered, uid: str, caller: Caller) -> Answered:
        """Write the answer to a request, and return it as it is to be shown."""
        swaps = None
        count = min(len(answered.answer.ids), MAX_EXPLORED)
        if self._explore and answered.ranker == LIVE and count > 1:
            first = random.randrange(count - 1)
            swapped = random.random() < self._explore
            swaps = [[first + 1, first + 2, self._explore if swapped else 1 - self._explore]]
            if swapped:
                order = list(range(len(answered.answer.ids)))
                order[first : first + 2] = first + 1, first
                exchanged = answered.answer.picked(answered.answer, [(0, place) for place in order])
                answered = replace(answered, answer=exchanged)
        self.write(job, answered, uid, caller, **({} if swaps is None else {"swaps": swaps}))
        return answered

    def write(self, job: Any, answered: Answered, uid: str, caller: Caller, **more: Any) -> None:
        """Write an answer that has results; where the log cannot be written, it is counted."""
        answer = answered.answer
        if not answer.ids:
            return
        count = _num_remembered(answer.ids)
        event = {
            "event": SHOWN,
            "request_id": uid,
            "time": round(time.time(), 3),
            **self._log.sender(caller, user_named(caller, job)),
            **self._log.query(job.query),
            "ids": answer.ids[:count],
            "scores": [round(score, 6) for score in answer.scores[:count]],
            "artifact": answered.artifact,
            "corpus": answered.corpus,
            "ranker": answered.ranker,
            **more,
        }
        if answered.teams is not None:
            event |= {"teams": answered.teams[:count], "between": answered.between}
        try:
            self._log.append(event)
        except OSError as error:
            metrics.FEEDBACK.labels("lost").inc()
            if time.monotonic() > self._next_line:
                log("feedback log could not be written", level=logging.ERROR, error=error)
                self._next_line = time.monotonic() + LOG_SECONDS


def user_named(caller: Caller, job: Any) -> str | None:
    """Return the key of the user that a request is of: the caller where the service knows callers, else whom it names.

    Users of different kinds have different keys (:class:`~graphrerank.serving.callers.User`), so that nobody can take
    another's name, whatever a token's subject or a request says. None for a request that names nobody.
    """
    named: str | None = getattr(job, "user", None)
    user = caller.user if named is None or caller.user is not None else User(NAMED, named)
    return None if user is None else user.key


def _num_remembered(ids: Sequence[str]) -> int:
    """Return how many results of an answer are remembered: at most 100, and 16 KiB of ids."""
    sizes = accumulate(len(to_json(each)) + 1 for each in ids[:MAX_SHOWN])
    return sum(size <= MAX_IDS_BYTES for size in sizes)


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

    id: str  # of this request, as in the logs
    events: int  # written, or deleted
    meta: dict[str, Any] = {}


class FeedbackEngine(Engine[AddFeedback | RemoveFeedback]):
    """Writes the feedback of a batch of requests at once."""

    def __init__(self, log: FeedbackStore) -> None:
        self._log = log

    def answer(self, jobs: Mapping[str, AddFeedback | RemoveFeedback], check: Check = lambda: None) -> dict[str, Any]:
        """Answer when the events are written, by id."""
        answers: dict[str, Any] = {}
        events: dict[str, dict[str, Any]] = {}
        for uid, job in jobs.items():
            check()
            if isinstance(job, AddFeedback):
                try:
                    events[uid] = self._event(job)
                except Refusal as refusal:
                    answers[uid] = refusal
            else:
                answers[uid] = FeedbackResponse(id=uid, events=self._log.forget(job.user, job.kind))
        try:
            if events:
                self._log.append(*events.values())
        except OSError as error:
            log("feedback log could not be written", level=logging.ERROR, error=error)
            return answers | dict.fromkeys(events, Refusal(507, "the feedback could not be written"))
        for event in events.values():
            for kind in GAINS:
                metrics.FEEDBACK.labels(kind).inc(len(event.get(kind, ())))
        return answers | {uid: FeedbackResponse(id=uid, events=1) for uid in events}

    def warm_up(self) -> None:
        """Index what was shown before."""
        self._log.find("0" * 36)

    def _event(self, job: AddFeedback) -> dict[str, Any]:
        """Return what is written; raise a refusal: the same for what others were shown as for what was never shown."""
        shown, user = self._log.find(job.request_id), user_named(job.caller, job)
        named = None if user is None else self._log.pseudonym(user)
        if shown is None or named not in (None, shown["user"]):
            raise Refusal(404, "request_id: must be of an answer that this caller was shown and the service remembers")
        now = round(time.time(), 3)
        moment = now if job.time is None else job.time
        event: dict[str, Any] = {"event": FEEDBACK, "request_id": job.request_id, "time": moment}
        if not shown["time"] - EARLY <= moment <= now + AHEAD:
            raise Refusal(
                422,
                f"time: must be between the time of the answer and now, in seconds since 1970, got {job.time}",
                [{"loc": ["time"], "msg": "must be between the answer and now", "type": "value_error"}],
            )
        sender = self._log.sender(job.caller, user_named(job.caller, job))
        sender["authenticated"] &= shown.get("authenticated", False)
        event |= {**sender, "user": shown["user"], "weight": job.weight}
        ids = shown["ids"]
        for kind in GAINS:
            named_ids = []
            for place, result in enumerate(getattr(job, kind)):
                if isinstance(result, int) and 1 <= result <= len(ids):
                    named_ids.append(ids[result - 1])
                elif result in ids:
                    named_ids.append(result)
                else:
                    raise Refusal(
                        422,
                        f"{kind}.{place}: must be the rank, 1 to {len(ids)}, or the id of a result that was shown",
                        [{"loc": [kind, place], "msg": "must be a result that was shown", "type": "value_error"}],
                    )
            event |= {kind: list(dict.fromkeys(named_ids))} if named_ids else {}
        return event | _outcome(shown, event)


def _outcome(shown: Mapping[str, Any], feedback: Mapping[str, Any]) -> dict[str, str]:
    """Return which artifact ``won`` and which ``lost`` an interleaved list by feedback on it; empty for a tie."""
    if shown["ranker"] != INTERLEAVED:
        return {}
    team_of, gains = dict(zip(shown["ids"], shown["teams"], strict=True)), Counter(dict.fromkeys(shown["between"], 0))
    bad = set(feedback.get("dismissed", ()))
    good = {each for kind in GAINS for each in feedback.get(kind, ())} - bad
    gains.update(map(team_of.__getitem__, good))
    gains.subtract(map(team_of.__getitem__, bad))
    (won, most), (lost, least) = gains.most_common(2)
    return {"won": won, "lost": lost} if most > least else {}
