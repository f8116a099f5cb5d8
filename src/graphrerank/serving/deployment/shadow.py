"""Shadow ranking: another artifact ranks the same requests in the background, and the differences are logged."""

from dataclasses import replace
from typing import Any

from graphrerank.feedback.log import SHADOW
from graphrerank.serving import metrics
from graphrerank.serving.auth import Caller
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Refusal
from graphrerank.serving.fair_queue import Sender
from graphrerank.serving.json_log import log
from graphrerank.serving.prices import Work
from graphrerank.serving.recorder import Answered, Recorder

SHADOW_OF = "shadow of "  # prefix of the engine kind of a shadow
COMPARED = 10  # number of results to compare


class ShadowRanker:
    """Ranks answered requests again with the shadow artifact.

    Args:
        batcher: Batcher with the engine of the shadow.
        recorder: Recorder of shown results, which also records the rankings of the shadow. If None, they are not
            recorded.
    """

    def __init__(self, batcher: Batcher, recorder: Recorder | None) -> None:
        self._batcher = batcher
        self._recorder = recorder

    async def rank(self, kind: str, job: Any, work: Work, uid: str, caller: Caller, shown: Answered) -> None:
        """Rank an answered request, unless other requests are waiting, and log the difference.

        Args:
            kind: Kind of the shadow's engine.
            job: Input of the engine.
            work: Estimated work.
            uid: Id of the request.
            caller: Sender of the request.
            shown: Response that was shown.
        """
        try:
            if not self._batcher.is_idle:
                raise Refusal(429, "other requests are waiting")
            other = await self._batcher.ask(kind, job, work, uid, sender=Sender(SHADOW_OF))
        except Refusal:
            metrics.SHADOW_SKIPPED.inc()
            return
        log_difference(uid, shown, other)
        if self._recorder is not None:
            self._recorder.write(job, replace(other, ranker=SHADOW), uid, caller)


def log_difference(uid: str, shown: Answered, other: Answered) -> None:
    """Log how much the first ten results of two rankings of a request have in common.

    Args:
        uid: Id of the request.
        shown: Response that was shown.
        other: Ranking of the shadow.
    """
    ids, others = shown.answer.ids[:COMPARED], other.answer.ids[:COMPARED]
    overlap = len(set(ids) & set(others)) / max(len(ids), len(others), 1)
    metrics.SHADOW_OVERLAP.observe(overlap)
    log(
        "shadow",
        id=uid,
        artifact=shown.artifact,
        shadow=other.artifact,
        overlap=round(overlap, 3),
        same_first=ids[:1] == others[:1],
        same=ids == others,
    )
