"""Mail as documents, one a message: mbox archives and single messages (eml), with replies as links."""

import re
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import NamedTuple

from graphrerank.data.documents.document import LABEL, MAX_NAME, Block, Document, Link, Section, UnreadableError
from graphrerank.data.documents.formats.text import decode_text, without_blobs
from graphrerank.data.documents.readers import reader_of

MAX_HEADER, MAX_SENDER = 10_000, 200  # characters of a header, and of a sender as it is shown
MAX_PARTS, MAX_PAGE = 1000, 1_000_000  # of a message, and characters of its page
_MOST_STEPS = 20_000_000  # of the parser, which compares each line with each boundary
_START = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]{0,200}\d\d:\d\d[^\n]{0,100}\n")
_LONG_HEADER = re.compile(rb"^content-(?:type|disposition):(?:[^\n]|\n[ \t]){5000}", re.MULTILINE | re.IGNORECASE)
_ID = re.compile(r"<([^<>\s]+)>")
_HEADERS = ("from", "subject", "date", "message-id", "in-reply-to", "references")  # of which a mail has one
_END = re.compile(
    r"^(?:-- ?|_{20,}|-{2,} ?(?:Original Message|Ursprüngliche Nachricht|Message d'origine) ?-{2,})$", re.M
)
_FORWARDED = re.compile(
    r"^-{3,} ?(?:Forwarded message|Weitergeleitete Nachricht|Message transféré)[^\n]*\n"
    r"(?:\*?(?:From|Date|Sent|Subject|To|Cc|Von|Datum|Betreff|An|De|Objet|À)\*?:[^\n]*\n)*",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED = re.compile(  # with the line or two before that says of whom
    r"(?:^(?:On|Am|Le|El|Il|Op|Em)\b[^\n]{1,200}(?:\n[^>\n][^\n]{0,200})?:[ \t]*\n\s*)?(?:^>[^\n]*(?:\n|\Z))+",
    re.MULTILINE,
)


class _Mail(NamedTuple):
    message: Message
    headers: dict[str, str]
    line: int
    end: int

    @property
    def id(self) -> str:
        return next(iter(self.ids("message-id")), "")

    def ids(self, name: str) -> list[str]:
        """Return the ids of messages in a header, without brackets."""
        return [each[:MAX_NAME] for each in _ID.findall(self.headers.get(name, ""))]


def read_mbox(content: bytes, name: str) -> list[Document]:
    """Read the messages of an archive; those that cannot be parsed are counted."""
    starts = [found.span() for found in _START.finditer(content)]
    if not starts:
        raise UnreadableError("not an mbox archive")
    mails: list[_Mail] = []
    line, counted = 1, 0
    for (start, first), (stop, _) in zip(starts, [*starts[1:], (len(content), 0)], strict=True):
        line += content.count(b"\n", counted, start)
        counted = start
        with suppress(UnreadableError):
            mails.append(_parsed(re.sub(rb"^>(>*From )", rb"\1", content[first:stop], flags=re.MULTILINE), line + 1))
    known = {mail.id for mail in mails}
    documents: dict[str, Document] = {}
    for number, mail in enumerate(mails, 1):
        own = f"{name}#{mail.id or number}"
        own = f"{own}:{number}" if own in documents else own
        with suppress(UnreadableError):
            documents[own] = _document(mail, own, known)
    if not documents:
        raise UnreadableError("no message that can be read")
    return list(documents.values())


def read_eml(content: bytes, name: str) -> list[Document]:
    """Read a message."""
    return [_document(_parsed(content, 1), name, frozenset())]


def _parsed(content: bytes, line: int) -> _Mail:
    if content.count(b"\n") * content.lower().count(b"boundary") > _MOST_STEPS or _LONG_HEADER.search(content):
        raise UnreadableError("a mail of too many parts, or with a header that is too long")
    try:
        message = message_from_bytes(content)
        headers: dict[str, str] = {}
        for name, value in message.raw_items():
            if (known := name.lower()) in _HEADERS and known not in headers:
                headers[known] = _decoded(str(value)[:MAX_HEADER])
    except Exception as error:  # a parser of untrusted files fails in many ways
        raise UnreadableError("cannot be read as mail") from error
    if not headers:
        raise UnreadableError("not a mail")
    return _Mail(message, headers, line, line + content.rstrip().count(b"\n"))


def _decoded(header: str) -> str:
    header = header.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with suppress(HeaderParseError, LookupError, ValueError):
        header = str(make_header(decode_header(header)))
    return " ".join(header.split())


def _document(mail: _Mail, name: str, known: set[str] | frozenset[str]) -> Document:
    """Return a message; it replies to the latest of the messages before it that is known, or else to the last."""
    try:
        text, files = _text(mail.message)
    except UnreadableError:
        raise
    except Exception as error:  # as above
        raise UnreadableError("cannot be read as mail") from error
    text, dropped = without_blobs(text)
    before = [*mail.ids("references"), *mail.ids("in-reply-to")[:1]][::-1]
    parent = next((each for each in before if each in known), before[0] if before else "")
    links = (Link(parent, mail.line, LABEL, "reply"),) if parent and parent != mail.id else ()
    sender, date = mail.headers.get("from", "")[:MAX_SENDER], _date(mail.headers.get("date", ""))
    parts = [", ".join(filter(None, (sender and f"From: {sender}", date))), text]
    parts += [f"Attachments: {', '.join(files)}"] if files else []
    shown = [part for part in parts if part]
    blocks = tuple(Block(part, mail.line, () if number else links) for number, part in enumerate(shown))
    section = Section("", blocks, mail.line, mail.end, labels=(mail.id,) if mail.id else ())
    return Document(name, mail.headers.get("subject", "")[:MAX_NAME], (section,), dropped=dropped)


def _date(header: str) -> str:
    with suppress(Exception):  # of the date's parser, which indexes what it expects
        return f"{parsedate_to_datetime(header[:100]):%Y-%m-%d %H:%M}"
    return header[:100]


def _text(message: Message) -> tuple[str, list[str]]:
    """Return the texts of a message and of those in it, else that of its page, and the names of its files."""
    texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    files: list[str] = []
    for part in islice(message.walk(), MAX_PARTS):
        kind = part.get_content_type()
        if file := part.get_filename():
            files.append(_decoded(file[:MAX_HEADER])[:MAX_SENDER])
        elif kind in texts and isinstance(content := part.get_payload(decode=True), bytes) and content.strip():
            texts[kind].append(decode_text(content, str(part.get_content_charset(""))))
    plain = texts["text/plain"] or ["\n\n".join(_page(page)) for page in texts["text/html"][:1]]
    return "\n\n".join(filter(None, map(_answer, plain))), files


def _page(page: str) -> Iterator[str]:
    documents = reader_of("mail.html")(page[:MAX_PAGE].encode(), "mail.html")
    for section in (section for document in documents for section in document.sections):
        yield from filter(None, (section.heading, *(block.text for block in section.blocks)))


def _answer(text: str) -> str:
    """Leave out what a message quotes, its signature and headers within it, if anything is left then."""
    text = _FORWARDED.sub("", text.replace("\u00a0", " "))
    end = _END.search(text)
    own = _QUOTED.sub("\n", text[: end.start()] if end else text).strip()
    return own or re.sub(r"^[> ]+", "", text, flags=re.MULTILINE).strip()
