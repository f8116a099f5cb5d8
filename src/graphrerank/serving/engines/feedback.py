"""Engine of ``/feedback``, which logs feedback of users and deletes their events."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from graphrerank.feedback.log import FEEDBACK_EVENT, GAINS, INTERLEAVED_EVENT, MAX_EARLY_SECONDS
from graphrerank.serving import metrics
from graphrerank.serving.engine import Check, Engine, Refusal
from graphrerank.serving.feedback_log import FeedbackStore
from graphrerank.serving.json_log import log
from graphrerank.serving.recorder import user_named
from graphrerank.serving.schemas.feedback import AHEAD, FEEDBACK_LISTS, AddFeedback, FeedbackResponse, RemoveFeedback


class FeedbackEngine(Engine[AddFeedback | RemoveFeedback]):
    """Logs the feedback of a batch of requests in one write.

    Args:
        log: Feedback log.
    """

    def __init__(self, log: FeedbackStore) -> None:
        self._log = log

    def answer(self, jobs: Mapping[str, AddFeedback | RemoveFeedback], check: Check = lambda: None) -> dict[str, Any]:
        """Answer a batch of requests after their events are written.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Response or refusal of each request by id.
        """
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
            for kind in FEEDBACK_LISTS:
                metrics.FEEDBACK.labels(kind).inc(len(event.get(kind, ())))
        return answers | {uid: FeedbackResponse(id=uid, events=1) for uid in events}

    def warm_up(self) -> None:
        """Index the results that were shown before."""
        self._log.find("0" * 36)

    def _event(self, job: AddFeedback) -> dict[str, Any]:
        """Return the event to write.

        Raises:
            Refusal: If the feedback is invalid. The refusal is the same for results that were shown to another user and
                for results that were never shown.
        """
        user = user_named(job.caller, job)
        shown = self._shown(job, user)
        now = round(time.time(), 3)
        moment = now if job.time is None else job.time
        if not shown["time"] - MAX_EARLY_SECONDS <= moment <= now + AHEAD:
            raise Refusal(
                422,
                f"time: must be between the time of the response and now, in seconds since 1970, got {job.time}",
                [{"loc": ["time"], "msg": "must be between the response and now", "type": "value_error"}],
            )
        sender = self._log.sender(job.caller, user)
        sender["authenticated"] &= shown.get("authenticated", False)
        event: dict[str, Any] = {
            "event": FEEDBACK_EVENT,
            "request_id": job.request_id,
            "time": moment,
            **sender,
            "user": shown["user"],
            "weight": job.weight,
        }
        for kind in FEEDBACK_LISTS:
            named_ids = _named_ids(kind, getattr(job, kind), shown["ids"])
            if named_ids:
                event[kind] = named_ids
        return event | _outcome(shown, event)

    def _shown(self, job: AddFeedback, user: str | None) -> Mapping[str, Any]:
        """Return the logged response that the feedback is about, if it was shown to the user."""
        shown = self._log.find(job.request_id)
        pseudonym = None if user is None else self._log.pseudonym(user)
        if shown is None or pseudonym not in (None, shown["user"]):
            raise Refusal(404, "request_id: must be the id of a logged response to this caller")
        return shown


def _named_ids(kind: str, results: Sequence[int | str], ids: Sequence[str]) -> list[str]:
    """Return the ids of results that feedback names by rank or by id, without duplicates.

    Args:
        kind: Name of the list in the feedback, for the error message.
        results: 1-based ranks or ids.
        ids: Ids of the results that were shown.
    """
    named_ids = []
    for index, result in enumerate(results):
        if isinstance(result, int) and 1 <= result <= len(ids):
            named_ids.append(ids[result - 1])
        elif isinstance(result, str) and result in ids:
            named_ids.append(result)
        else:
            raise Refusal(
                422,
                f"{kind}.{index}: must be the rank, 1 to {len(ids)}, or the id of a result that was shown",
                [{"loc": [kind, index], "msg": "must be a result that was shown", "type": "value_error"}],
            )
    return list(dict.fromkeys(named_ids))


def _outcome(shown: Mapping[str, Any], feedback: Mapping[str, Any]) -> dict[str, str]:
    """Return which artifact ``won`` and which ``lost`` an interleaved list, or an empty dictionary for a tie."""
    if shown["ranker"] != INTERLEAVED_EVENT:
        return {}
    artifact_of = dict(zip(shown["ids"], shown["teams"], strict=True))
    dismissed = set(feedback.get("dismissed", ()))
    good = {result for kind in GAINS for result in feedback.get(kind, ())} - dismissed
    gains = Counter(dict.fromkeys(shown["between"], 0))
    gains.update(artifact_of[result] for result in good)
    gains.subtract(artifact_of[result] for result in dismissed)
    (winner, winner_gain), (loser, loser_gain) = gains.most_common(2)
    return {"won": winner, "lost": loser} if winner_gain > loser_gain else {}
