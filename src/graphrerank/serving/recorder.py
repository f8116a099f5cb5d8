"""Records of the results that were shown, which feedback is about."""

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
from graphrerank.serving.feedback_log import FeedbackSettings, FeedbackStore
from graphrerank.serving.json_log import log

MAX_SHOWN = 100  # results of an answer that are remembered, the first ones
MAX_IDS_BYTES = 16_384  # of their ids as JSON: results beyond are not remembered
MAX_EXPLORED = 10  # results of which two neighbours may be exchanged
LOG_SECONDS = 60.0  # between two lines about a log that cannot be written


@dataclass(frozen=True)
class Answered:
    """An engine's answer, and the artifact that ranked it.

    Attributes:
        answer: A ``SearchResponse`` or ``RankedDocuments``.
        artifact: Name of the artifact. None if it is unknown.
        corpus: Fingerprint of the corpus that was searched. None if it is unknown.
        ranker: How the results were ranked, one of the names in :mod:`graphrerank.feedback.log`.
        teams: Name of the artifact of each interleaved result. None for other answers.
        between: Names of the two artifacts that are interleaved. None for other answers.
    """

    answer: Any
    artifact: str | None = None
    corpus: str | None = None
    ranker: str = LIVE
    teams: Sequence[str] | None = None
    between: tuple[str, str] | None = None


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
    """Return the key of the user that a request is of: the caller where the service knows callers, else whom it names.

    Users of different kinds have different keys (:class:`~graphrerank.serving.auth.User`), so that nobody can take
    another's name, whatever a token's subject or a request says. None for a request that names nobody.
    """
    named: str | None = getattr(job, "user", None)
    user = caller.user if named is None or caller.user is not None else User(NAMED, named)
    return None if user is None else user.key


def _num_remembered(ids: Sequence[str]) -> int:
    """Return how many results of an answer are remembered: at most 100, and 16 KiB of ids."""
    sizes = accumulate(len(to_json(each)) + 1 for each in ids[:MAX_SHOWN])
    return sum(size <= MAX_IDS_BYTES for size in sizes)
