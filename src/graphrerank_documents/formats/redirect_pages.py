"""Recognise pages that only send their readers to another page."""

import re
from collections.abc import Sequence
from dataclasses import replace

from graphrerank_documents.document import MAX_TARGET, PATH, Document, Link
from graphrerank_documents.redirects import REDIRECT

_MAX_WORDS = 60  # maximum number of words of a page that redirects, such as "This page moved to ..."
_META = re.compile(r"<meta\s([^<>]{1,1000})>", re.IGNORECASE)
_REFRESH = re.compile(r"http-equiv\s{0,9}=\s{0,9}[\"']?refresh\b", re.IGNORECASE)
_FIELD = re.compile(r"^\s{0,30}:http-equiv=refresh:(.{1,2000})$", re.IGNORECASE | re.MULTILINE)
_URL = re.compile(r"[\s\"'\d.]{0,20}[;,]\s{0,9}url\s{0,9}=\s{0,9}[\"']?\s{0,9}([^\"'\s<>]+)", re.IGNORECASE)
_CONTENT = re.compile(r"content\s{0,9}=\s{0,9}(.{1,1000})", re.IGNORECASE | re.DOTALL)
_COMPONENT = re.compile(r"<Redirect\s[^<>]{0,300}?\bto=[{\"'`]{1,2}([^\"'`{}<>\s]{1,1000})")
_SCRIPT = re.compile(
    r"(?<![\w.$])(?:(?:window|document|self|top)\.)?location(?:\.href)?(?:\s{0,9}=\s{0,9}|\.(?:replace|assign)\(\s{0,9})"
    r"[\"'`]([^\"'`\s]{1,1000})[\"'`]"
)


def refresh_url(content: str) -> str:
    """Return the URL in the attribute ``content`` of a ``meta`` element that refreshes a page, or an empty string.

    Args:
        content: Value of the attribute, such as ``0; url=new.html``.

    Example:
        >>> refresh_url("0; URL='new.html'"), refresh_url("30")
        ('new.html', '')
    """
    found = _URL.match(content)
    return found[1] if found else ""


def script_url(program: str) -> str:
    """Return the URL to which a script of a page sends its readers, or an empty string.

    Args:
        program: Text of the script.

    Example:
        >>> script_url('window.location.replace("new.html");'), script_url('x = location.href')
        ('new.html', '')
    """
    found = _SCRIPT.search(program)
    return found[1] if found else ""


def markup_url(text: str) -> str:
    """Return the URL to which a page in Markdown or reStructuredText sends its readers, or an empty string.

    Recognised are HTML elements that refresh the page, the field ``:http-equiv=refresh:`` and the component
    ``Redirect`` of MDX.

    Args:
        text: Text of the page without code.
    """
    if field := _FIELD.search(text):
        return refresh_url(field[1])
    metas = (found[1] for found in _META.finditer(text) if _REFRESH.search(found[1]))
    contents = (content for meta in metas if (content := _CONTENT.search(meta)))
    url = next((url for content in contents if (url := refresh_url(content[1].lstrip("\"'")))), "")
    component = None if url else _COMPONENT.search(text)
    return component[1] if component else url


def redirecting(document: Document, url: str, kind: str = PATH) -> Document:
    """Return a document that redirects, or the document itself if it has more text than such a page.

    Args:
        document: Document of the page.
        url: Target of the redirect. If empty, the document does not redirect.
        kind: Kind of the target, as in :class:`~graphrerank_documents.document.Link`.
    """
    if not 0 < len(url) <= MAX_TARGET or _num_words(document) > _MAX_WORDS:
        return document
    line = document.sections[0].line if document.sections else 0
    return replace(document, sections=(), redirect=Link(url, line, kind, REDIRECT))


def _num_words(document: Document) -> int:
    blocks: Sequence[str] = [block.text for section in document.sections for block in section.blocks]
    return sum(len(text.split()) for text in blocks)
