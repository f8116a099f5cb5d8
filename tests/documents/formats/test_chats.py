"""Exports of chats: pieces of a conversation, whose replies point at what they answer."""

import json

import pytest

from graphrerank_documents.document import LABEL, Link
from graphrerank_documents.formats.chats import read_chat
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


def _messages(content: object, name: str = "a.json") -> tuple[str, list[str], list[str]]:
    """The title, the messages and the targets of the replies of the first chat."""
    document = (read_chat(content, name) or [])[0]
    blocks = [block for section in document.sections for block in section.blocks]
    return document.title, [block.text for block in blocks], [link.target for block in blocks for link in block.links]


def test_blocks_and_cards_of_slack_are_text():
    rich = [
        {"type": "text", "text": "see "},
        {"type": "user", "user_id": "U12"},
        {"type": "link", "url": "https://a.org"},
    ]
    section = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": rich}]}
    plain = {"type": "section", "text": {"type": "mrkdwn", "text": "plain"}}
    cards = [{"title": "Card", "text": "the <https://a.org|site>", "fields": [{"title": "Due", "value": "now"}]}]
    content = [
        {"type": "message", "user": "U12", "ts": "1", "text": "", "blocks": [section, plain]},
        {"type": "message", "user": "U12", "ts": "2", "text": "look", "username": "Ann", "attachments": cards},
        {"type": "message", "user": "U12", "ts": "3", "text": "", "attachments": [{"fallback": "only this"}]},
    ]
    assert _messages(content)[1] == [
        "Ann: see @Annhttps://a.org\nplain",
        "Ann: look\nCard\nthe site\nDue\nnow",
        "Ann: only this",
    ]


def test_embeds_of_discord_are_text():
    embed = {
        "title": "Release",
        "url": "https://a.org",
        "description": "What is new",
        "fields": [{"name": "v", "value": "2"}],
    }
    message = {"id": "1", "author": {"name": "bot"}, "content": "", "embeds": [embed]}
    assert _messages({"channel": {"name": "c"}, "messages": [message]})[1] == ["bot: Release\nWhat is new\nv\n2"]


def test_a_room_of_matrix():
    def event(number: int, body: str, **relation: object) -> dict[str, object]:
        content = {"msgtype": "m.text", "body": body, "m.relates_to": relation}
        return {"type": "m.room.message", "sender": "@a:x", "event_id": f"${number}", "content": content}

    edit = event(3, "* second, corrected", rel_type="m.replace", event_id="$2")
    edit["content"]["m.new_content"] = {"body": "second, corrected"}
    answer = {"m.in_reply_to": {"event_id": "$1"}}
    events = [
        event(1, "first"),
        event(2, "> <@a:x> first\n\nsecond", **answer),
        edit,
        {"type": "m.room.member", "sender": "@a:x", "event_id": "$4"},
    ]
    expected = (["@a:x: first", "@a:x: second, corrected"], ["matrix:$1"])
    assert _messages({"room_name": "Room", "messages": events}) == ("Room", *expected)
    assert _messages(events) == ("a", *expected)


def test_chats_of_telegram():
    texts = ["hello", ["see ", {"type": "link", "text": "https://a.org"}, "!"]]
    messages = [
        {"id": number, "type": "message", "date": "2024-01-01T00:00:00", "from": "Ann", "text": text}
        for number, text in enumerate(texts, 1)
    ]
    messages[1]["reply_to_message_id"] = 1
    chat = {"name": "Chat", "type": "personal_chat", "id": 7, "messages": messages}
    shown = ["Ann: hello", "Ann: see https://a.org!"]
    assert _messages(chat) == ("Chat", shown, ["telegram:a.json:7:1"])
    documents = read_chat({"chats": {"list": [chat, {**chat, "id": 8, "name": "Other"}]}}, "a.json") or []
    assert [(document.name, document.title) for document in documents] == [("a.json#7", "Chat"), ("a.json#8", "Other")]
