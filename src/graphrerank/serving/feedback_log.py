"""The log of what was shown, and of feedback on it: files of JSON lines in one folder, which several processes write.

:mod:`graphrerank.feedback.log` describes the events and reads them. Users are pseudonyms, and so are queries unless
their texts are kept: hashes with a key that lies in the folder.

Where space is short, whoever uses most of it loses the oldest events first. A user is one that the service has
authenticated. Everybody else is told apart by a hash of the connection's address, of which only 8 bits are kept: enough
that one machine does not push out the events of all others, too few to recognise it.
"""

import json
import math
import os
import re
import secrets
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from pydantic_core import to_json

from graphrerank.feedback.log import FEEDBACK_EVENT, HASHED, SHADOW, SHOWN_EVENT
from graphrerank.serving.auth import Caller, User
from graphrerank.serving.fair_queue import client_network
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import (
    FolderInUseError,
    append_bytes,
    atomic_path,
    blank_lines,
    new_private_file,
    remove_leftovers,
    sole_use,
    try_lock,
)

DAY = 86_400.0  # seconds
KEY = "key"
FILES_OF_LOG = 16  # into which its bytes are divided, so that the oldest of them can be dropped
FULL = 0.875  # share of `max_bytes` that is left after the largest users lost their oldest events
PRUNE_SECONDS = 3600.0
MAX_QUERY_CHARS, MAX_QUERY_BYTES = 1000, 4000  # of a query's text, the latter as JSON: control characters take 6 each
BLOCK = 1 << 24  # bytes read at once; no line is as long
# events begin so, in the order in which they are written
STARTS = re.compile(rb'^\{"event":"shown","request_id":"([0-9a-f-]{36})"', re.MULTILINE)
# and go on with who sent the request; logs of older versions have the user alone. JSON escapes quotes in other texts
SENDER = re.compile(
    rb'"user":(?:null|"([0-9a-f]+)")(?:,"authenticated":(true|false),"client":(?:null|"([0-9a-f]+)"))?', re.ASCII
)


@dataclass(frozen=True)
class FeedbackSettings:
    """Settings of the log of what the service showed; a ValueError if a setting does not fit.

    Attributes:
        path: Folder of the log. null logs nothing, and there is no POST /feedback.
        queries: Whether to keep the texts of queries, the first 1,000 characters of each, which learning needs.
            Otherwise a keyed hash of each is kept.
        trust_users: Whether the ``user`` that a request names is trusted to tell users apart. Only for services whose
            clients are programs of yours that authenticate their users, because others can invent any number of names.
        explore: Probability, at most 0.5, that two neighbouring results near the top are exchanged.
        days: Number of days after which events are deleted.
        max_bytes: Size of the log, beyond which the users who use most of it lose their oldest events.
    """

    path: str | None = None
    queries: bool = False
    trust_users: bool = False
    explore: float = 0.0
    days: int = 30
    max_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        check_counts(**{"feedback.days": self.days, "feedback.max_bytes": self.max_bytes})
        if not 0 <= self.explore <= 0.5:
            raise UserError(f"`feedback.explore` must be a probability of at most 0.5, got {self.explore}")
        if self.explore and self.path is None:
            raise UserError("`feedback.explore` needs `feedback.path`, the folder of the log, got none")


class _Appender:
    """Appends lines to files of this process, each of at most a day; ``begun`` is called after each new one."""

    def __init__(self, folder: Path, kind: str, most_bytes: int, begun: Callable[[], None]) -> None:
        self._folder, self._kind, self._most_bytes, self._begun = folder, kind, most_bytes, begun
        self._lock = threading.Lock()
        self._path, self._size, self._until = folder, 0, 0.0
        self._handle: int | None = None  # holds the lock of the file, which tells others that it is written

    def append(self, content: bytes) -> None:
        """Append whole lines; an OSError if the disk is full, which leaves none of them."""
        with self._lock:
            now = time.time()
            if self._size + len(content) > self._most_bytes or not self._until - DAY <= now < self._until:
                self._start(now)
            try:
                append_bytes(self._path, self._size, content, sync=False)
            except FileNotFoundError:  # it was pruned
                self._start(now)
                append_bytes(self._path, 0, content, sync=False)
            self._size += len(content)

    def _start(self, now: float) -> None:
        self._path = self._folder / f"{self._kind}-{now:017.6f}-{os.getpid()}.jsonl"
        self._size, self._until = 0, now + DAY
        new_private_file(self._path)
        if self._handle is not None:
            os.close(self._handle)
        self._handle = os.open(self._path, os.O_RDONLY)
        try_lock(self._handle)
        self._begun()


@dataclass
class _Index:
    """Where the shown events of a file begin: 16 bytes of memory each."""

    size: int = 0  # bytes read
    keys: "array[int]" = field(default_factory=lambda: array("Q"))  # the first 64 bits of their requests
    starts: "array[int]" = field(default_factory=lambda: array("Q"))

    def read_on(self, file: BinaryIO) -> None:
        """Read what was appended to a file, or all of it if it was rewritten."""
        if not self._fits(file):
            self.size, self.keys, self.starts = 0, array("Q"), array("Q")
        file.seek(self.size)
        while end := (block := file.read(BLOCK)).rfind(b"\n") + 1:
            for match in STARTS.finditer(block, 0, end):
                self.keys.append(_number(match[1].decode()))
                self.starts.append(self.size + match.start())
            self.size += end
            file.seek(self.size)

    def _fits(self, file: BinaryIO) -> bool:
        """Return whether what was read is still there: the last event is in its place if none before it was deleted.

        The number of an inode does not tell, as it is soon given to another file.
        """
        if not self.starts:
            return self.size == 0
        file.seek(self.starts[-1])
        match = STARTS.match(file.read(100))
        return match is not None and _number(match[1].decode()) == self.keys[-1]

    def lines(self, file: BinaryIO, request_id: str) -> Iterable[bytes]:
        """Read the lines that may be about a request."""
        starts = np.flatnonzero(np.frombuffer(self.keys, np.uint64) == _number(request_id)).tolist()
        for position in starts:
            file.seek(self.starts[position])
            yield file.readline()


class _Use(NamedTuple):
    """How many bytes of a file are whose, as of one version of it."""

    version: tuple[int, int, int]  # inode, size and time of the last change
    by_sender: Counter[bytes]


def _number(request_id: str) -> int:
    return int(request_id[:18].replace("-", ""), 16)


class FeedbackStore:
    """Writes events, finds what was shown in any process, and forgets.

    An event that :meth:`append` has written survives ``kill -9``; the machine's end may take the last half minute. A
    line that was cut off ends its file. When a file begins, and every hour, files older than ``days`` are deleted; and
    if there are more than ``max_bytes``, the largest users lose their oldest events (:meth:`prune`).
    """

    def __init__(self, settings: FeedbackSettings) -> None:
        assert settings.path is not None
        self.folder, self._settings = Path(settings.path), settings
        self._key = folder_key(self.folder)
        most = settings.max_bytes // FILES_OF_LOG
        self._files = {kind: _Appender(self.folder, kind, most, self.prune) for kind in (SHOWN_EVENT, FEEDBACK_EVENT)}
        self._indices: dict[Path, _Index] = {}
        self._uses: dict[Path, _Use] = {}
        self._finding = threading.Lock()
        threading.Thread(target=self._keep_pruned, daemon=True).start()

    def append(self, *events: Mapping[str, Any]) -> None:
        """Append events of one kind; an OSError if they cannot be written."""
        self._files[events[0]["event"]].append(b"".join(to_json(event) + b"\n" for event in events))

    def pseudonym(self, user: str) -> str:
        """Return the pseudonym of a user, by its :attr:`~graphrerank.serving.auth.User.key`."""
        return pseudonym(self._key, "user", user)

    def sender(self, caller: Caller, user: str | None) -> dict[str, Any]:
        """Return the entries of an event that say who sent the request.

        Args:
            caller: Who sends the request, as the service knows it.
            user: Whom the request is of, by :func:`~graphrerank.serving.recorder.user_named`.

        Returns:
            ``user``, a pseudonym or None; ``authenticated``, whether it was verified; and ``client``, 8 bits of a hash
            of the connection's address, only where it was not.
        """
        authenticated = user is not None and (caller.authenticated or self._settings.trust_users)
        hides_address = authenticated or caller.address is None
        client = None
        if not hides_address:
            client = pseudonym(self._key, "client", client_network(str(caller.address)))[:2]
        return {
            "user": None if user is None else self.pseudonym(user),
            "authenticated": authenticated,
            "client": client,
        }

    def query(self, text: str) -> dict[str, Any]:
        """Return the entries of an event for a query: its text or a hash, and the length of a text that was cut."""
        if not self._settings.queries:
            return {"query": HASHED + pseudonym(self._key, "query", text)}
        first = cut_query(text)
        return {"query": first} if first == text else {"query": first, "query_chars": len(text)}

    def find(self, request_id: str) -> dict[str, Any] | None:
        """Return what was shown as the answer to a request, if it is known."""
        with self._finding:
            paths = sorted(self.folder.glob("shown-*.jsonl"), reverse=True)
            self._indices = {path: self._indices.get(path) or _Index() for path in paths}
            for path, index in self._indices.items():
                with suppress(FileNotFoundError), path.open("rb") as file:  # it may be pruned meanwhile
                    index.read_on(file)
                    for line in filter(bytes.strip, index.lines(file, request_id)):  # others are forgotten
                        event: dict[str, Any] = json.loads(line)
                        if event["request_id"] == request_id and event["ranker"] != SHADOW:
                            return event
        return None

    def forget(self, user: str, kind: str | None = None) -> int:
        """Delete all events of a user; return their number. Arguments are those of :func:`forget_user`."""
        return forget_user(self.folder, user, kind)

    def prune(self) -> None:
        """Delete files that are too old, and make room if the log is too large.

        The users with the most bytes lose their oldest events, so that all of them are left with the same number and
        nobody who uses less loses anything. Files that a process is writing stay as they are. If they alone are too
        large, the oldest files are deleted as a whole.
        """
        oldest = time.time() - self._settings.days * DAY
        for path in self._by_age():
            if _begin(path) < oldest:
                path.unlink(missing_ok=True)
        if self._num_bytes() <= self._settings.max_bytes:
            return
        with suppress(FolderInUseError), sole_use(self.folder):  # else another process makes room now, or forgets
            remove_leftovers(self.folder)
            while self._num_bytes() > self._settings.max_bytes:  # others go on writing meanwhile
                if not self._make_room():
                    break
            left = self._settings.max_bytes
            for path in reversed(self._by_age()):
                with suppress(FileNotFoundError):
                    left -= path.stat().st_size
                    if left < 0:
                        path.unlink()

    def _by_age(self) -> list[Path]:
        """Return the files of the log, the oldest first."""
        return sorted(self.folder.glob("*-*.jsonl"), key=_begin)

    def _num_bytes(self) -> int:
        """Return the size of the log."""
        total = 0
        for path in self._by_age():
            with suppress(FileNotFoundError):  # deleted by another process
                total += path.stat().st_size
        return total

    def _make_room(self) -> int:
        """Delete the oldest events of the largest users, file by file; return how many bytes that freed."""
        paths, uses = self._by_age(), dict[Path, _Use]()
        for path in paths:
            with suppress(FileNotFoundError):
                uses[path] = _use_of(path, self._uses.get(path))
        self._uses = uses
        together = sum((use.by_sender for use in uses.values()), Counter[bytes]())
        share = equal_share(list(together.values()), FULL * self._settings.max_bytes)
        excess = Counter({sender: size - share for sender, size in together.items() if size > share})
        freed = 0
        for path in paths:
            if path in uses and any(excess[sender] > 0 for sender in uses[path].by_sender):
                with suppress(FileNotFoundError):
                    freed += _drop_excess(path, excess)
        return freed

    def _keep_pruned(self) -> None:
        while True:
            self.prune()
            time.sleep(PRUNE_SECONDS)


@lru_cache(maxsize=1)
def open_log(settings: FeedbackSettings) -> FeedbackStore:
    """Open the log of a process, once."""
    return FeedbackStore(settings)


def _begin(path: Path) -> float:
    """Return when a file was begun, in seconds since 1970."""
    return float(path.name.split("-")[1])


def folder_key(folder: Path) -> bytes:
    """Return the key of a log's pseudonyms, and make the folder and the key if there are none."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / KEY
    if not path.exists():
        new_private_file(path)
        append_bytes(path, 0, secrets.token_bytes(32))
    if len(key := path.read_bytes()) != 32:
        raise UserError(f"{path}: needed 32 bytes, the key of the pseudonyms in this folder, got {len(key)}")
    return key


def pseudonym(key: bytes, kind: str, text: str) -> str:
    """Hash a text with a key, to 24 hexadecimal digits; ``kind`` separates users from queries."""
    return blake2b(f"{kind} {text}".encode(), key=key, digest_size=12).hexdigest()


def cut_query(text: str) -> str:
    """Return the beginning of a query that is kept: at most 1,000 characters and 4,000 bytes of JSON."""
    if len(text) <= MAX_QUERY_CHARS and len(to_json(text)) - 2 <= MAX_QUERY_BYTES:
        return text
    first = text.strip()[:MAX_QUERY_CHARS]
    sizes = accumulate(len(to_json(character)) - 2 for character in first)
    return first[: sum(size <= MAX_QUERY_BYTES for size in sizes)]


def equal_share(sizes: Sequence[int], total: float) -> float:
    """Return the largest limit such that ``sizes``, each cut to the limit, add up to at most ``total``.

    Args:
        sizes: Sizes of the parts.
        total: Size that they may have together.

    Returns:
        The limit; infinity if the parts fit as they are.
    """
    left = total
    for number, size in enumerate(sorted(sizes)):
        limit = left / (len(sizes) - number)
        if size > limit:
            return max(0.0, limit)
        left -= size
    return math.inf


def _sender_of(line: bytes) -> bytes:
    """Return whose an event is: an authenticated user, or a hash of the connection's address."""
    match = SENDER.search(line, 0, 500)
    if match is None:
        return b""
    user, authenticated, client = match.groups()
    return b"client " + (client or b"") if user is None or authenticated == b"false" else bytes(user)


def _use_of(path: Path, known: _Use | None) -> _Use:
    """Count the bytes of each sender in a file, unless they are known."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        if known is not None and known.version == version:
            return known
        by_sender: Counter[bytes] = Counter()
        for line in file:
            by_sender[_sender_of(line) if line.strip() else b""] += len(line)
    return _Use(version, by_sender)


def _drop_excess(path: Path, excess: Counter[bytes]) -> int:
    """Rewrite a file, unless a process writes to it, without lines that are beyond their senders' share.

    ``excess`` has the bytes of each sender that are still to be deleted. Deleted and cut-off lines go too. Returns how
    many bytes the file lost.
    """
    with path.open("rb") as file:
        if not try_lock(file.fileno()):
            return 0
        remaining, freed = [], 0
        for line in file:
            sender = _sender_of(line)
            if line.endswith(b"}\n") and excess[sender] <= 0:
                remaining.append(line)
                continue
            freed += len(line)
            excess[sender] -= len(line)
        if not remaining:
            path.unlink()
        elif freed:
            with atomic_path(path, mode=0o600) as temporary, temporary.open("wb") as rewritten:
                rewritten.writelines(remaining)
        return freed


def forget_user(folder: Path, user: str, kind: str | None = None) -> int:
    """Delete all events of a user from a log, also while services write it.

    Lines are overwritten with blanks where they are, cut-off ones too. Events of older versions, which did not note the
    kind of a user, are deleted by the name alone. A service that makes room in the log waits until that is done, as a
    file that it rewrites would bring them back.

    Args:
        folder: The folder of the log.
        user: Name of the user (:meth:`~graphrerank.serving.auth.User.called`).
        kind: Kind of the user, ``sub``, ``principals`` or ``name``. If None, users of all kinds that have the name.

    Returns:
        Number of events that were deleted.

    Raises:
        UserError: If the folder is no log, or there is no such kind.
    """
    users = User.called(user, kind)
    if not (folder / KEY).is_file():
        raise UserError(f"{folder}: needed the folder of a service's `feedback.path`, which has a file `{KEY}`")
    key = folder_key(folder)
    names = [f'"user":"{pseudonym(key, "user", name)}"'.encode() for name in [user, *(each.key for each in users)]]
    count = 0
    with sole_use(folder, wait=True):
        remove_leftovers(folder)
        for path in folder.glob("*-*.jsonl"):
            with suppress(FileNotFoundError):  # pruned meanwhile
                count += blank_lines(path, lambda line: any(n in line for n in names) or not line.endswith(b"}\n"))
    return count
