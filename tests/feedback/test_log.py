import json
from pathlib import Path

import pytest

from graphrerank.feedback.log import DOUBLED, read_log

NOW = 1_800_000_000.0
Event = dict[str, object]


def shown(name: str, **other: object) -> Event:
    return {
        "event": "shown", "request_id": name, "time": NOW - 100, "user": "u", "query": "q", "ids": ["a", "b", "c"],
    } | other  # fmt: skip


def feedback(name: str, **other: object) -> Event:
    return {"event": "feedback", "request_id": name, "time": NOW - 90, "user": "u"} | other


def write(path: Path, *lines: Event | str) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_feedback_joins_what_was_shown_whatever_the_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.jsonl",
        feedback("r1", clicked=["b"], weight=0.5),
        feedback("r2", accepted=[1], dismissed=["c"], clicked=["c"]),
        shown("r2", time="2027-01-15T07:00:00Z", swaps=[[1, 2, 0.5]], scores=[3, 2, 1]),
        shown("r1", user=None),
        feedback("r1", cited=[3]),
    )
    log = read_log(path, now=NOW)
    assert not log.left_out
    r2, r1 = log.sessions  # by time
    assert (r1.gains, r1.user) == ((0.0, 0.5, 1.0), None)
    assert (r2.gains, r2.swaps) == ((2.0, 0.0, 0.0), ((1, 2, 0.5),))
    assert r2.time == NOW - 3600


def test_withdrawn_feedback_does_not_count_and_can_be_replaced(tmp_path: Path) -> None:
    """The order of the lines is not that of the events."""
    path = write(
        tmp_path / "log.jsonl",
        shown("r1"),
        feedback("r1", time=NOW - 60, withdrawn=["a"]),
        feedback("r1", time=NOW - 80, accepted=["a"], clicked=["b"]),
        feedback("r1", time=NOW - 70, dismissed=["a"], withdrawn=["a"]),
        shown("r2"),
        feedback("r2", time=NOW - 80, accepted=["a"]),
        feedback("r2", time=NOW - 70, withdrawn=[1], dismissed=["a"]),
        feedback("r2", time=NOW - 60, withdrawn=["a"], clicked=["a"]),
    )
    log = read_log(path, now=NOW)
    assert not log.left_out
    assert [session.gains for session in log.sessions] == [(0.0, 1.0, 0.0), (1.0, 0.0, 0.0)]


def test_bad_lines_are_counted_by_reason_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = [shown("r1", corpus="mine"), feedback("r1", clicked=["a"])]
    path = write(
        tmp_path / "log.jsonl",
        *good,
        good[0],  # doubled
        good[1],  # doubled
        shown("r2", corpus="other"),  # other corpus
        shown("r3", ids=["x", "y"]),  # unknown id
        shown("r4", time=NOW + 1e6),  # clock jump
        feedback("r1", clicked=["z"]),  # unknown id
        feedback("r1", clicked=["c"], time=NOW - 1e4),  # clock jump: before it was shown
        feedback("r9", clicked=["a"]),  # nothing shown
        shown("r1", ranker="shadow"),  # nobody saw it
        shown("r9", query="hash:5f"),  # query without its text
        *(shown("r5", **bad) for bad in ({"ids": []}, {"ids": ["a", "a"]}, {"query": 3}, {"swaps": 5})),
        *(shown("r6", **bad) for bad in ({"swaps": [[1, 9, 0.5]]}, {"time": "noon"}, {"time": True}, {"ids": [{}]})),
        *(feedback("r1", **bad) for bad in ({}, {"clicked": "a"}, {"clicked": [1], "weight": -1})),
        "[1, 2]\n",  # malformed
        "\x00\n",  # half line
        '{"event": "shown", "request_',  # killed here, and the next process appended
        shown("r7"),
        "\n",
        '{"event": "shown", "request_id": "r8"',
    )
    before = path.read_bytes()
    log = read_log(path, known={"a", "b", "c"}, corpora=["mine"], now=NOW)
    assert [session.request_id for session in log.sessions] == ["r1", "r7"]
    assert log.sessions[0].gains == (1.0, 0.0, 0.0)
    assert log.left_out == {
        "half line": 3, "malformed": 12, "other corpus": 1, "clock jump": 2, DOUBLED: 2, "unknown id": 2,
        "feedback for nothing shown": 1, "shadow": 1,
        "query without its text": 1,
    }  # fmt: skip
    assert path.read_bytes() == before
    assert "12 malformed" in str(log)


def test_an_unknown_id_keeps_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", shown("r"), feedback("r", clicked=["a", "b"]))
    (session,) = read_log(path, known={"b", "c"}, now=NOW).sessions
    assert (session.ids, session.gains) == (("a", "b", "c"), (0.0, 1.0, 0.0))


def test_cutting_a_log_anywhere_loses_only_the_last_line(tmp_path: Path) -> None:
    lines = [json.dumps(shown(f"r{number}")) + "\n" for number in range(3)]
    content = "".join(lines)
    for size in range(len(content)):
        path = write(tmp_path / "log.jsonl", content[:size])
        whole = content[: size + 1].count("}\n") if content[size] == "\n" else content[:size].count("}\n")
        assert len(read_log(path, now=NOW).sessions) == whole


def test_a_folder_is_read_and_a_missing_log_is_named(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", feedback("r", clicked=["c"]))
    write(tmp_path / "2.jsonl", shown("r"))
    assert read_log(tmp_path, now=NOW).sessions[0].gains == (0.0, 0.0, 1.0)
    for missing in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match=missing.name):
            read_log(missing)
