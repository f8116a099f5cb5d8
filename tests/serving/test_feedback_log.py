"""The log on the disk: found again, cut off, divided, deleted."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from graphrerank.serving import feedback_log as module
from graphrerank.serving.auth import Caller, User
from graphrerank.serving.feedback_log import (
    FeedbackSettings,
    FeedbackStore,
    equal_share,
    folder_key,
    forget_user,
    pseudonym,
)


def shown(user: str | None = None, **more: Any) -> dict[str, Any]:
    return {"event": "shown", "request_id": str(uuid4()), "time": 1.0, "user": user, "ranker": "live", **more}


def log_of(folder: Path, **settings: Any) -> FeedbackStore:
    return FeedbackStore(FeedbackSettings(str(folder), **settings))


def test_every_process_finds_what_any_has_shown(tmp_path: Path) -> None:
    """Against a dictionary, over files of two logs that are read on, with shadows and half lines among them."""
    logs, events = [log_of(tmp_path), log_of(tmp_path)], {}
    for number in range(300):
        event = shown(ids=[str(number)])
        logs[number % 2].append({**event, "ranker": "shadow", "ids": []}, event)
        events[event["request_id"]] = event
        if number % 50 == 0:
            for log in logs:
                assert all(log.find(uid) == event for uid, event in events.items())
    for path in tmp_path.glob("*.jsonl"):
        with path.open("ab") as file:
            file.write(b'{"event":"shown","request_id":"' + str(uuid4()).encode()[:20])
    late = log_of(tmp_path)
    assert all(late.find(uid) == event for uid, event in events.items())
    assert late.find(str(uuid4())) is None


KILLED = """
import os, sys
from graphrerank.serving.feedback_log import FeedbackStore, FeedbackSettings
log = FeedbackStore(FeedbackSettings(sys.argv[1]))
for number in range(10 ** 6):
    uid = f"{number:08d}-0000-0000-0000-000000000000"
    log.append({"event": "shown", "request_id": uid, "time": 1.0, "user": None, "ranker": "live", "ids": ["x" * 500]})
    os.write(1, f"{uid}\\n".encode())
"""


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().decode().strip() for _ in range(200)]
    process.kill()
    acknowledged += [line for line in process.communicate()[0].decode().split("\n")[:-1] if line]
    log = log_of(tmp_path)
    assert all(log.find(uid) is not None for uid in acknowledged)
    log.append(event := shown())
    assert log.find(event["request_id"]) == event


def test_the_log_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_bytes=64_000)
    uids = []
    for _ in range(1500):
        log.append(event := shown(ids=["x" * 100]))
        uids.append(event["request_id"])
        assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) <= 68_000
    found = [log.find(uid) is not None for uid in uids]
    assert found == sorted(found)
    assert sum(found) > 200
    for path in tmp_path.glob("*.jsonl"):  # as another process may
        path.unlink()
    log.append(event)
    assert log.find(event["request_id"]) == event


def test_events_are_deleted_after_so_many_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    log = log_of(tmp_path, days=2)
    events = []
    for day in range(4):
        monkeypatch.setattr(module.time, "time", lambda day=day: now + day * 86_400.0)
        log.append(event := shown())
        events.append(event)
    monkeypatch.setattr(module.time, "time", lambda: now + 3.1 * 86_400.0)
    log.prune()
    assert [log.find(event["request_id"]) is not None for event in events] == [False, False, True, True]


def test_a_user_is_deleted_in_place_while_others_write(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    ann, bob = map(log.pseudonym, ("ann", "bob"))
    assert ann == pseudonym(folder_key(tmp_path), "user", "ann") != bob
    kept = [shown(bob), shown(query=f'"user":"{ann}"'), shown()]
    for event in (kept[0], shown(ann), kept[1], shown(ann)):
        log.append(event)
    (path,) = tmp_path.glob("*.jsonl")
    content = path.read_bytes()
    damaged = content + b'{"event":"shown","user":"' + ann.encode() + b'"\n{"half'
    path.write_bytes(damaged)
    assert forget_user(tmp_path, "ann") == 3
    after = path.read_bytes()
    assert len(after) == len(damaged)
    assert f'"user":"{ann}"'.encode() not in after.replace(b"\\", b"")[: after.index(b"query")]
    assert [json.loads(line) for line in after.splitlines() if line.strip() and line.endswith(b"}")] == kept[:2]
    path.write_bytes(content[: log._files["shown"]._size])  # the process goes on where it was
    log.append(kept[2])
    assert log.find(kept[2]["request_id"]) == kept[2]
    with pytest.raises(ValueError, match=r"not a feedback log because it has no file `key`"):
        forget_user(tmp_path / "elsewhere", "ann")


def test_users_of_a_kind_and_events_of_older_versions_are_forgotten(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    users = [User("sub", "a,b"), User("name", "a,b"), User.holding("ab"), User.holding(["a,b"])]
    names = [*(log.pseudonym(user.key) for user in users), log.pseudonym("a,b")]  # the last one without a kind
    for arguments, left in (
        (["a,b", "sub"], [1, 2, 3]),
        (["b,a", "principals"], [0, 1, 3, 4]),
        (['["a,b"]', "principals"], [0, 1, 2, 4]),
        (["a,b"], [3]),
    ):
        for name in names:
            log.append(shown(name))
        assert forget_user(tmp_path, *arguments) == len(names) - len(left)
        for path in tmp_path.glob("*.jsonl"):
            written = [json.loads(line)["user"] for line in path.read_text().splitlines() if line.strip()]
        assert written == [names[place] for place in left]
        for user in ("a,b", "b,a", '["a,b"]'):  # all that is left
            forget_user(tmp_path, user)
    with pytest.raises(ValueError, match="`kind` must be one of"):
        forget_user(tmp_path, "a", "team")


def of_user(log: FeedbackStore, name: str | None, address: str = "10.0.0.1", **more: Any) -> dict[str, Any]:
    """Return an event as the service writes it, of an authenticated user or of a stranger at an address."""
    sender = log.sender(Caller(user=name, authenticated=name is not None, address=address), name)
    event = {"event": "shown", "request_id": str(uuid4()), "time": 1.0, **sender, "ranker": "live"}
    return event | more


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


LARGE = {"query": "\U0001f600" * 1000}


@pytest.mark.parametrize(
    ("flooder", "others"),
    [
        ({"name": "mallory"}, [{"name": f"user {number}"} for number in range(20)]),
        ({"name": None}, [{"name": f"user {number}"} for number in range(20)]),
        ({"name": "mallory"}, [{"name": None}]),
        ({"name": None, "address": "10.0.0.1"}, [{"name": None, "address": "10.0.0.2"}]),
        ({"name": None, "address": "2001:db8::1"}, [{"name": None, "address": "2001:db8:0:1::1"}]),
    ],
)
def test_one_client_pushes_out_its_own_events_alone(
    tmp_path: Path, flooder: dict[str, str], others: list[dict[str, str]]
) -> None:
    log = log_of(tmp_path, max_bytes=200_000)
    before = [of_user(log, **others[number % len(others)], ids=["a"]) for number in range(50)]
    log.append(*before)
    floods = [of_user(log, **flooder, **LARGE) for _ in range(300)]
    among = [of_user(log, **others[number % len(others)], ids=["b"]) for number in range(30)]
    for number, event in enumerate(floods):  # 1.25 MB
        log.append(event)
        if number % 10 == 0:
            log.append(among[number // 10])
        assert size_of(tmp_path) <= 215_000
    assert all(log.find(event["request_id"]) == event for event in (*before, *among))
    found = [log.find(event["request_id"]) is not None for event in floods]
    assert found == sorted(found)  # the oldest went first
    assert 30 < sum(found) < 50
    assert not list(tmp_path.glob(".*"))


def test_addresses_of_one_network_are_one_client(tmp_path: Path) -> None:
    """An IPv6 client has 2^64 addresses; and of an address no more than one of 256 numbers is kept."""
    log = log_of(tmp_path)
    clients = [log.sender(Caller(address=f"2001:db8::{number:x}"), None)["client"] for number in range(100)]
    assert len(set(clients)) == 1
    clients = [
        log.sender(Caller(address=f"10.0.{number % 256}.{number // 256}"), None)["client"] for number in range(4000)
    ]
    assert len(set(clients)) == 256
    assert log.sender(Caller(address="::ffff:10.0.0.1"), None) == log.sender(Caller(address="10.0.0.1"), None)
    assert log.sender(Caller(address="testclient"), None)["client"] is not None
    assert log.sender(Caller(), None)["client"] is None


def test_events_are_found_in_rewritten_files_whatever_their_inodes(tmp_path: Path) -> None:
    """Against a dictionary: files that lost lines, with an index of what they were before."""
    log = log_of(tmp_path)
    events = [of_user(log, None, ids=["x" * (number % 7)]) for number in range(60)]
    log.append(*events)
    (path,) = tmp_path.glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    for dropped in ([0, 1], [59], [58, 59], [3, 30], list(range(50)), []):
        path.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in dropped))  # the same inode
        found = [log.find(event["request_id"]) for event in events]
        assert found == [None if number in dropped else event for number, event in enumerate(events)]


def test_the_share_against_naive_search() -> None:
    for sizes in ([5], [1, 2, 3], [10, 10, 10], [100, 1, 1], []):
        for total in (0.5, 3, 12, 29, 1000):
            share = equal_share(sizes, total)
            steps = [step / 10 for step in range(1001)]
            fits = [step for step in steps if sum(min(size, step) for size in sizes) <= total + 1e-9]
            assert min(share, 100.0) == pytest.approx(max(fits), abs=0.11)


def test_files_that_a_process_writes_are_not_rewritten(tmp_path: Path) -> None:
    """Two processes share the folder: one makes room while the other goes on writing to its file."""
    small, large = log_of(tmp_path, max_bytes=400_000), log_of(tmp_path, max_bytes=400_000)
    quiet = [of_user(small, "ann") for _ in range(5)]
    small.append(*quiet[:3])
    (path,) = tmp_path.glob("shown-*.jsonl")
    content = path.read_bytes()
    for _ in range(300):
        large.append(of_user(large, "mallory", **LARGE))
    assert path.read_bytes() == content
    small.append(*quiet[3:])
    assert all(large.find(event["request_id"]) == event for event in quiet)


def test_a_forgotten_user_does_not_come_back_when_files_are_rewritten(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_bytes=400_000)
    gone, kept = [[of_user(log, name, ids=["a"]) for _ in range(50)] for name in ("ann", "bob")]
    log.append(*gone, *kept)
    assert forget_user(tmp_path, "ann") == 50
    for _ in range(300):
        log.append(of_user(log, "mallory", **LARGE))
    assert not any(log.find(event["request_id"]) for event in gone)
    assert all(log.find(event["request_id"]) == event for event in kept)
    assert log.pseudonym("ann").encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("*.jsonl"))
    assert forget_user(tmp_path, "mallory") > 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


KILLED_IN_PRUNE = """
import os, sys
from graphrerank.serving import feedback_log
from graphrerank.serving.auth import Caller
from graphrerank.serving.feedback_log import FeedbackStore, FeedbackSettings
from pathlib import Path
log = FeedbackStore(FeedbackSettings(sys.argv[1], max_bytes=400_000))
sender = log.sender(Caller(user="mallory", authenticated=True), "mallory")
Path.replace = lambda *_: os.kill(os.getpid(), 9)
for number in range(1000):
    uid = f"{number:08d}-0000-0000-0000-000000000000"
    event = {"event": "shown", "request_id": uid, "time": 1.0, **sender, "ranker": "live"}
    log.append({**event, "query": "x" * (4000 if number else 9)})
    if number == 0:  # a second user, so that the file is rewritten rather than deleted
        other = log.sender(Caller(user="ann", authenticated=True), "ann")
        log.append({**event, **other, "request_id": "a" * 8 + uid[8:]})
"""


def test_a_kill_while_a_file_is_rewritten_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedbackStore, "_keep_pruned", lambda _: None)  # room is made by those who write alone
    process = subprocess.run([sys.executable, "-c", KILLED_IN_PRUNE, str(tmp_path)], capture_output=True, text=True)
    assert process.returncode == -9, process.stderr
    assert [path.suffix for path in tmp_path.glob(".*")] == [".tmp"]
    log = log_of(tmp_path, max_bytes=400_000)
    assert log.find("a" * 8 + "-0000-0000-0000-000000000000") is not None
    assert {json.loads(line)["event"] for path in tmp_path.glob("*.jsonl") for line in path.open()} == {"shown"}
    for _ in range(300):
        log.append(of_user(log, "mallory", **LARGE))
    assert log.find("a" * 8 + "-0000-0000-0000-000000000000") is not None
    assert not list(tmp_path.glob(".*"))
    assert size_of(tmp_path) <= 430_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plum", "plum"),
        ("x" * 1000, "x" * 1000),
        ("x" * 1001, "x" * 1000),
        ("\U0001f600" * 20_000, "\U0001f600" * 1000),
        (" " * 5000 + "plum", "plum"),
        ("\x01" * 20_000, "\x01" * 666),
        ("\x01" * 900, "\x01" * 666),
        ('"' * 1000, '"' * 1000),
    ],
)
def test_queries_are_cut_at_a_character(tmp_path: Path, text: str, expected: str) -> None:
    entries = log_of(tmp_path, queries=True).query(text)
    assert entries == {"query": expected} | ({} if expected == text else {"query_chars": len(text)})
    assert list(log_of(tmp_path / "hashed").query(text)) == ["query"]


def test_settings_and_keys_that_do_not_fit(tmp_path: Path) -> None:
    for settings, message in (
        ({"path": "x", "explore": 0.6}, "`feedback.explore` must be a probability of at most 0.5"),
        ({"explore": 0.1}, "`feedback.path` must be set if `feedback.explore`"),
        ({"path": "x", "days": 0}, "`feedback.days`"),
    ):
        with pytest.raises(ValueError, match=message):
            FeedbackSettings(**settings)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ValueError, match="key: the key of the pseudonyms must have 32 bytes"):
        log_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
