"""Read the fields of chat messages in the exports of Slack, Discord, Matrix and Telegram."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from typing import Any, NamedTuple

from graphrerank_documents.deferred_names import USER, mark

_MARKUP = re.compile(r"<(?:([@#!])([^<>|\s]*)|([a-z]+:[^<>|\s]*))(?:\|([^<>]*))?>")  # Slack's mentions and links
_NAMES = ("user_profile.real_name", "user_profile.display_name", "username")  # Slack's fields for the author's name
USER_ID = re.compile(r"[UWB][A-Z0-9]{2,20}\Z")
_FALLBACK = re.compile(r"(?:>[^\n]*(?:\n|\Z))+\n?")  # quotation at the start of a reply in Matrix
_MAX_DEPTH = 8  # maximum depth of nested parts of a message
_PARTS = ("text", "elements", "fields", "blocks", "title", "description", "value", "name", "alt_text")


class Message(NamedTuple):
    """Message of a chat.

    Attributes:
        id: Id of the message.
        time: Time in UTC, or None if it is missing or invalid.
        author: Name of the author.
        text: Text, text of attached cards, and names of attached files.
        thread: Id of the thread, or empty.
        reply_to: Id of the message to which this one replies, or empty.
    """

    id: str
    time: datetime | None
    author: str
    text: str
    thread: str
    reply_to: str


def value_at(value: Any, *paths: str) -> str:
    """Return the first non-empty value at the dotted paths as a string, or an empty string.

    Args:
        value: Decoded JSON.
        paths: Keys of nested objects, separated by dots.
    """
    for path in paths:
        found = value
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found:
            return str(found)
    return ""


def slack_message(message: Any, names: Mapping[str, str]) -> Message:
    """Return a message of Slack.

    Args:
        message: Decoded JSON of the message.
        names: Names of users by id.
    """

    def shown(found: re.Match[str]) -> str:
        return str(found[4] or found[3] or f"{found[1]}{_named(found[2], names)}")

    own, thread, user = value_at(message, "ts"), value_at(message, "thread_ts"), value_at(message, "user")
    text = unescape(_MARKUP.sub(shown, value_at(message, "text"))).strip()
    text = text or "".join(_rich_text(_listed(message, "blocks"), names)).strip()
    cards = [
        "\n".join(
            dict.fromkeys(
                unescape(_MARKUP.sub(shown, part))
                for part in (
                    *(value_at(card, key) for key in ("pretext", "title", "text") if value_at(card, key)),
                    *_texts(_listed(card, "fields")),
                )
            )
        )
        or value_at(card, "fallback")
        for card in _listed(message, "attachments")
    ]
    text = "\n".join(filter(None, (text, *cards, _file_names(message, "files"))))
    if value_at(message, "subtype").endswith(("_join", "_leave")):
        text = ""
    author = value_at(message, *_NAMES) or _named(user, names)
    return Message(own, _time(own), author, text, thread, thread if thread != own else "")


def user_names_of(messages: Sequence[Any]) -> dict[str, str]:
    """Return the names of Slack's users that the messages themselves contain, by id.

    Args:
        messages: Decoded JSON of the messages.
    """
    return {value_at(each, "user"): author for each in messages if (author := value_at(each, *_NAMES))}


def discord_message(message: Any) -> Message:
    """Return a message of Discord, as DiscordChatExporter writes it.

    Args:
        message: Decoded JSON of the message.
    """
    time = None
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(value_at(message, "timestamp")).astimezone(UTC)
    cards = ["\n".join(_texts(card)) for card in _listed(message, "embeds")]
    parts = (value_at(message, "content").strip(), *cards, _file_names(message, "attachments"))
    author = value_at(message, "author.nickname", "author.name")
    reply_to = value_at(message, "reference.messageId")
    return Message(value_at(message, "id"), time, author, "\n".join(filter(None, parts)), "", reply_to)


def matrix_messages(events: Sequence[Any]) -> list[Message]:
    """Return the messages of a room of Matrix. An edited message has its last text.

    Args:
        events: Decoded JSON of the events. Events other than messages are ignored.
    """
    contents = [(event, _mapping(event, "content")) for event in events if _type(event) == "m.room.message"]
    edits: dict[str, str] = {}
    messages = []
    for event, content in contents:
        relation = _mapping(content, "m.relates_to")
        if value_at(relation, "rel_type") == "m.replace":
            edits[value_at(relation, "event_id")] = value_at(_mapping(content, "m.new_content"), "body")
            continue
        thread = value_at(relation, "event_id") if value_at(relation, "rel_type") == "m.thread" else ""
        reply_to = value_at(_mapping(relation, "m.in_reply_to"), "event_id") or thread
        body = value_at(content, "body")
        text = (_FALLBACK.sub("", body, count=1) if reply_to and body.startswith(">") else body).strip()
        time = _time(value_at(event, "origin_server_ts"), 1000)
        author = value_at(event, "sender")
        messages.append(Message(value_at(event, "event_id"), time, author, text, thread, reply_to))
    return [each._replace(text=edits.get(each.id) or each.text) for each in messages]


def telegram_message(message: Any) -> Message:
    """Return a message of Telegram.

    Args:
        message: Decoded JSON of the message.
    """
    text = message.get("text") if isinstance(message, Mapping) else ""
    parts = text if isinstance(text, list) else [text]
    text = "".join(part if isinstance(part, str) else value_at(part, "text") for part in parts).strip()
    poll = "\n".join(_texts(_mapping(message, "poll").get("answers"))) if _mapping(message, "poll") else ""
    question = value_at(message, "poll.question")
    file = value_at(message, "file_name")
    shown = "\n".join(filter(None, (text, question, poll, file)))
    time = _time(value_at(message, "date_unixtime"))
    with suppress(ValueError, OverflowError):
        time = time or datetime.fromisoformat(value_at(message, "date")).replace(tzinfo=UTC)
    reply_to = value_at(message, "reply_to_message_id")
    return Message(value_at(message, "id"), time, value_at(message, "from", "actor"), shown, "", reply_to)


def _type(event: Any) -> str:
    return value_at(event, "type")


def _named(user: str, names: Mapping[str, str]) -> str:
    """Return the name of a user in the file, or a mark that is replaced by the name in ``users.json``."""
    return names.get(user) or (mark(f"{USER}{user}") if USER_ID.match(user) else user)


def _time(seconds: str, per_second: int = 1) -> datetime | None:
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(float(seconds) / per_second, UTC)
    return None


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _listed(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else []


def _file_names(message: Any, key: str) -> str:
    """Return the names of the files that are attached to a message."""
    return ", ".join(filter(None, (value_at(file, "name", "fileName") for file in _listed(message, key))))


def _rich_text(value: Any, names: Mapping[str, str], depth: int = 0) -> Iterator[str]:
    """Yield the texts in the blocks of a message of Slack, with a line break after each section."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for each in value:
            yield from _rich_text(each, names, depth + 1)
    elif isinstance(value, Mapping):
        kind = value_at(value, "type")
        if kind == "user":
            yield f"@{_named(value_at(value, 'user_id'), names)}"
        elif kind == "emoji":
            yield f":{value_at(value, 'name')}:"
        elif isinstance(text := value.get("text"), str):
            yield text
        elif kind == "link":
            yield value_at(value, "url")
        else:
            for key in ("text", "elements", "fields"):
                yield from _rich_text(value.get(key), names, depth + 1)
        if kind not in ("", "user", "emoji", "link", "text", "rich_text"):
            yield "\n"


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of a card, such as its title and its fields."""
    if isinstance(value, str):
        if value.strip():
            yield value.strip()
    elif isinstance(value, list):
        for each in value if depth < _MAX_DEPTH else ():
            yield from _texts(each, depth + 1)
    elif isinstance(value, Mapping):
        for key in (key for key in value if key in _PARTS and depth < _MAX_DEPTH):
            yield from _texts(value[key], depth + 1)
