"""The log of use: what was shown, and what users clicked, cited, accepted or dismissed of it.

One JSON object a line, in any order. What was shown::

    {"event": "shown", "request_id": "r1", "time": 1764230400.5, "user": "u1", "authenticated": true,
     "query": "who ...?", "ids": ["a", "b"], "scores": [2.1, 0.3], "swaps": [[1, 2, 0.5]], "artifact": "base",
     "corpus": "9f2c...", "ranker": "live", "teams": ["live", "shadow"]}

``ids`` are in the order shown. ``time`` is in seconds since 1970 or ISO 8601 (UTC where it names no zone). ``swaps``
are pairs of ranks, from 1, of passages that a coin may exchange, each with the probability of the order that was shown,
exchanged or not. ``ranker`` is ``live``, ``interleaved`` (``teams`` names each passage's ranker) or ``shadow``, whose
list nobody saw. ``authenticated`` is false where the client itself chose the name ``user``, which then identifies
nobody; without this field, the program that wrote the log is trusted to know its users. ``scores``, ``artifact`` and
``teams`` are not read here. All but ``event``, ``request_id``, ``time``, ``query`` and ``ids`` may be missing or null.
And feedback on it::

    {"event": "feedback", "request_id": "r1", "time": 1764230407, "user": "u1", "clicked": ["b"], "weight": 1.0}

with one or more of ``clicked``, ``cited``, ``accepted`` and ``dismissed``, each a list of ids (texts) or ranks
(integers from 1). A ``weight`` above 10 counts as 10, and one above 1 as 1 where the list has no authenticated user.
Lines, and ``*.json`` files as a whole, may also be traces of OpenTelemetry or Langfuse
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
GAINS = {"clicked": 1.0, "cited": 1.0, "accepted": 2.0, DISMISSED: 0.0}  # of kinds; what is dismissed has no other
MAX_WEIGHT = 10.0
MAX_ANONYMOUS_WEIGHT = 1.0  # strangers may make their feedback count less, never more
MAX_LINE, MAX_IDS = 1 << 22, 1000  # bytes; passages of a list
EARLIEST = 946_684_800.0  # 2000-01-01
MAX_AHEAD_SECONDS = 86_400.0  # between now and a later time in a log
MAX_EARLY_SECONDS, MAX_LATE_SECONDS = 60.0, 30 * 86_400.0  # of feedback before and after the list that it is on
# reasons for which lines are left out; no JSON is a half line, and nobody saw a shadow's list
HALF_LINE, MALFORMED, OTHER_CORPUS, CLOCK_JUMP = "half line", "malformed", "other corpus", "clock jump"
DOUBLED, UNKNOWN_ID, NOT_SHOWN, UNSEEN = "doubled", "unknown id", "feedback for nothing shown", "shadow"
NO_TEXT, HASHED = "query without its text", "hash:"  # which begins a query whose text is not kept
OTHER_USER = "feedback of another user"


class LeftOutError(ValueError):
    """A line that is left out; its text is the reason."""


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
        pairs = {frozenset(swap[:2]) for swap in self.swaps}  # a pair that is named twice would count twice
        if len(set(self.ids)) < len(self.ids) or not ranks_fit or len(pairs) < len(self.swaps):
            raise ValueError
        return self


class _Feedback(_Event):
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    clicked: Named = []
    cited: Named = []
    accepted: Named = []
    dismissed: Named = []

    @model_validator(mode="after")
    def _check(self) -> "_Feedback":
        if not self.model_fields_set & GAINS.keys():
            raise ValueError
        return self


@dataclass(frozen=True)
class Session:
    """A list that was shown, and the feedback on it.

    Attributes:
        request_id: Identifier of the answer.
        time: When the list was shown, in seconds since 1970.
        user: Name or pseudonym of the user, or None.
        query: Text of the query.
        ids: Passages in the order shown.
        gains: Gain of each passage, 0 without feedback or if it was dismissed.
        swaps: Pairs of ranks, from 1, that a coin may exchange, with the probability of the order shown.
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
        """The user if it is verified, else None."""
        return self.user if self.authenticated else None


@dataclass
class FeedbackLog:
    """Sessions of a log by time, and the number of lines that were left out, by reason."""

    sessions: list[Session]
    lines: int
    left_out: Counter[str] = field(default_factory=Counter)
    digest: str = ""  # SHA-256 of the bytes read

    def __str__(self) -> str:
        left = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common()) or "none"
        users = len({session.known_user for session in self.sessions} - {None})
        shown = f"{len(self.sessions):,} lists shown, {sum(any(session.gains) for session in self.sessions):,} of them"
        return f"{self.lines:,} lines: {shown} with positive feedback, {users:,} known users; left out: {left}"


def read_log(
    path: str | Path,
    *,
    known: Collection[str] | None = None,
    corpora: Collection[str] | None = None,
    now: float | None = None,
) -> FeedbackLog:
    """Read a log, a file or a folder of ``*.jsonl`` and ``*.json``, which is never changed.

    Bad lines are counted and left out. A folder's files are read by name.

    Args:
        path: The log.
        known: Ids of the corpus. A list without one of them is left out, and so is feedback on unknown ids alone;
            else an unknown id keeps its place without feedback. None: all ids are known.
        corpora: Fingerprints of the corpora; lists of others are left out. None: all are of this one. Lists that name
            no corpus stay.
        now: Seconds since 1970, by which times of more than a day ahead are a clock jump; None: this machine's.

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
    """Events of a log that are read so far, each once.

    Args:
        known: Ids of the corpus, or None if all are known.
        corpora: Fingerprints of the corpora, or None if all lists are of this one.
    """

    def __init__(self, known: Collection[str] | None, corpora: Collection[str] | None) -> None:
        self._known = known
        self._corpora = corpora
        self.shown: dict[str, _Shown] = {}  # by request id
        self._of_trace: dict[str, list[str]] = {}  # request ids by trace
        self._feedback: dict[str, _Feedback] = {}  # by content: doubled lines are one

    def add(self, event: "_Shown | _Feedback", raw: Any) -> None:
        """Add an event; a :class:`LeftOutError` says why it does not count.

        Args:
            event: The checked event.
            raw: The JSON object that it was read from.
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
        """Return the gains of each list by position; feedback that does not count is counted in ``left_out``.

        Args:
            left_out: Counts by reason, which grow.

        Returns:
            Gains by request id and position; ``-inf`` where a result was dismissed.
        """
        gains: dict[str, dict[int, float]] = {request_id: {} for request_id in self.shown}
        for feedback in self._feedback.values():
            with _counting(left_out):
                self._add_gains(feedback, gains)
        return gains

    def _add_gains(self, feedback: "_Feedback", gains: dict[str, dict[int, float]]) -> None:
        """Add the gains of one feedback to the lists that it is on."""
        has_list = feedback.request_id in self.shown
        request_ids = [feedback.request_id] if has_list else self._of_trace.get(feedback.request_id, [])
        _require(bool(request_ids), NOT_SHOWN)
        request_ids = [name for name in request_ids if _same_user(feedback, self.shown[name])]
        _require(bool(request_ids), OTHER_USER)
        marks = [
            (name, kind, position)
            for name in request_ids
            for kind, position in _places(feedback, self.shown[name].ids, self._known)
        ]
        _require(bool(marks), UNKNOWN_ID)
        delays = [feedback.time - self.shown[name].time for name in request_ids]
        _require(any(-MAX_EARLY_SECONDS <= delay <= MAX_LATE_SECONDS for delay in delays), CLOCK_JUMP)
        for name, kind, position in marks:
            list_shown = self.shown[name]
            is_known = feedback.authenticated and list_shown.authenticated and list_shown.user is not None
            max_weight = MAX_WEIGHT if is_known else MAX_ANONYMOUS_WEIGHT
            gain = -math.inf if kind == DISMISSED else GAINS[kind] * min(max_weight, feedback.weight)
            before = gains[name].get(position, 0.0)
            gains[name][position] = min(before, gain) if -math.inf in (before, gain) else max(before, gain)


def _same_user(feedback: "_Feedback", shown: "_Shown") -> bool:
    """Return whether feedback can be of the user who saw a list: both are the same, or one is unknown."""
    return None in (feedback.user, shown.user) or feedback.user == shown.user


def _session(event: "_Shown", gains: Mapping[int, float]) -> Session:
    """Return a list that was shown with the gains of its results; what was dismissed has none."""
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
        raise UserError(f"{path}: needed a log, a file or folder of JSON lines, found none")
    return files


def _lines(files: Sequence[Path], sha: Any) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as stream:
            while line := stream.read(MAX_LARGE_BYTES) if file.suffix == ".json" else stream.readline(MAX_LINE):
                sha.update(line)
                if line.strip():
                    yield line


def _objects(line: bytes, left_out: Counter[str]) -> list[dict[str, Any]]:
    """Parse a line; of one that an interrupted write begins, what was written after it."""
    found = _parsed(line)
    if found is None:
        left_out[HALF_LINE] += 1
        found = _parsed(line[max(1, line.rfind(b'{"event"')) :]) or []
    try:
        return [found] if isinstance(found, dict) and "event" in found else list(trace_events(found))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        left_out[MALFORMED] += 1
        return []


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _event(raw: Mapping[str, Any], latest: float) -> Any:
    """Check an event; a ``_Shown`` or ``_Feedback``."""
    kinds: dict[Any, type[_Shown | _Feedback]] = {SHOWN_EVENT: _Shown, FEEDBACK_EVENT: _Feedback}
    try:
        kind = kinds[str(raw.get("event"))]
        event = kind.model_validate({key: entry for key, entry in raw.items() if entry is not None})
    except (KeyError, ValidationError):
        raise LeftOutError(MALFORMED) from None
    _require(EARLIEST <= event.time <= latest, CLOCK_JUMP)
    return event


def _places(event: _Feedback, ids: Sequence[str], known: Collection[str] | None) -> list[tuple[str, int]]:
    """List kind and place, from 0, of what an event names of a list and the corpus knows."""
    place = {each: at for at, each in enumerate(ids) if known is None or each in known}
    named = [(kind, each) for kind in GAINS for each in getattr(event, kind)]
    found = [(kind, ids[each - 1] if isinstance(each, int) and 1 <= each <= len(ids) else each) for kind, each in named]
    return [(kind, place[each]) for kind, each in found if each in place]


@contextmanager
def _counting(left_out: Counter[str]) -> Iterator[None]:
    try:
        yield
    except LeftOutError as reason:
        left_out[str(reason)] += 1


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise LeftOutError(reason)
