"""Read feedback logs: the lists that were shown, and the results that users clicked, cited, accepted or dismissed.

A log has one JSON object per line, in any order. An event for a list that was shown::

    {"event": "shown", "request_id": "r1", "time": 1764230400.5, "user": "u1", "authenticated": true,
     "query": "who ...?", "ids": ["a", "b"], "scores": [2.1, 0.3], "swaps": [[1, 2, 0.5]], "artifact": "base",
     "corpus": "9f2c...", "ranker": "live", "teams": ["live", "shadow"]}

- ``ids`` are in the order in which they were shown.
- ``time`` is a number of seconds since 1970 or an ISO 8601 string (UTC if it has no time zone).
- ``swaps`` are pairs of 1-based ranks whose passages may have been swapped at random, each with the probability of the
  order that was shown (swapped or not).
- ``ranker`` is ``live``, ``interleaved`` (``teams`` names the ranker of each passage) or ``shadow`` (nobody saw the
  list).
- ``authenticated`` is false if the client itself chose the name ``user``, which is then no proof of identity. Without
  this field, the program that wrote the log is trusted to know its users.
- ``scores``, ``artifact`` and ``teams`` are ignored by this module.

Only ``event``, ``request_id``, ``time``, ``query`` and ``ids`` are required. All other fields may be missing or null.

An event for feedback on a list::

    {"event": "feedback", "request_id": "r1", "time": 1764230407, "user": "u1", "clicked": ["b"], "weight": 1.0}

It has one or more of ``clicked``, ``cited``, ``accepted``, ``dismissed`` and ``withdrawn``, each a list of ids
(strings) or 1-based ranks (integers). All earlier feedback on a ``withdrawn`` result of the list no longer counts. The
other lists of the same event replace it. A ``weight`` is limited to 10, and to 1 if the list has no authenticated user.

Lines, and ``*.json`` files as a whole, may also be OpenTelemetry or Langfuse traces
(:mod:`~graphrerank.feedback.traces`).
"""

import hashlib
import json
import math
import time as clock
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from graphrerank.feedback.traces import trace_events
from graphrerank.utils.checks import UserError
from graphrerank.utils.safe_loading import MAX_LARGE_BYTES

SHOWN_EVENT, FEEDBACK_EVENT = "shown", "feedback"
LIVE, INTERLEAVED_EVENT, SHADOW = "live", "interleaved", "shadow"  # rankers
DISMISSED = "dismissed"
WITHDRAWN = "withdrawn"  # entry with the results of which all earlier feedback no longer counts
GAINS = {
    "clicked": 1.0,
    "cited": 1.0,
    "accepted": 2.0,
    DISMISSED: 0.0,
}  # gain by kind of feedback; "dismissed" overrides all others
MAX_WEIGHT = 10.0  # maximum weight of the feedback of authenticated users
MAX_ANONYMOUS_WEIGHT = 1.0  # anonymous clients can lower the weight of their feedback but not raise it
MAX_LINE, MAX_IDS = 1 << 22, 1000  # bytes per line, passages per list
EARLIEST = 946_684_800.0  # 2000-01-01
MAX_AHEAD_SECONDS = 86_400.0  # a later time in the log counts as a clock jump
MAX_EARLY_SECONDS, MAX_LATE_SECONDS = 60.0, 30 * 86_400.0  # allowed time of feedback before and after its list
# Reasons for which lines are skipped. A half line is not valid JSON. Nobody saw the lists of a shadow ranker.
HALF_LINE, MALFORMED, OTHER_CORPUS, CLOCK_JUMP = "half line", "malformed", "other corpus", "clock jump"
DOUBLED, UNKNOWN_ID, NOT_SHOWN, UNSEEN = "doubled", "unknown id", "feedback for nothing shown", "shadow"
NO_TEXT, HASHED = "query without its text", "hash:"  # HASHED is the prefix of a query logged as a hash
OTHER_USER = "feedback of another user"


class LeftOutError(ValueError):
    """Raised for a line that is skipped. The message is the reason."""


def _seconds(time: Any) -> Any:
    if not isinstance(time, str):
        return time
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


Finite = Annotated[float, Field(allow_inf_nan=False)]
Rank = Annotated[int, Field(ge=1, le=MAX_IDS)]
Named = Annotated[list[StrictStr | StrictInt], Field(max_length=MAX_IDS)]


class _Event(BaseModel):
    model_config = ConfigDict(strict=True)

    request_id: str = Field(min_length=1)
    time: Annotated[Finite, BeforeValidator(_seconds)]
    user: str | None = None
    authenticated: bool = True


class _Shown(_Event):
    query: str = Field(pattern=r"\S")
    ids: list[str] = Field(min_length=1, max_length=MAX_IDS)
    swaps: Annotated[
        list[Annotated[tuple[Rank, Rank, Annotated[Finite, Field(gt=0, le=1)]], Strict(False)]],
        Field(max_length=MAX_IDS),
    ] = []
    corpus: str | None = None
    trace: str | None = None
    ranker: Literal["live", "interleaved", "shadow"] = "live"

    @model_validator(mode="after")
    def _check(self) -> "_Shown":
        ranks_fit = all(i != j and max(i, j) <= len(self.ids) for i, j, _ in self.swaps)
        pairs = {frozenset(swap[:2]) for swap in self.swaps}  # a repeated pair would count twice
        if len(set(self.ids)) < len(self.ids) or not ranks_fit or len(pairs) < len(self.swaps):
            raise ValueError
        return self


class _Feedback(_Event):
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    clicked: Named = []
    cited: Named = []
    accepted: Named = []
    dismissed: Named = []
    withdrawn: Named = []

    @model_validator(mode="after")
    def _check(self) -> "_Feedback":
        if not self.model_fields_set & {*GAINS, WITHDRAWN}:
            raise ValueError
        return self


@dataclass(frozen=True)
class Session:
    """List that was shown, with the feedback on it.

    Attributes:
        request_id: Identifier of the response.
        time: Time at which the list was shown, in seconds since 1970.
        user: Name or pseudonym of the user, or None.
        query: Text of the query.
        ids: Passage ids in the order in which they were shown.
        gains: Gain of each passage. 0 without feedback or if the passage was dismissed.
        swaps: Pairs of 1-based ranks that may have been swapped at random, with the probability of the order shown.
        authenticated: Whether ``user`` was verified. False if the client chose the name.
    """

    request_id: str
    time: float
    user: str | None
    query: str
    ids: tuple[str, ...]
    gains: tuple[float, ...]
    swaps: tuple[tuple[int, int, float], ...] = ()
    authenticated: bool = True

    @property
    def known_user(self) -> str | None:
        """User name if it was verified, otherwise None."""
        return self.user if self.authenticated else None


@dataclass
class FeedbackLog:
    """Content of a log.

    Attributes:
        sessions: Sessions in order of time.
        lines: Number of lines.
        left_out: Number of skipped lines by reason.
        digest: SHA-256 of the log.
    """

    sessions: list[Session]
    lines: int
    left_out: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    def __str__(self) -> str:
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common()) or "none"
        users = len({session.known_user for session in self.sessions} - {None})
        positive = sum(any(session.gains) for session in self.sessions)
        lists = f"{len(self.sessions):,} lists shown, {positive:,} of them with positive feedback"
        return f"{self.lines:,} lines: {lists}, {users:,} known users; left out: {left_out}"


def read_log(
    path: str | Path,
    *,
    known: Collection[str] | None = None,
    corpora: Collection[str] | None = None,
    now: float | None = None,
) -> FeedbackLog:
    """Read a feedback log.

    Bad lines are counted and skipped. The files of a folder are read in order of their names. The log is never
    modified.

    Args:
        path: A file, or a folder of ``*.jsonl`` and ``*.json`` files.
        known: Passage ids of the corpus. A list without any known id is skipped, and so is feedback on unknown ids
            only. An unknown id in another list keeps its rank and has no feedback. If None, all ids are known.
        corpora: Fingerprints of accepted corpora. Lists from other corpora are skipped; lists that do not name their
            corpus are accepted. If None, all lists are accepted.
        now: Current time in seconds since 1970. Times more than a day later are skipped as clock jumps. If None, the
            clock of this machine is used.

    Returns:
        The sessions, and the number of skipped lines.

    Raises:
        ValueError: If there is no such file or folder.

    Example:
        >>> log = read_log("feedback.jsonl", known=dataset.graph.node_ids)  # doctest: +SKIP
    """
    latest = (clock.time() if now is None else now) + MAX_AHEAD_SECONDS
    left_out: Counter[str] = Counter()
    events = _Events(known, corpora)
    sha, lines = hashlib.sha256(), 0
    for content in _lines(_files(Path(path)), sha):
        lines += 1
        for raw in _objects(content, left_out):
            with _counting(left_out):
                events.add(_event(raw, latest), raw)
    gains = events.gains(left_out)
    sessions = [_session(event, gains[name]) for name, event in events.shown.items()]
    sessions.sort(key=lambda session: (session.time, session.request_id))
    return FeedbackLog(sessions, lines, left_out, sha.hexdigest())


class _Events:
    """Distinct events of a log.

    Args:
        known: Passage ids of the corpus, or None to accept all ids.
        corpora: Fingerprints of accepted corpora, or None to accept all.
    """

    def __init__(self, known: Collection[str] | None, corpora: Collection[str] | None) -> None:
        self._known = known
        self._corpora = corpora
        self.shown: dict[str, _Shown] = {}  # keyed by request id
        self._of_trace: dict[str, list[str]] = {}  # request ids by trace id
        self._feedback: dict[str, _Feedback] = {}  # keyed by content, which removes duplicate lines

    def add(self, event: "_Shown | _Feedback", raw: Any) -> None:
        """Add an event.

        Args:
            event: Validated event.
            raw: JSON object that the event was parsed from.

        Raises:
            LeftOutError: If the event is skipped.
        """
        if isinstance(event, _Feedback):
            key = json.dumps(raw, sort_keys=True)
            _require(key not in self._feedback, DOUBLED)
            self._feedback[key] = event
            return
        _require(event.ranker != SHADOW, UNSEEN)
        _require(event.request_id not in self.shown, DOUBLED)
        _require(self._corpora is None or event.corpus in (None, *self._corpora), OTHER_CORPUS)
        _require(not event.query.startswith(HASHED), NO_TEXT)
        _require(self._known is None or any(doc_id in self._known for doc_id in event.ids), UNKNOWN_ID)
        self.shown[event.request_id] = event
        if event.trace is not None:
            self._of_trace.setdefault(event.trace, []).append(event.request_id)

    def gains(self, left_out: Counter[str]) -> dict[str, dict[int, float]]:
        """Return the gains of each list, and count skipped feedback in ``left_out``.

        Args:
            left_out: Number of skipped lines by reason, which is updated.

        Returns:
            Gains by request id and position, ``-inf`` for a dismissed result.
        """
        gains: dict[str, dict[int, float]] = {request_id: {} for request_id in self.shown}
        for feedback in sorted(self._feedback.values(), key=lambda event: event.time):  # stable: ties in file order
            with _counting(left_out):
                self._add_gains(feedback, gains)
        return gains

    def _add_gains(self, feedback: "_Feedback", gains: dict[str, dict[int, float]]) -> None:
        """Add the gains of one feedback event to its lists."""
        has_list = feedback.request_id in self.shown
        request_ids = [feedback.request_id] if has_list else self._of_trace.get(feedback.request_id, [])
        _require(bool(request_ids), NOT_SHOWN)
        request_ids = [name for name in request_ids if _same_user(feedback, self.shown[name])]
        _require(bool(request_ids), OTHER_USER)
        marks = [
            (name, kind, position)
            for name in request_ids
            for kind, position in _feedback_positions(feedback, self.shown[name].ids, self._known)
        ]
        _require(bool(marks), UNKNOWN_ID)
        delays = [feedback.time - self.shown[name].time for name in request_ids]
        _require(any(-MAX_EARLY_SECONDS <= delay <= MAX_LATE_SECONDS for delay in delays), CLOCK_JUMP)
        for name, kind, position in marks:
            if kind == WITHDRAWN:
                gains[name].pop(position, None)
                continue
            list_shown = self.shown[name]
            is_known = feedback.authenticated and list_shown.authenticated and list_shown.user is not None
            max_weight = MAX_WEIGHT if is_known else MAX_ANONYMOUS_WEIGHT
            gain = -math.inf if kind == DISMISSED else GAINS[kind] * min(max_weight, feedback.weight)
            before = gains[name].get(position, 0.0)
            gains[name][position] = min(before, gain) if -math.inf in (before, gain) else max(before, gain)


def _same_user(feedback: "_Feedback", shown: "_Shown") -> bool:
    """Return whether feedback can come from the user who saw a list. It cannot if both are known and differ."""
    return None in (feedback.user, shown.user) or feedback.user == shown.user


def _session(event: "_Shown", gains: Mapping[int, float]) -> Session:
    """Return a session for a shown list and its gains. Dismissed results have no gain."""
    return Session(
        event.request_id,
        event.time,
        event.user,
        event.query,
        tuple(event.ids),
        tuple(max(0.0, gains.get(position, 0.0)) for position in range(len(event.ids))),
        tuple(event.swaps),
        authenticated=event.authenticated,
    )


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.json*")) if path.is_dir() else [path]
    files = [file for file in files if file.is_file() and (file == path or file.suffix in (".json", ".jsonl"))]
    if not files:
        raise UserError(f"{path}: the log must be a file or a folder of .json or .jsonl files, but there is none")
    return files


def _lines(files: Sequence[Path], sha: Any) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as stream:
            while line := stream.read(MAX_LARGE_BYTES) if file.suffix == ".json" else stream.readline(MAX_LINE):
                sha.update(line)
                if line.strip():
                    yield line


def _objects(line: bytes, left_out: Counter[str]) -> list[dict[str, Any]]:
    """Return the events of a line. If an interrupted write left half a line, the event after it is recovered."""
    content = _parsed(line)
    if content is None:
        left_out[HALF_LINE] += 1
        content = _parsed(line[max(1, line.rfind(b'{"event"')) :]) or []
    try:
        return [content] if isinstance(content, dict) and "event" in content else list(trace_events(content))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        left_out[MALFORMED] += 1
        return []


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _event(raw: Mapping[str, Any], latest: float) -> Any:
    """Return a JSON object as a validated ``_Shown`` or ``_Feedback``."""
    kinds: dict[Any, type[_Shown | _Feedback]] = {SHOWN_EVENT: _Shown, FEEDBACK_EVENT: _Feedback}
    try:
        kind = kinds[str(raw.get("event"))]
        event = kind.model_validate({key: entry for key, entry in raw.items() if entry is not None})
    except (KeyError, ValidationError):
        raise LeftOutError(MALFORMED) from None
    _require(EARLIEST <= event.time <= latest, CLOCK_JUMP)
    return event


def _feedback_positions(event: _Feedback, ids: Sequence[str], known: Collection[str] | None) -> list[tuple[str, int]]:
    """Return the kind of feedback and the 0-based position of each known passage that a feedback event refers to.

    Withdrawals come first, because the other entries of an event replace what it withdraws.
    """
    position_of = {name: position for position, name in enumerate(ids) if known is None or name in known}
    entries = [(kind, entry) for kind in (WITHDRAWN, *GAINS) for entry in getattr(event, kind)]
    names = [(kind, ids[n - 1] if isinstance(n, int) and 1 <= n <= len(ids) else n) for kind, n in entries]
    return [(kind, position_of[name]) for kind, name in names if name in position_of]


@contextmanager
def _counting(left_out: Counter[str]) -> Iterator[None]:
    try:
        yield
    except LeftOutError as reason:
        left_out[str(reason)] += 1


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise LeftOutError(reason)
