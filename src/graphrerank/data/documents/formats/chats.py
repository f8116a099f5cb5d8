"""Exports of chats, which are JSON: a folder of a Slack channel's days, and Discord's channels by DiscordChatExporter.

Messages that follow each other soon are a section; a thread of Slack is another.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.data.documents.document import LABEL, MAX_NAME, Block, Document, Link, Section

_PAUSE = 30 * 60  # seconds without a message that end a section
_MOST = 1000  # characters of a section, about a passage, as replies point at sections
_MARKUP = re.compile(r"<(?:([@#!])([^<>|\s]*)|([a-z]+:[^<>|\s]*))(?:\|([^<>]*))?>")  # Slack's mentions and links


class _Message(NamedTuple):
    id: str
    seconds: float  # of its time
    author: str
    text: str
    thread: str  # of Slack, empty outside of threads
    reply_to: str  # the id of a message


def read_chat(content: Any, name: str) -> list[Document] | None:
    """Return an export of a chat as a document, or None for other JSON."""
    channel = PurePosixPath(name).parent.name
    listed = content.get("messages") if isinstance(content, Mapping) else content
    if isinstance(listed, list) and listed and all(map(_is_slack, listed[:20])):
        own = [each for each in listed if _is_slack(each)]
        names = {str(each.get("user")): name for each in own if (name := _slack_name(each))}
        messages, prefix = [_slack(each, names) for each in own], f"slack:{channel}:"
    elif isinstance(content, Mapping) and _is_discord(content):
        channel = str(content["channel"].get("name") or "")
        messages, prefix = [_discord(each) for each in content["messages"] if isinstance(each, Mapping)], "discord:"
    else:
        return None
    shown = [each for each in messages if each.text]
    title = f"#{channel}" if channel else PurePosixPath(name).stem
    return [Document(name, title, tuple(_section(group, prefix) for group in _groups(shown)))]


def _is_slack(each: Any) -> bool:
    return isinstance(each, Mapping) and each.get("type") == "message" and _number(each.get("ts")) > 0


def _is_discord(content: Mapping[str, Any]) -> bool:
    messages = content.get("messages")
    is_export = isinstance(content.get("channel"), Mapping) and isinstance(messages, list)
    return is_export and all(isinstance(each, Mapping) and "author" in each for each in messages or ())


def _slack_name(each: Mapping[str, Any]) -> str:
    profile = each.get("user_profile")
    names = [profile.get(key) for key in ("real_name", "display_name")] if isinstance(profile, Mapping) else []
    return next((str(found) for found in (*names, each.get("username")) if found), "")


def _slack(each: Mapping[str, Any], names: Mapping[str, str]) -> _Message:
    """Read a message; ``names`` are those of the users that the file says."""

    def shown(found: re.Match[str]) -> str:
        return str(found[4] or found[3] or f"{found[1]}{names.get(found[2], found[2])}")

    user = str(each.get("user") or "")
    author = _slack_name(each) or names.get(user, user)
    text = _MARKUP.sub(shown, str(each.get("text") or ""))
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    own, thread = str(each["ts"]), str(each.get("thread_ts") or "")
    subject = "" if str(each.get("subtype", "")).endswith(("_join", "_leave")) else _with_files(text, each.get("files"))
    return _Message(own, _number(own), author, subject, thread, thread if thread != own else "")


def _discord(each: Mapping[str, Any]) -> _Message:
    author, reference = each.get("author"), each.get("reference")
    names = [author.get(key) for key in ("nickname", "name")] if isinstance(author, Mapping) else []
    replied = str(reference.get("messageId") or "") if isinstance(reference, Mapping) else ""
    text = _with_files(str(each.get("content") or ""), each.get("attachments"))
    try:
        seconds = datetime.fromisoformat(str(each.get("timestamp"))).timestamp()
    except (ValueError, OverflowError):
        seconds = 0.0
    return _Message(
        str(each.get("id") or ""), seconds, next((str(found) for found in names if found), ""), text, "", replied
    )


def _with_files(text: str, files: Any) -> str:
    """Append the names of the files of a message."""
    listed = [each for each in files if isinstance(each, Mapping)] if isinstance(files, list) else []
    names = [str(each.get("name") or each.get("fileName") or "") for each in listed]
    return "\n".join(filter(None, (text.strip(), ", ".join(filter(None, names)))))


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, str | float | int) else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _groups(messages: Sequence[_Message]) -> list[list[_Message]]:
    """Gather threads, and messages outside of them that follow each other soon, in order of their first messages."""
    groups: list[list[_Message]] = []
    latest: dict[str, list[_Message]] = {}  # by thread
    sizes: dict[str, int] = {}
    for message in messages:
        own, size = message.thread, len(message.author) + len(message.text) + 3
        is_late = own in latest and not own and message.seconds - latest[own][-1].seconds > _PAUSE
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
    return Section(_time(messages[0].seconds), tuple(blocks), anchors=(messages[0].id[:MAX_NAME],), labels=labels)


def _time(seconds: float) -> str:
    """Return the minute of a time, in UTC; empty without one."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}" if seconds else ""
    except (ValueError, OverflowError, OSError):
        return ""
