"""Parse mail archives (mbox) and single messages (eml). Each message is a document, and each reply is a link."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from itertools import islice, pairwise
from typing import NamedTuple

from graphrerank_documents.document import LABEL, MAX_NAME, Block, Document, Link, Section, UnreadableError
from graphrerank_documents.formats.text import decode_text, without_blobs
from graphrerank_documents.readers import reader_of

#: Maximum number of characters of a header, and of a sender or attachment in the text.
MAX_HEADER, MAX_SENDER = 10_000, 200
#: Maximum number of MIME parts of a message, and of characters of an HTML part.
MAX_PARTS, MAX_PAGE = 1000, 1_000_000
_MAX_DEPTH = 20  # maximum depth of nested parts of a message
_START = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]{0,200}\d\d:\d\d[^\n]{0,100}\n")
_ID = re.compile(r"<([^<>\s]+)>")
_HEADERS = ("from", "subject", "date", "message-id", "in-reply-to", "references")  # a valid message has one of these
_END = re.compile(
    r"^(?:-- ?|_{20,}|-{2,} ?(?:Original Message|Ursprüngliche Nachricht|Message d'origine) ?-{2,})$", re.M
)
_FORWARDED = re.compile(
    r"^-{3,} ?(?:Forwarded message|Weitergeleitete Nachricht|Message transféré)[^\n]*\n"
    r"(?:\*?(?:From|Date|Sent|Subject|To|Cc|Von|Datum|Betreff|An|De|Objet|À)\*?:[^\n]*\n)*",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED = re.compile(  # quotation, with the attribution line or lines before it
    r"(?:^(?:On|Am|Le|El|Il|Op|Em)\b[^\n]{1,200}(?:\n[^>\n][^\n]{0,200})?:[ \t]*\n\s*)?(?:^>[^\n]*(?:\n|\Z))+",
    re.MULTILINE,
)


class _Mail(NamedTuple):
    """Parsed message.

    Attributes:
        message: Message parsed by the standard library.
        headers: Decoded headers by lower-case name.
        line: First line in the file, 1-based.
        end: Last line in the file.
    """

    message: Message
    headers: dict[str, str]
    line: int
    end: int

    def ids(self, name: str) -> list[str]:
        """Return the message ids in a header, without angle brackets."""
        return [each[:MAX_NAME] for each in _ID.findall(self.headers.get(name, ""))]


def read_mbox(content: bytes, name: str) -> list[Document]:
    """Parse the messages of a mail archive. Messages that cannot be parsed are counted and skipped.

    Args:
        content: Bytes of the archive.
        name: Path of the file, relative to the source.

    Returns:
        One document per message.

    Raises:
        UnreadableError: If no message can be parsed.
    """
    mails: list[_Mail] = []
    damaged = 0
    line, counted = 1, 0
    bounds = [found.span() for found in _START.finditer(content)] + [(len(content), 0)]
    for (start, first), (stop, _) in pairwise(bounds):
        line += content.count(b"\n", counted, start)
        counted = start
        damaged += 1
        with suppress(Exception):  # parsing libraries raise many kinds of errors for a damaged message
            mails.append(_parsed(re.sub(rb"^>(>*From )", rb"\1", content[first:stop], flags=re.MULTILINE), line + 1))
            damaged -= 1
    known = {own for mail in mails for own in mail.ids("message-id")[:1]}
    documents: dict[str, Document] = {}
    for number, mail in enumerate(mails, 1):
        own = f"{name}#{next(iter(mail.ids('message-id')), number)}"
        own = f"{own}:{number}" if own in documents else own
        damaged += 1
        with suppress(Exception):
            documents[own] = _document(mail, own, known)
            damaged -= 1
    if not documents:
        raise UnreadableError("no readable message")
    found = list(documents.values())
    if damaged:
        found[0] = replace(found[0], dropped={**found[0].dropped, "damaged messages": damaged})
    return found


def read_eml(content: bytes, name: str) -> list[Document]:
    """Parse a single message.

    Args:
        content: Bytes of the message.
        name: Path of the file, relative to the source.

    Returns:
        One document.

    Raises:
        UnreadableError: If ``content`` has none of the usual mail headers.
    """
    return [_document(_parsed(content, 1), name, set())]


def _parsed(content: bytes, line: int) -> _Mail:
    message = message_from_bytes(content)
    said = {name.lower(): str(value) for name, value in reversed([*message.raw_items()])}
    headers = {name: _decoded(said[name][:MAX_HEADER]) for name in _HEADERS if name in said}
    if not headers:
        raise UnreadableError("not a mail")
    return _Mail(message, headers, line, line + content.rstrip().count(b"\n"))


def _decoded(header: str) -> str:
    header = header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with suppress(HeaderParseError, LookupError, ValueError):
        header = str(make_header(decode_header(header)))
    return " ".join(header.split())


def _document(mail: _Mail, name: str, known: set[str]) -> Document:
    """Return the document of a message.

    The message has a reply link to the last of its references that is in ``known``. If there is none, the last
    reference is used.
    """
    own = mail.ids("message-id")[:1]
    files = [
        _decoded(file[:MAX_HEADER])[:MAX_SENDER]
        for part in islice(mail.message.walk(), MAX_PARTS)
        if (file := part.get_filename())
    ]
    text = "\n\n".join(_MailBody(mail.message).texts)
    text, dropped = without_blobs(text)
    before = [*mail.ids("references"), *mail.ids("in-reply-to")[:1]][::-1]
    parent = next((each for each in before if each in known), before[0] if before else "")
    links = (Link(parent, mail.line, LABEL, "reply"),) if parent and [parent] != own else ()
    sender, date = mail.headers.get("from", "")[:MAX_SENDER], _date(mail.headers.get("date", ""))
    parts = [", ".join(filter(None, (sender and f"From: {sender}", date))), text]
    parts += [f"Attachments: {', '.join(files)}"] if files else []
    shown = enumerate(filter(None, parts))
    blocks = tuple(Block(part, mail.line, () if number else links) for number, part in shown)
    section = Section("", blocks, mail.line, mail.end, labels=tuple(own))
    return Document(name, mail.headers.get("subject", "")[:MAX_NAME], (section,), dropped=dropped)


def _date(header: str) -> str:
    with suppress(Exception):  # the date parser raises many kinds of errors for invalid dates
        return f"{parsedate_to_datetime(header[:100]):%Y-%m-%d %H:%M}"
    return header[:100]


class _MailBody:
    """Texts of a message: the plain part of alternatives, otherwise the HTML part, then attached texts and messages.

    Args:
        message: Parsed message.
    """

    def __init__(self, message: Message) -> None:
        self._num_parts = 0
        self.texts = self._texts(message, 0)

    def _texts(self, part: Message, depth: int) -> list[str]:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS or depth > _MAX_DEPTH:
            return []
        kind, content = part.get_content_type(), part.get_payload()
        if isinstance(content, list):
            parts = [each for each in content if isinstance(each, Message)]
            if kind == "multipart/alternative":
                parts.sort(key=lambda each: each.get_content_type() != "text/plain")
                return next((texts for each in parts if (texts := self._texts(each, depth + 1))), [])
            texts = [text for each in parts for text in self._texts(each, depth + 1)]
            subject = (
                _decoded(str(parts[0].get("subject", ""))[:MAX_HEADER]) if kind == "message/rfc822" and parts else ""
            )
            return [*[subject] * bool(subject), *texts]
        if kind not in ("text/plain", "text/html") or (kind == "text/html" and part.get_filename()):
            return []
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes) or not content.strip():
            return []
        text = decode_text(content, str(part.get_content_charset("")))
        shown = text if kind == "text/plain" else "\n\n".join(_page(text))
        return list(filter(None, [shown.strip() if part.get_filename() else _answer(shown)]))


def _page(page: str) -> Iterator[str]:
    for document in reader_of("mail.html")(page[:MAX_PAGE].encode(), "mail.html"):
        for section in document.sections:
            yield from filter(None, (section.heading, *(block.text for block in section.blocks)))


def _answer(text: str) -> str:
    """Return the text of a message without quotations, signature and forwarded headers, unless nothing remains."""
    text = _FORWARDED.sub("", text.replace("\u00a0", " "))
    end = _END.search(text)
    own = _QUOTED.sub("\n", text[: end.start()] if end else text).strip()
    return own or re.sub(r"^[> ]+", "", text, flags=re.MULTILINE).strip()
