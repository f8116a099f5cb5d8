"""Exports of chats: pieces of a conversation, whose replies point at what they answer."""

import json

import pytest

from graphrerank_documents.document import LABEL, Link
from graphrerank_documents.formats.records import read_json_documents
from graphrerank_documents.passages import passages_of

SLACK = [
    {"type": "message", "ts": "1704105000.000100", "user": "U1", "user_profile": {"real_name": "Ann"},
     "text": "The <https://x.org/a|pump> leaks &amp; <@U2> knows", "thread_ts": "1704105000.000100"},
    {"type": "message", "ts": "1704105060.000200", "user": "U2", "text": "Lunch?"},
    {"type": "message", "subtype": "channel_join", "ts": "1704105061.000200", "user": "U9", "text": "has joined"},
    {"type": "message", "ts": "1704105120.000300", "user": "U2", "text": "<@U1> Change the seal.",
     "thread_ts": "1704105000.000100", "files": [{"name": "seal.pdf"}]},
    {"type": "message", "ts": "1704105180.000400", "user": "U1", "text": "Yes."},
    {"type": "message", "ts": "1704115180.000500", "user": "U1", "text": "Much later."},
]  # fmt: skip


def _texts(content: object, name: str) -> tuple[str, list[tuple[str, list[str]]]]:
    (document,) = read_json_documents(json.dumps(content).encode(), name)
    return document.title, [(s.heading, [block.text for block in s.blocks]) for s in document.sections]


@pytest.mark.parametrize("content", [SLACK, {"messages": SLACK, "has_more": False}])
def test_a_day_of_a_channel_of_slack(content):
    assert _texts(content, "export/general/2024-01-01.json") == (
        "#general",
        [
            ("2024-01-01 10:30", ["Ann: The pump leaks & @U2 knows", "U2: @Ann Change the seal.\nseal.pdf"]),
            ("2024-01-01 10:31", ["U2: Lunch?", "Ann: Yes."]),
            ("2024-01-01 13:19", ["Ann: Much later."]),
        ],
    )
    (document,) = read_json_documents(json.dumps(content).encode(), "export/general/2024-01-01.json")
    thread = document.sections[0]
    assert thread.labels == ("slack:general:1704105000.000100", "slack:general:1704105120.000300")
    assert thread.blocks[1].links == (Link(thread.labels[0], kind=LABEL, edge="reply"),)
    first = next(passages_of(document, max_words=200))
    assert (first.title, first.text.count("\n")) == ("#general > 2024-01-01 10:30", 2)


def test_a_channel_of_discord():
    messages = [
        {"id": "7", "timestamp": "2024-01-01T10:30:00.5+00:00", "content": "It leaks.", "author": {"name": "ann"}},
        {"id": "8", "timestamp": "2024-01-01T12:30:00+00:00", "content": "Why?", "reference": {"messageId": "7"},
         "author": {"name": "bob", "nickname": "Bob"}},
        {"id": "9", "timestamp": None, "content": "", "author": {"name": "x"}, "attachments": []},
    ]  # fmt: skip
    content = {"guild": {"name": "Pumps"}, "channel": {"name": "help"}, "messages": messages, "messageCount": 3}
    assert _texts(content, "a.json") == (
        "#help", [("2024-01-01 10:30", ["ann: It leaks."]), ("2024-01-01 12:30", ["Bob: Why?"])],
    )  # fmt: skip
    (document,) = read_json_documents(json.dumps(content).encode(), "a.json")
    assert document.sections[1].blocks[0].links == (Link("discord:7", kind=LABEL, edge="reply"),)


def test_a_long_thread_is_several_sections():
    thread = [SLACK[0]] + [{**SLACK[3], "ts": f"17041060{n:02}.0", "text": "word " * 40} for n in range(30)]
    (document,) = read_json_documents(json.dumps(thread).encode(), "general/day.json")
    assert len(document.sections) > 5
    assert sum(len(section.blocks) for section in document.sections) == 31


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "message", "ts": float("inf"), "text": 5, "user": {}, "thread_ts": [1], "files": [1, {"name": {}}]}],
        [{"type": "message", "ts": 1e300, "text": "x", "subtype": None}, 5],
        [{"type": "message", "ts": "1", "text": "x"}, {"type": "message", "ts": "nan", "text": "y"}] * 30,
        {"channel": {"name": [1]}, "messages": [{"author": 5, "id": {}, "content": "x", "timestamp": "9" * 400}]},
        {"channel": {}, "messages": []},
        {"messages": None, "channel": {}},
    ],
)  # fmt: skip
def test_other_types_end_nothing(content):
    read_json_documents(json.dumps(content).encode(), "general/day.json")


def test_messages_without_a_time_are_records():
    (first, _) = read_json_documents(
        json.dumps([{"type": "message", "id": n, "text": "Hello"} for n in "ab"]).encode(), "a.json"
    )
    assert first.name == "a.json#a"
