"""The log of use: what was shown, and what users clicked, cited, accepted or dismissed of it.

One JSON object a line, in any order. What was shown::

    {"event": "shown", "request_id": "r1", "time": 1764230400.5, "user": "u1", "query": "who ...?",
     "ids": ["a", "b"], "scores": [2.1, 0.3], "swaps": [[1, 2, 0.5]], "artifact": "base", "corpus": "9f2c...",
     "ranker": "live", "teams": ["live", "shadow"]}

``ids`` are in the order shown. ``time`` is in seconds since 1970 or ISO 8601 (UTC where it names no zone). ``swaps``
are pairs of ranks, from 1, of passages that a coin may exchange, each with the probability of the order that was shown,
exchanged or not.
``ranker`` is ``live``, ``interleaved`` (``teams`` names each passage's ranker) or ``shadow``, whose list nobody saw.
All but ``event``, ``request_id``, ``time``, ``query`` and ``ids`` may be missing or null. And feedback on it::

    {"event": "feedback", "request_id": "r1", "time": 1764230407, "user": "u1", "clicked": ["b"], "weight": 1.0}

with one or more of ``clicked``, ``cited``, ``accepted`` and ``dismissed``, each a list of ids (texts) or ranks
(integers from 1). Lines, and ``*.json`` files as a whole, may also be traces of OpenTelemetry or Langfuse
(:mod:`~graphrerank.feedback.traces`).
"""

import hashlib
import json
import math
import time as clock
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphrerank.checks import UserError
from graphrerank.feedback.traces import trace_events
from graphrerank.untrusted import MAX_LARGE_BYTES

SHOWN, FEEDBACK = "shown", "feedback"
LIVE, SHADOW, INTERLEAVED = RANKERS = ("live", "shadow", "interleaved")
GAINS = {
    "clicked": 1.0,
    "cited": 1.0,
    "accepted": 2.0,
    "dismissed": 0.0,
}  # kinds of feedback; dismissed outdoes the rest
MAX_WEIGHT = 10.0
MAX_LINE, MAX_IDS = 1 << 22, 1000  # bytes; passages of a list
EARLIEST = 946_684_800.0  # 2000-01-01
AHEAD, EARLY, LATE = 86_400.0, 60.0, 30 * 86_400.0  # seconds: of now; feedback before, and after what it is on
REASONS = (
    HALF_LINE := "half line",  # or no JSON
    MALFORMED := "malformed",  # a field is missing or of another kind
    OTHER_CORPUS := "other corpus",
    CLOCK_JUMP := "clock jump",
    DOUBLED := "doubled",
    UNKNOWN_ID := "unknown id",
    NOT_SHOWN := "feedback for nothing shown",
    UNSEEN := "shadow",  # nobody saw it
)


class LeftOutError(ValueError):
    """A line that is left out; its text is one of ``REASONS``."""


@dataclass(frozen=True)
class Session:
    """A list that was shown, and the feedback on it."""

    request_id: str
    time: float  # seconds since 1970
    user: str | None
    query: str
    ids: tuple[str, ...]  # in the order shown
    gains: tuple[float, ...]  # of each, 0 without feedback or dismissed
    dismissed: frozenset[int] = frozenset()  # places in ids, from 0
    scores: tuple[float, ...] | None = None
    swaps: tuple[tuple[int, int, float], ...] = ()  # ranks from 1, and the probability of the order shown
    artifact: str | None = None
    ranker: str = LIVE
    teams: tuple[str, ...] = ()


@dataclass
class FeedbackLog:
    """What a log holds: sessions by time, and how many lines were left out, by reason."""

    sessions: list[Session]
    lines: int
    left_out: Counter[str] = field(default_factory=Counter)
    digest: str = ""  # SHA-256 of the bytes read

    def __str__(self) -> str:
        left = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
        users = len({session.user for session in self.sessions if session.user is not None})
        positive = sum(any(session.gains) for session in self.sessions)
        return (
            f"{self.lines:,} lines: {len(self.sessions):,} lists shown, {positive:,} of them with positive feedback, "
            f"{users:,} users; left out: {left or 'none'}"
        )


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
    latest = (clock.time() if now is None else now) + AHEAD
    files = _files(Path(path))
    left_out: Counter[str] = Counter()
    shown: dict[str, dict[str, Any]] = {}
    of_trace: dict[str, list[str]] = {}
    feedback: dict[str, dict[str, Any]] = {}  # by its content: doubled lines are one
    shadows: set[str] = set()
    sha, lines = hashlib.sha256(), 0
    for content in _lines(files, sha):
        lines += 1
        for raw in _objects(content, left_out):
            try:
                event = _event(raw, latest)
                name = event["request_id"]
                if event["event"] == FEEDBACK:
                    key = json.dumps(raw, sort_keys=True)
                    _require(key not in feedback, DOUBLED)
                    feedback[key] = event
                    continue
                seen = shadows if event["ranker"] == SHADOW else shown
                _require(name not in seen, DOUBLED)
                _require(corpora is None or event["corpus"] in (None, *corpora), OTHER_CORPUS)
                if event["ranker"] == SHADOW:
                    shadows.add(name)
                    raise LeftOutError(UNSEEN)
                _require(known is None or any(each in known for each in event["ids"]), UNKNOWN_ID)
                shown[name] = event
                if event["trace"] is not None:
                    of_trace.setdefault(event["trace"], []).append(name)
            except LeftOutError as reason:
                left_out[str(reason)] += 1
    gains: dict[str, dict[int, float]] = {name: {} for name in shown}
    dismissed: dict[str, set[int]] = {name: set() for name in shown}
    for event in feedback.values():
        name = event["request_id"]
        targets = [name] if name in shown else of_trace.get(name, [])
        try:
            _require(bool(targets), NOT_SHOWN)
            places = [(each, kind, at) for each in targets for kind, at in _places(event, shown[each]["ids"], known)]
            _require(bool(places), UNKNOWN_ID)
            near = [-EARLY <= event["time"] - shown[each]["time"] <= LATE for each in targets]
            _require(any(near), CLOCK_JUMP)
        except LeftOutError as reason:
            left_out[str(reason)] += 1
            continue
        for each, kind, at in places:
            if kind == "dismissed":
                dismissed[each].add(at)
            else:
                gains[each][at] = max(gains[each].get(at, 0.0), GAINS[kind] * event["weight"])
    sessions = [
        Session(
            gains=tuple(0.0 if at in dismissed[name] else gains[name].get(at, 0.0) for at in range(len(event["ids"]))),
            dismissed=frozenset(dismissed[name]),
            **{key: event[key] for key in Session.__dataclass_fields__ if key in event},
        )
        for name, event in shown.items()
    ]
    sessions.sort(key=lambda session: (session.time, session.request_id))
    return FeedbackLog(sessions, lines, left_out, sha.hexdigest())


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json*") if file.suffix in (".json", ".jsonl") and file.is_file())
        if not files:
            raise UserError(f"{path}: needed a log, *.jsonl, found none")
        return files
    if not path.is_file():
        raise UserError(f"{path}: needed a log, a file or folder of JSON lines, found none")
    return [path]


def _lines(files: Sequence[Path], sha: Any) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as stream:
            while line := stream.read(MAX_LARGE_BYTES) if file.suffix == ".json" else stream.readline(MAX_LINE):
                sha.update(line)
                if line.strip():
                    yield line


def _objects(line: bytes, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Parse a line; of one that an interrupted write begins, what was written after it."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        left_out[HALF_LINE] += 1
        start = line.rfind(b'{"event"')
        if start <= 0:
            return
        try:
            found = json.loads(line[start:])
        except (ValueError, RecursionError):
            return
    try:
        events = [found] if isinstance(found, dict) and "event" in found else list(trace_events(found))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
        left_out[MALFORMED] += 1
        return
    yield from events


def _event(raw: Mapping[str, Any], latest: float) -> dict[str, Any]:
    """Check an event and give it all its fields."""
    kind, name = raw.get("event"), raw.get("request_id")
    _require(kind in (SHOWN, FEEDBACK) and isinstance(name, str) and bool(name), MALFORMED)
    event: dict[str, Any] = {"event": kind, "request_id": name, "time": _seconds(raw.get("time"))}
    _require(EARLIEST <= event["time"] <= latest, CLOCK_JUMP)
    for key in ("user", "artifact", "corpus", "trace"):
        event[key] = raw.get(key)
        _require(event[key] is None or isinstance(event[key], str), MALFORMED)
    if kind == FEEDBACK:
        weight = raw.get("weight")
        event["weight"] = min(MAX_WEIGHT, _number(1.0 if weight is None else weight))
        event |= {key: raw[key] for key in GAINS if raw.get(key) is not None}
        _require(event["weight"] >= 0 and any(key in event for key in GAINS), MALFORMED)
        for key in GAINS:
            _require(isinstance(event.get(key, []), list) and len(event.get(key, [])) <= MAX_IDS, MALFORMED)
        return event
    query, ranker = raw.get("query"), raw.get("ranker") or LIVE
    ids: Any = raw.get("ids")
    scores, swaps, teams = (raw.get(key) or () for key in ("scores", "swaps", "teams"))
    _require(isinstance(query, str) and bool(query.strip()) and ranker in RANKERS, MALFORMED)
    _require(isinstance(ids, list) and 0 < len(ids) <= MAX_IDS, MALFORMED)
    _require(all(isinstance(each, str) for each in ids) and len(set(ids)) == len(ids), MALFORMED)
    for listed in (scores, teams):
        _require(not listed or (isinstance(listed, list) and len(listed) == len(ids)), MALFORMED)
    _require(not swaps or isinstance(swaps, list), MALFORMED)
    return event | {
        "query": query,
        "ids": tuple(ids),
        "scores": tuple(map(_number, scores)) if scores else None,
        "swaps": tuple(_swap(swap, len(ids)) for swap in swaps),
        "ranker": ranker,
        "teams": tuple(map(str, teams)),
    }


def _places(event: Mapping[str, Any], ids: Sequence[str], known: Collection[str] | None) -> list[tuple[str, int]]:
    """List kind and place, from 0, of what an event names of a list and the corpus knows."""
    place = {each: at for at, each in enumerate(ids) if known is None or each in known}
    found = []
    for kind in GAINS:
        for each in event.get(kind, ()):
            if isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= len(ids):
                each = ids[each - 1]
            if isinstance(each, str) and each in place:
                found.append((kind, place[each]))
    return found


def _seconds(given: Any) -> float:
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            raise LeftOutError(MALFORMED) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _number(given)


def _number(given: Any) -> float:
    _require(isinstance(given, int | float) and not isinstance(given, bool) and abs(given) < 1e300, MALFORMED)
    _require(math.isfinite(given), MALFORMED)
    return float(given)


def _swap(given: Any, count: int) -> tuple[int, int, float]:
    _require(isinstance(given, list) and len(given) == 3, MALFORMED)
    first, second, share = map(_number, given)
    ranks_fit = first != second and all(rank in range(1, count + 1) for rank in (first, second))
    _require(ranks_fit and 0 < share <= 1, MALFORMED)
    return int(first), int(second), share


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise LeftOutError(reason)
