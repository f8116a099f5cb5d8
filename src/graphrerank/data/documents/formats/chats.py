"""Days of a channel of Slack, in JSON: messages that follow each other soon are a section, and so is a thread."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.data.documents.document import LABEL, MAX_NAME, Block, Document, Link, Section

_PAUSE = 30 * 60  # seconds without a message that end a section
_MOST = 1000  # characters of a section, about a passage, as replies point at sections
_MARKUP = re.compile(r"<(?:([@#!])([^<>|\s]*)|([a-z]+:[^<>|\s]*))(?:\|([^<>]*))?>")  # Slack's mentions and links
_NAMES = ("user_profile.real_name", "user_profile.display_name", "username")  # of the author of a message of Slack


class _Message(NamedTuple):
    id: str
    time: datetime | None  # in UTC
    author: str
    text: str
    thread: str  # the id of its first message, empty outside of threads


def read_chat(content: Any, name: str) -> list[Document] | None:
    """Return an export of a chat as a document, or None for other JSON."""
    channel = PurePosixPath(name).parent.name
    listed = content.get("messages") if isinstance(content, Mapping) else content
    if not isinstance(listed, list):
        return None
    if not listed or not all(_at(each, "type") == "message" and _at(each, "ts") for each in listed[:20]):
        return None
    names = {_at(each, "user"): name for each in listed if (name := _at(each, *_NAMES))}
    groups = _groups([message for each in listed if (message := _message(each, names)).text])
    title = f"#{channel}" if channel else PurePosixPath(name).stem
    return [Document(name, title, tuple(_section(group, f"slack:{channel}:") for group in groups))]


def _at(value: Any, *paths: str) -> str:
    """Return what stands at the first of the paths, as a text; empty if nothing does."""
    for path in paths:
        found = value
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found:
            return str(found)
    return ""


def _message(message: Any, names: Mapping[str, str]) -> _Message:
    """Read a message; ``names`` are those of the users that the file says."""

    def shown(found: re.Match[str]) -> str:
        return str(found[4] or found[3] or f"{found[1]}{names.get(found[2], found[2])}")

    own, thread, user = _at(message, "ts"), _at(message, "thread_ts"), _at(message, "user")
    files = message.get("files") if isinstance(message, Mapping) else None
    files = [_at(file, "name") for file in files] if isinstance(files, list) else []
    text = unescape(_MARKUP.sub(shown, _at(message, "text"))).strip()
    text = "\n".join(filter(None, (text, ", ".join(filter(None, files)))))
    if _at(message, "subtype").endswith(("_join", "_leave")):
        text = ""
    time = None
    with suppress(ValueError, OverflowError, OSError):
        time = datetime.fromtimestamp(float(own), UTC)
    author = _at(message, *_NAMES) or names.get(user, user)
    return _Message(own, time, author, text, thread)


def _groups(messages: Sequence[_Message]) -> list[list[_Message]]:
    """Gather threads, and messages outside of them that follow each other soon, in order of their first messages."""
    groups: list[list[_Message]] = []
    latest: dict[str, list[_Message]] = {}  # by thread
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
        is_reply = each.thread not in ("", each.id)
        links = (Link(f"{prefix}{each.thread}"[:MAX_NAME], kind=LABEL, edge="reply"),) if is_reply else ()
        author = " ".join(each.author.split())[:MAX_NAME]
        blocks.append(Block(f"{author}: {each.text}".removeprefix(": "), links=links, is_whole=True, is_tight=True))
    labels = tuple(f"{prefix}{each.id}"[:MAX_NAME] for each in messages if each.id)
    heading = f"{messages[0].time:%Y-%m-%d %H:%M}" if messages[0].time else ""
    return Section(heading, tuple(blocks), anchors=(messages[0].id[:MAX_NAME],), labels=labels)
