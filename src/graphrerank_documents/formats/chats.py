"""Parse chat exports in JSON: daily files of a Slack channel, and exports of Discord, Matrix (Element) and Telegram.

Messages without a long pause between them form a section. Each thread is a section as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from graphrerank_documents.deferred_names import USER, definition_of
from graphrerank_documents.document import LABEL, MAX_NAME, Block, Document, Link, Section
from graphrerank_documents.formats.message_exports import (
    USER_ID,
    Message,
    discord_message,
    matrix_messages,
    slack_message,
    telegram_message,
    user_names_of,
    value_at,
)

_PAUSE = 30 * 60  # seconds without a message after which a new section starts
_MOST = 1000  # maximum number of characters of a section, about one passage, because replies link to sections
_USER_NAMES = (  # in `users.json`
    "profile.real_name",
    "profile.display_name",
    "real_name",
    "name",
)
_SAMPLE = 20  # number of messages from which the format is inferred


def read_chat(content: Any, name: str) -> list[Document] | None:
    """Return the documents of a chat export.

    Args:
        content: Decoded JSON.
        name: Path of the file, relative to the source. In a Slack export, the folder is the name of the channel.

    Returns:
        One document per chat, or None if ``content`` is not a chat export.
    """
    channel = PurePosixPath(name).parent.name
    listed = content.get("messages") if isinstance(content, Mapping) else content
    if isinstance(content, Mapping) and isinstance(chats := _listed_chats(content), list):
        documents = [_telegram(chat, f"{name}#{value_at(chat, 'id')}", name) for chat in chats]
        return [document for document in documents if document.sections]
    if not isinstance(listed, list):
        return None
    sample = listed[:_SAMPLE]
    if listed and all(value_at(each, "type") == "message" and value_at(each, "ts") for each in sample):
        names = user_names_of(listed)
        return [_chat(name, f"#{channel}", [slack_message(each, names) for each in listed], f"slack:{channel}:")]
    if not isinstance(content, Mapping):
        is_matrix = sample and all(value_at(each, "event_id") and value_at(each, "sender") for each in sample)
        return [_chat(name, "", matrix_messages(listed), "matrix:")] if is_matrix else None
    if "channel" in content and all(value_at(each, "author.name") for each in listed):
        title = value_at(content, "channel.name")
        return [_chat(name, f"#{title}", list(map(discord_message, listed)), "discord:")]
    if sample and all(value_at(each, "event_id") and value_at(each, "sender") for each in sample):
        return [_chat(name, value_at(content, "room_name", "name"), matrix_messages(listed), "matrix:")]
    if sample and _is_telegram(content):
        return [_telegram(content, name, name)]
    return None


def _listed_chats(content: Mapping[str, Any]) -> list[Any] | None:
    """Return the chats of a complete export of Telegram, or None."""
    chats = content.get("chats")
    listed = chats.get("list") if isinstance(chats, Mapping) else None
    return listed if isinstance(listed, list) and listed and all(map(_is_telegram, listed[:_SAMPLE])) else None


def _is_telegram(chat: Any) -> bool:
    messages = chat.get("messages") if isinstance(chat, Mapping) else None
    return isinstance(messages, list) and all(
        value_at(each, "type") in ("message", "service") and value_at(each, "date") for each in messages[:_SAMPLE]
    )


def _telegram(chat: Any, name: str, file: str) -> Document:
    messages = [telegram_message(each) for each in chat["messages"] if value_at(each, "type") == "message"]
    return _chat(name, value_at(chat, "name"), messages, f"telegram:{file}:{value_at(chat, 'id')}:")


def _chat(name: str, title: str, messages: Sequence[Message], prefix: str) -> Document:
    title = title.strip("#") and title
    groups = _groups([message for message in messages if message.text])
    sections = tuple(_section(group, prefix) for group in groups)
    return Document(name, title[:MAX_NAME] or PurePosixPath(name).stem, sections)


def user_names(content: Any) -> dict[str, str]:
    """Return the names of users by id, as in ``users.json`` of a Slack export, or an empty mapping.

    Args:
        content: Decoded JSON.
    """
    if not isinstance(content, list) or not all(USER_ID.match(value_at(each, "id")) for each in content[:_SAMPLE]):
        return {}
    pairs = ((value_at(each, "id"), " ".join(value_at(each, *_USER_NAMES).split())) for each in content)
    return {f"{USER}{user}": definition_of(name[:MAX_NAME]) for user, name in pairs if USER_ID.match(user) and name}


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages by thread, and other messages by pauses. Groups are ordered by their first message."""
    groups: list[list[Message]] = []
    latest: dict[str, list[Message]] = {}  # current group of each thread
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


def _section(messages: Sequence[Message], prefix: str) -> Section:
    blocks = []
    for each in messages:
        links = (Link(f"{prefix}{each.reply_to}"[:MAX_NAME], kind=LABEL, edge="reply"),) if each.reply_to else ()
        author = " ".join(each.author.split())[:MAX_NAME]
        blocks.append(Block(f"{author}: {each.text}".removeprefix(": "), links=links, is_whole=True, is_tight=True))
    labels = tuple(f"{prefix}{each.id}"[:MAX_NAME] for each in messages if each.id)
    heading = f"{messages[0].time:%Y-%m-%d %H:%M}" if messages[0].time else ""
    return Section(heading, tuple(blocks), anchors=(messages[0].id[:MAX_NAME],), labels=labels)
