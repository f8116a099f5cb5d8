"""Feedback log of a service: a folder of JSON-lines files that several processes write.

:mod:`graphrerank.feedback.log` describes and reads the events. Users are stored as pseudonyms, which are hashes with a
key that is stored in the folder. Queries are stored in the same way unless the setting ``queries`` keeps their texts.

If space runs out, the senders with the most data lose their oldest events first. A sender is an authenticated user. All
others are distinguished by 8 bits of a hash of their network address. This is enough to keep one machine from
displacing the events of all others, but too little to identify it.
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
from graphrerank.serving.settings import FeedbackSettings
from graphrerank.utils.checks import UserError
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
FILES_OF_LOG = 16  # number of files at the size limit, so that the oldest events can be deleted file by file
FULL = 0.875  # share of `max_bytes` that is left after the largest senders have lost their oldest events
PRUNE_SECONDS = 3600.0  # interval at which expired entries are deleted
MAX_QUERY_CHARS, MAX_QUERY_BYTES = 1000, 4000  # limits of a query; bytes are of JSON, with 6 per control character
BLOCK = 1 << 24  # number of bytes to read at once, longer than any line
# beginning of an event, with its fields in the order in which they are written
STARTS = re.compile(rb'^\{"event":"shown","request_id":"([0-9a-f-]{36})"', re.MULTILINE)
# fields for the sender of the request, only `user` in older logs; quotes in other texts are escaped in JSON
SENDER = re.compile(
    rb'"user":(?:null|"([0-9a-f]+)")(?:,"authenticated":(true|false),"client":(?:null|"([0-9a-f]+)"))?', re.ASCII
)


class _Appender:
    """Appends lines to files of this process, each of which covers at most one day.

    Args:
        folder: Folder of the log.
        kind: Kind of events, the first part of the file names.
        most_bytes: Largest size of a file.
        begun: Function called after each new file is created.
    """

    def __init__(self, folder: Path, kind: str, most_bytes: int, begun: Callable[[], None]) -> None:
        self._folder, self._kind, self._most_bytes, self._begun = folder, kind, most_bytes, begun
        self._lock = threading.Lock()
        self._path, self._size, self._until = folder, 0, 0.0
        self._handle: int | None = None  # locks the file, so that other processes do not rewrite it

    def append(self, content: bytes) -> None:
        """Append complete lines. If the disk is full, none of them is written and an OSError is raised."""
        with self._lock:
            now = time.time()
            if self._size + len(content) > self._most_bytes or not self._until - DAY <= now < self._until:
                self._start(now)
            try:
                append_bytes(self._path, self._size, content, sync=False)
            except FileNotFoundError:  # another process has pruned the file
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
    """Positions of the ``shown`` events in a file, with 16 bytes of memory for each event.

    Attributes:
        size: Number of bytes that were indexed.
        keys: First 64 bits of each request id.
        starts: Position of each event in the file.
    """

    size: int = 0
    keys: "array[int]" = field(default_factory=lambda: array("Q"))
    starts: "array[int]" = field(default_factory=lambda: array("Q"))

    def read_on(self, file: BinaryIO) -> None:
        """Index the data that was appended to a file, or the whole file if it was rewritten."""
        if not self._fits(file):
            self.size = 0
            self.keys = array("Q")
            self.starts = array("Q")
        file.seek(self.size)
        while True:
            block = file.read(BLOCK)
            end = block.rfind(b"\n") + 1
            if not end:
                break
            for match in STARTS.finditer(block, 0, end):
                self.keys.append(_number(match[1].decode()))
                self.starts.append(self.size + match.start())
            self.size += end
            file.seek(self.size)

    def _fits(self, file: BinaryIO) -> bool:
        """Return whether the indexed data is still in the file, by checking that the last event is at its position.

        The inode number cannot be used because it is soon reused for another file.
        """
        if not self.starts:
            return self.size == 0
        file.seek(self.starts[-1])
        match = STARTS.match(file.read(100))
        return match is not None and _number(match[1].decode()) == self.keys[-1]

    def lines(self, file: BinaryIO, request_id: str) -> Iterable[bytes]:
        """Yield the lines that may belong to a request."""
        starts = np.flatnonzero(np.frombuffer(self.keys, np.uint64) == _number(request_id)).tolist()
        for position in starts:
            file.seek(self.starts[position])
            yield file.readline()


class _Use(NamedTuple):
    """Number of bytes of each sender in one version of a file.

    Attributes:
        version: Inode, size and modification time of the file.
        by_sender: Number of bytes by sender.
    """

    version: tuple[int, int, int]
    by_sender: Counter[bytes]


def _number(request_id: str) -> int:
    return int(request_id[:18].replace("-", ""), 16)


class FeedbackStore:
    """Writes events, looks up shown results of any process, and deletes events.

    An event written by :meth:`append` survives ``kill -9`` of the process. A crash of the machine can lose the last
    half minute. An incomplete line can only be the last one of its file. Whenever a file is created, and every hour,
    files older than ``days`` are deleted, and if the log exceeds ``max_bytes``, the largest senders lose their oldest
    events (:meth:`prune`).

    Args:
        settings: Settings of the log, with a ``path``.
    """

    def __init__(self, settings: FeedbackSettings) -> None:
        assert settings.path is not None
        self.folder, self._settings = Path(settings.path), settings
        self._key = folder_key(self.folder)
        max_file_bytes = settings.max_bytes // FILES_OF_LOG
        self._files = {
            kind: _Appender(self.folder, kind, max_file_bytes, self.prune) for kind in (SHOWN_EVENT, FEEDBACK_EVENT)
        }
        self._indices: dict[Path, _Index] = {}
        self._uses: dict[Path, _Use] = {}
        self._finding = threading.Lock()
        threading.Thread(target=self._keep_pruned, daemon=True).start()

    def append(self, *events: Mapping[str, Any]) -> None:
        """Append events of the same kind.

        Args:
            *events: Events to append.

        Raises:
            OSError: If the events cannot be written.
        """
        self._files[events[0]["event"]].append(b"".join(to_json(event) + b"\n" for event in events))

    def pseudonym(self, user: str) -> str:
        """Return the pseudonym of a user.

        Args:
            user: Key of the user (:attr:`~graphrerank.serving.auth.User.key`).
        """
        return pseudonym(self._key, "user", user)

    def sender(self, caller: Caller, user: str | None) -> dict[str, Any]:
        """Return the entries of an event that describe the sender of the request.

        Args:
            caller: Sender of the request as the service knows it.
            user: Key of the user of the request, from :func:`~graphrerank.serving.recorder.user_named`.

        Returns:
            ``user``, a pseudonym or None; ``authenticated``, whether the user was verified; and ``client``, 8 bits of a
            hash of the network address if the user was not verified, otherwise None.
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
        """Return the entries of an event for a query: its text or a hash, and the length of a text that was truncated.

        Args:
            text: Text of the query.
        """
        if not self._settings.queries:
            return {"query": HASHED + pseudonym(self._key, "query", text)}
        first = cut_query(text)
        return {"query": first} if first == text else {"query": first, "query_chars": len(text)}

    def find(self, request_id: str) -> dict[str, Any] | None:
        """Return the ``shown`` event of a request, or None if there is none.

        Args:
            request_id: Id of the request.
        """
        with self._finding:
            paths = sorted(self.folder.glob("shown-*.jsonl"), reverse=True)
            self._indices = {path: self._indices.get(path) or _Index() for path in paths}
            for path, index in self._indices.items():
                with suppress(FileNotFoundError), path.open("rb") as file:  # another process may prune the file
                    index.read_on(file)
                    for line in filter(bytes.strip, index.lines(file, request_id)):  # deleted events are blank
                        event: dict[str, Any] = json.loads(line)
                        if event["request_id"] == request_id and event["ranker"] != SHADOW:
                            return event
        return None

    def forget(self, user: str, kind: str | None = None) -> int:
        """Delete all events of a user.

        Args:
            user: Name of the user, as in :func:`forget_user`.
            kind: Kind of the user, as in :func:`forget_user`.

        Returns:
            Number of deleted events.
        """
        return forget_user(self.folder, user, kind)

    def prune(self) -> None:
        """Delete old files, and make room if the log is too large.

        The senders with the most bytes lose their oldest events until they are left with equal sizes. Smaller senders
        lose nothing. Files that a process is writing are not changed. If these files alone are too large, the oldest
        files are deleted entirely.
        """
        oldest = time.time() - self._settings.days * DAY
        for path in self._by_age():
            if _begin(path) < oldest:
                path.unlink(missing_ok=True)
        if self._num_bytes() <= self._settings.max_bytes:
            return
        # skipped if another process is already making room or deleting a user
        with suppress(FolderInUseError), sole_use(self.folder):
            remove_leftovers(self.folder)
            while self._num_bytes() > self._settings.max_bytes:  # other processes keep writing in the meantime
                if not self._make_room():
                    break
            bytes_left = self._settings.max_bytes
            for path in reversed(self._by_age()):
                with suppress(FileNotFoundError):
                    bytes_left -= path.stat().st_size
                    if bytes_left < 0:
                        path.unlink()

    def _by_age(self) -> list[Path]:
        """Return the files of the log, the oldest first."""
        return sorted(self.folder.glob("*-*.jsonl"), key=_begin)

    def _num_bytes(self) -> int:
        """Return the size of the log in bytes."""
        total = 0
        for path in self._by_age():
            with suppress(FileNotFoundError):  # deleted by another process
                total += path.stat().st_size
        return total

    def _make_room(self) -> int:
        """Delete the oldest events of the largest senders, file by file, and return the number of freed bytes."""
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
    """Return the feedback log of this process.

    Args:
        settings: Settings of the log, with a ``path``.
    """
    return FeedbackStore(settings)


def _begin(path: Path) -> float:
    """Return the time at which a file was created, in seconds since 1970."""
    return float(path.name.split("-")[1])


def folder_key(folder: Path) -> bytes:
    """Return the key for the pseudonyms of a log. The folder and the key are created if they do not exist.

    Args:
        folder: Folder of the log.

    Raises:
        UserError: If the key has a wrong size.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / KEY
    if not path.exists():
        new_private_file(path)
        append_bytes(path, 0, secrets.token_bytes(32))
    if len(key := path.read_bytes()) != 32:
        raise UserError(f"{path}: the key of the pseudonyms must have 32 bytes, got {len(key)}")
    return key


def pseudonym(key: bytes, kind: str, text: str) -> str:
    """Return a keyed hash of a text with 24 hexadecimal digits.

    Args:
        key: Key of the log.
        kind: Kind of the text, such as ``user`` or ``query``. Equal texts of different kinds have different hashes.
        text: Text to hash.
    """
    return blake2b(f"{kind} {text}".encode(), key=key, digest_size=12).hexdigest()


def cut_query(text: str) -> str:
    """Return a query truncated to 1,000 characters and 4,000 bytes of JSON.

    Args:
        text: Text of the query.
    """
    if len(text) <= MAX_QUERY_CHARS and len(to_json(text)) - 2 <= MAX_QUERY_BYTES:
        return text
    first = text.strip()[:MAX_QUERY_CHARS]
    sizes = accumulate(len(to_json(character)) - 2 for character in first)
    return first[: sum(size <= MAX_QUERY_BYTES for size in sizes)]


def equal_share(sizes: Sequence[int], total: float) -> float:
    """Return the largest limit such that ``sizes``, each reduced to the limit, add up to at most ``total``.

    Args:
        sizes: Sizes to limit.
        total: Largest sum of the limited sizes.

    Returns:
        The limit, or infinity if the sizes already fit.

    Example:
        >>> equal_share([1, 5, 9], 9)
        4.0
    """
    remaining = total
    for number, size in enumerate(sorted(sizes)):
        limit = remaining / (len(sizes) - number)
        if size > limit:
            return max(0.0, limit)
        remaining -= size
    return math.inf


def _sender_of(line: bytes) -> bytes:
    """Return the sender of an event: an authenticated user, or a hash of the network address."""
    match = SENDER.search(line, 0, 500)
    if match is None:
        return b""
    user, authenticated, client = match.groups()
    return b"client " + (client or b"") if user is None or authenticated == b"false" else bytes(user)


def _use_of(path: Path, known: _Use | None) -> _Use:
    """Return the number of bytes of each sender in a file. The known result is reused if the file has not changed."""
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
    """Rewrite a file without lines that exceed their senders' shares, unless a process is writing the file.

    ``excess`` has the number of bytes to delete for each sender, and is updated. Deleted and incomplete lines are
    removed too. Returns the number of bytes by which the file shrank.
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
    """Delete all events of a user from a log, even while services are writing it.

    Lines are overwritten with blanks in place, including incomplete lines. Events of older versions, which do not
    record the kind of a user, are deleted by name alone. Services wait before making room in the log until the deletion
    is complete, because otherwise a rewritten file could restore deleted events.

    Args:
        folder: Folder of the log.
        user: Name of the user (:meth:`~graphrerank.serving.auth.User.called`).
        kind: Kind of the user: ``sub``, ``principals`` or ``name``. If None, users of all kinds with that name.

    Returns:
        Number of deleted events.

    Raises:
        UserError: If the folder is not a log, or there is no such kind.
    """
    users = User.called(user, kind)
    if not (folder / KEY).is_file():
        raise UserError(
            f"{folder} is not a feedback log because it has no file `{KEY}`. Use the service's `feedback.path`"
        )
    key = folder_key(folder)
    names = [f'"user":"{pseudonym(key, "user", name)}"'.encode() for name in [user, *(match.key for match in users)]]
    count = 0
    with sole_use(folder, wait=True):
        remove_leftovers(folder)
        for path in folder.glob("*-*.jsonl"):
            with suppress(FileNotFoundError):  # another process has pruned the file
                count += blank_lines(path, lambda line: any(n in line for n in names) or not line.endswith(b"}\n"))
    return count
