"""Record the results that were shown, for later feedback."""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from pydantic_core import to_json

from graphrerank.feedback.log import LIVE, SHOWN_EVENT
from graphrerank.serving import metrics
from graphrerank.serving.auth import NAMED, Caller, User
from graphrerank.serving.feedback_log import FeedbackStore
from graphrerank.serving.json_log import log
from graphrerank.serving.settings import FeedbackSettings

MAX_SHOWN = 100  # number of first results of a response that are recorded
MAX_IDS_BYTES = 16_384  # size of their ids as JSON, beyond which results are not recorded
MAX_EXPLORED = 10  # two adjacent ones of this many first results may be swapped
LOG_SECONDS = 60.0  # smallest time between two log lines about a feedback log that cannot be written


@dataclass(frozen=True)
class Answered:
    """Response of an engine, and the artifact that ranked it.

    Attributes:
        answer: A ``SearchResponse`` or ``RankedDocuments``.
        artifact: Name of the artifact. None if unknown.
        corpus: Fingerprint of the searched corpus. None if unknown.
        ranker: Kind of ranking, one of the names in :mod:`graphrerank.feedback.log`.
        teams: Name of the artifact of each interleaved result. None for other responses.
        between: Names of the two interleaved artifacts. None for other responses.
        is_explored: Whether adjacent results may be swapped.
    """

    answer: Any
    artifact: str | None = None
    corpus: str | None = None
    ranker: str = LIVE
    teams: Sequence[str] | None = None
    between: tuple[str, str] | None = None
    is_explored: bool = True


class Recorder:
    """Writes shown results to the feedback log, and swaps adjacent results if exploration is enabled.

    Args:
        log: Feedback log.
        settings: Settings of the log.
    """

    def __init__(self, log: FeedbackStore, settings: FeedbackSettings) -> None:
        self._log, self._explore = log, settings.explore
        self._next_line = 0.0  # earliest time of the next log line on the monotonic clock

    def record(self, job: Any, answered: Answered, uid: str, caller: Caller) -> Answered:
        """Record a response, and return it as it is shown.

        Args:
            job: Request, with a ``query``.
            answered: Response of the engine.
            uid: Id of the request.
            caller: Sender of the request.

        Returns:
            The response, in which two adjacent results may be swapped.
        """
        swaps = None
        count = min(len(answered.answer.ids), MAX_EXPLORED)
        if self._explore and answered.is_explored and answered.ranker == LIVE and count > 1:
            first = random.randrange(count - 1)
            swapped = random.random() < self._explore
            swaps = [[first + 1, first + 2, self._explore if swapped else 1 - self._explore]]
            if swapped:
                order = list(range(len(answered.answer.ids)))
                order[first : first + 2] = first + 1, first
                exchanged = answered.answer.picked(answered.answer, [(0, position) for position in order])
                answered = replace(answered, answer=exchanged)
        self.write(job, answered, uid, caller, **({} if swaps is None else {"swaps": swaps}))
        return answered

    def write(self, job: Any, answered: Answered, uid: str, caller: Caller, **more: Any) -> None:
        """Write a response with results to the log. If the log cannot be written, the response is only counted.

        Args:
            job: Request, with a ``query``.
            answered: Response to write.
            uid: Id of the request.
            caller: Sender of the request.
            **more: Additional entries of the event.
        """
        answer = answered.answer
        if not answer.ids:
            return
        count = _num_remembered(answer.ids)
        event = {
            "event": SHOWN_EVENT,
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
    """Return the key of the user of a request, or None if the request names nobody.

    The user is the caller if the service authenticates callers, otherwise the user that the request names. Keys of
    different kinds of users differ (:class:`~graphrerank.serving.auth.User`), so a name in a request cannot impersonate
    the subject of a token.

    Args:
        caller: Sender of the request.
        job: Request, which may have a ``user``.
    """
    named: str | None = getattr(job, "user", None)
    user = caller.user if named is None or caller.user is not None else User(NAMED, named)
    return None if user is None else user.key


def _num_remembered(ids: Sequence[str]) -> int:
    """Return the number of results to record: at most 100, with at most 16 KiB of ids."""
    sizes = accumulate(len(to_json(result_id)) + 1 for result_id in ids[:MAX_SHOWN])
    return sum(size <= MAX_IDS_BYTES for size in sizes)
