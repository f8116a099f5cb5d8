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
from graphrerank.serving.callers import User
from graphrerank.serving.feedback_log import FeedbackSettings, FeedbackStore, folder_key, forget_user, pseudonym


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
    with pytest.raises(ValueError, match=r"needed the folder of a service's `feedback.path`"):
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


def test_settings_and_keys_that_do_not_fit(tmp_path: Path) -> None:
    for settings, message in (
        ({"path": "x", "explore": 0.6}, "`feedback.explore` must be a probability of at most 0.5"),
        ({"explore": 0.1}, "`feedback.explore` needs `feedback.path`"),
        ({"path": "x", "days": 0}, "`feedback.days`"),
    ):
        with pytest.raises(ValueError, match=message):
            FeedbackSettings(**settings)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ValueError, match="key: needed 32 bytes"):
        log_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
