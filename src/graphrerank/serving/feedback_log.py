"""The log of what was shown, and of feedback on it: files of JSON lines in one folder, which several processes write.

:mod:`graphrerank.feedback.log` describes the events and reads them. Users are pseudonyms, and so are queries unless
their texts are kept: hashes with a key that lies in the folder.
"""

import json
import re
import secrets
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from os import getpid
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from graphrerank.checks import UserError, check_counts
from graphrerank.feedback.log import FEEDBACK, HASHED, SHADOW, SHOWN
from graphrerank.files import append_bytes, blank_lines, new_private_file
from graphrerank.serving.callers import User

DAY = 86_400.0  # seconds
KEY = "key"
FILES_OF_LOG = 16  # into which its bytes are divided, so that the oldest of them can be dropped
PRUNE_SECONDS = 3600.0
BLOCK = 1 << 24  # bytes read at once; no line is as long
# events begin so, in the order in which they are written
STARTS = re.compile(rb'^\{"event":"shown","request_id":"([0-9a-f-]{36})"', re.MULTILINE)


@dataclass(frozen=True)
class FeedbackSettings:
    """What the service remembers of what it showed; a ValueError if a setting does not fit."""

    path: str | None = None  # folder of the log; None: nothing is remembered
    queries: bool = False  # keep the texts of queries, which learning needs; else a keyed hash
    explore: float = 0.0  # probability, at most 0.5, that two neighbouring results near the top are exchanged
    days: int = 30  # after which events are deleted
    max_bytes: int = 268_435_456  # of the log, beyond which the oldest events are deleted

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
        self._path = self._folder / f"{self._kind}-{now:017.6f}-{getpid()}.jsonl"
        self._size, self._until = 0, now + DAY
        new_private_file(self._path)
        self._begun()


@dataclass
class _Index:
    """Where the shown events of a file begin: 16 bytes of memory each."""

    size: int = 0  # bytes read
    keys: "array[int]" = field(default_factory=lambda: array("Q"))  # the first 64 bits of their requests
    starts: "array[int]" = field(default_factory=lambda: array("Q"))

    def read_on(self, path: Path) -> None:
        """Read what was appended."""
        if path.stat().st_size == self.size:
            return
        with path.open("rb") as file:
            file.seek(self.size)
            while end := (block := file.read(BLOCK)).rfind(b"\n") + 1:
                for match in STARTS.finditer(block, 0, end):
                    self.keys.append(_number(match[1].decode()))
                    self.starts.append(self.size + match.start())
                self.size += end
                file.seek(self.size)

    def lines(self, path: Path, request_id: str) -> Iterable[bytes]:
        """Read the lines that may be about a request."""
        starts = np.flatnonzero(np.frombuffer(self.keys, np.uint64) == _number(request_id)).tolist()
        if starts:
            with path.open("rb") as file:
                for place in starts:
                    file.seek(self.starts[place])
                    yield file.readline()


def _number(request_id: str) -> int:
    return int(request_id[:18].replace("-", ""), 16)


class FeedbackStore:
    """Writes events, finds what was shown in any process, and forgets.

    An event that :meth:`append` has written survives ``kill -9``; the machine's end may take the last half minute. A
    line that was cut off ends its file. Files older than ``days``, and the oldest ones above ``max_bytes``, are deleted
    when a file begins and every hour.
    """

    def __init__(self, settings: FeedbackSettings) -> None:
        assert settings.path is not None
        self.folder, self._settings = Path(settings.path), settings
        self._key = folder_key(self.folder)
        most = settings.max_bytes // FILES_OF_LOG
        self._files = {kind: _Appender(self.folder, kind, most, self.prune) for kind in (SHOWN, FEEDBACK)}
        self._indices: dict[Path, _Index] = {}
        self._finding = threading.Lock()
        threading.Thread(target=self._keep_pruned, daemon=True).start()

    def append(self, *events: Mapping[str, Any]) -> None:
        """Append events of one kind; an OSError if they cannot be written."""
        self._files[events[0]["event"]].append(b"".join(to_json(event) + b"\n" for event in events))

    def pseudonym(self, user: str) -> str:
        """Return the pseudonym of a user, by its :attr:`~graphrerank.serving.callers.User.key`."""
        return pseudonym(self._key, "user", user)

    def query(self, text: str) -> str:
        """Return what is kept of a query."""
        return text if self._settings.queries else HASHED + pseudonym(self._key, "query", text)

    def find(self, request_id: str) -> dict[str, Any] | None:
        """Return what was shown as the answer to a request, if it is known."""
        with self._finding:
            paths = sorted(self.folder.glob("shown-*.jsonl"), reverse=True)
            self._indices = {path: self._indices.get(path) or _Index() for path in paths}
            for path, index in self._indices.items():
                with suppress(FileNotFoundError):  # pruned meanwhile
                    index.read_on(path)
                    for line in filter(bytes.strip, index.lines(path, request_id)):  # others are forgotten
                        event: dict[str, Any] = json.loads(line)
                        if event["request_id"] == request_id and event["ranker"] != SHADOW:
                            return event
        return None

    def forget(self, user: str, kind: str | None = None) -> int:
        """Delete all events of a user; return their number. Arguments are those of :func:`forget_user`."""
        return forget_user(self.folder, user, kind)

    def prune(self) -> None:
        """Delete the files that are too old or too many."""
        oldest, left = time.time() - self._settings.days * DAY, self._settings.max_bytes
        for path in sorted(self.folder.glob("*-*.jsonl"), key=_begin, reverse=True):
            with suppress(FileNotFoundError):  # by another process
                left -= path.stat().st_size
                if left < 0 or _begin(path) < oldest:
                    path.unlink()

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


def forget_user(folder: Path, user: str, kind: str | None = None) -> int:
    """Delete all events of a user from a log, also while services write it.

    Lines are overwritten with blanks where they are, cut-off ones too. Events of older versions, which did not note the
    kind of a user, are deleted by the name alone.

    Args:
        folder: The folder of the log.
        user: Name of the user (:meth:`~graphrerank.serving.callers.User.called`).
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
    for path in folder.glob("*-*"):
        with suppress(FileNotFoundError):  # pruned meanwhile
            count += blank_lines(path, lambda line: any(name in line for name in names) or not line.endswith(b"}\n"))
    return count
