"""Parse chat exports in JSON: daily files of a Slack channel, and Discord channels exported by DiscordChatExporter.

Messages without a long pause between them form a section. Each Slack thread is a section as well.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank_documents.deferred_names import USER, definition_of, mark
from graphrerank_documents.document import LABEL, MAX_NAME, Block, Document, Link, Section

_PAUSE = 30 * 60  # seconds without a message after which a new section starts
_MOST = 1000  # maximum number of characters of a section, about one passage, because replies link to sections
_MARKUP = re.compile(r"<(?:([@#!])([^<>|\s]*)|([a-z]+:[^<>|\s]*))(?:\|([^<>]*))?>")  # Slack's mentions and links
_NAMES = ("user_profile.real_name", "user_profile.display_name", "username")  # Slack's fields for the author's name
_USER_NAMES = (
    "profile.real_name",
    "profile.display_name",
    "real_name",
    "name",
)  # in `users.json`
_USER_ID = re.compile(r"[UWB][A-Z0-9]{2,20}\Z")


class _Message(NamedTuple):
    """Message of a chat.

    Attributes:
        id: Id of the message.
        time: Time in UTC, or None if it is missing or invalid.
        author: Name of the author.
        text: Text, and names of attached files.
        thread: Id of the Slack thread, or empty.
        reply_to: Id of the message to which this one replies, or empty.
    """

    id: str
    time: datetime | None
    author: str
    text: str
    thread: str
    reply_to: str


def read_chat(content: Any, name: str) -> list[Document] | None:
    """Return the document of a chat export.

    Args:
        content: Decoded JSON.
        name: Path of the file, relative to the source. In a Slack export, the folder is the name of the channel.

    Returns:
        List with one document, or None if ``content`` is not a chat export.
    """
    channel = PurePosixPath(name).parent.name
    listed = content.get("messages") if isinstance(content, Mapping) else content
    if not isinstance(listed, list):
        return None
    if listed and all(_at(each, "type") == "message" and _at(each, "ts") for each in listed[:20]):
        names = {_at(each, "user"): author for each in listed if (author := _at(each, *_NAMES))}
        messages, prefix = [_slack(each, names) for each in listed], f"slack:{channel}:"
    elif isinstance(content, Mapping) and "channel" in content and all(_at(each, "author.name") for each in listed):
        channel = _at(content, "channel.name")
        messages, prefix = list(map(_discord, listed)), "discord:"
    else:
        return None
    title = f"#{channel}" if channel else PurePosixPath(name).stem
    groups = _groups([message for message in messages if message.text])
    return [Document(name, title, tuple(_section(group, prefix) for group in groups))]


def user_names(content: Any) -> dict[str, str]:
    """Return the names of users by id, as in ``users.json`` of a Slack export, or an empty mapping.

    Args:
        content: Decoded JSON.
    """
    if not isinstance(content, list) or not all(_USER_ID.match(_at(each, "id")) for each in content[:20]):
        return {}
    pairs = ((_at(each, "id"), " ".join(_at(each, *_USER_NAMES).split())) for each in content)
    return {f"{USER}{user}": definition_of(name[:MAX_NAME]) for user, name in pairs if _USER_ID.match(user) and name}


def _named(user: str, names: Mapping[str, str]) -> str:
    """Return the name of a user in the file, or a mark that is replaced by the name in ``users.json``."""
    return names.get(user) or (mark(f"{USER}{user}") if _USER_ID.match(user) else user)


def _at(value: Any, *paths: str) -> str:
    """Return the first non-empty value at the dotted paths as a string, or an empty string."""
    for path in paths:
        found = value
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found:
            return str(found)
    return ""


def _slack(message: Any, names: Mapping[str, str]) -> _Message:
    """Parse a Slack message. ``names`` maps user ids to display names."""

    def shown(found: re.Match[str]) -> str:
        return str(found[4] or found[3] or f"{found[1]}{_named(found[2], names)}")

    own, thread, user = _at(message, "ts"), _at(message, "thread_ts"), _at(message, "user")
    text = _with_files(unescape(_MARKUP.sub(shown, _at(message, "text"))), message, "files")
    if _at(message, "subtype").endswith(("_join", "_leave")):
        text = ""
    time = None
    with suppress(ValueError, OverflowError, OSError):
        time = datetime.fromtimestamp(float(own), UTC)
    author = _at(message, *_NAMES) or _named(user, names)
    return _Message(own, time, author, text, thread, thread if thread != own else "")


def _discord(message: Any) -> _Message:
    time = None
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(_at(message, "timestamp")).astimezone(UTC)
    text = _with_files(_at(message, "content"), message, "attachments")
    author = _at(message, "author.nickname", "author.name")
    return _Message(_at(message, "id"), time, author, text, "", _at(message, "reference.messageId"))


def _with_files(text: str, message: Any, key: str) -> str:
    """Append the names of the attached files to the text of a message."""
    files = message.get(key) if isinstance(message, Mapping) else None
    names = [_at(file, "name", "fileName") for file in files] if isinstance(files, list) else []
    return "\n".join(filter(None, (text.strip(), ", ".join(filter(None, names)))))


def _groups(messages: Sequence[_Message]) -> list[list[_Message]]:
    """Group messages by thread, and other messages by pauses. Groups are ordered by their first message."""
    groups: list[list[_Message]] = []
    latest: dict[str, list[_Message]] = {}  # current group of each thread
    sizes: dict[str, int] = {}
    for message in messages:
        own, size = message.thread, len(message.author) + len(message.text) + 3
        last = latest[own][-1].time if own in latest and not own else None
        is_late = bool(last and message.time and (message.time - last).total_seconds() > _PAUSE)
        if own not in latest or is_late or sizes[own] + size > _MOST:
            latest[own], sizes[own] = [], 0
            groups.append(latest[own])
        latest[own].append(message)
        sizes[own] += size
    return groups


def _section(messages: Sequence[_Message], prefix: str) -> Section:
    blocks = []
    for each in messages:
        links = (Link(f"{prefix}{each.reply_to}"[:MAX_NAME], kind=LABEL, edge="reply"),) if each.reply_to else ()
        author = " ".join(each.author.split())[:MAX_NAME]
        blocks.append(Block(f"{author}: {each.text}".removeprefix(": "), links=links, is_whole=True, is_tight=True))
    labels = tuple(f"{prefix}{each.id}"[:MAX_NAME] for each in messages if each.id)
    heading = f"{messages[0].time:%Y-%m-%d %H:%M}" if messages[0].time else ""
    return Section(heading, tuple(blocks), anchors=(messages[0].id[:MAX_NAME],), labels=labels)
