"""Parsed documents: documents contain sections, sections contain blocks, and blocks contain links.

Files are untrusted. The time and memory of a reader are proportional to the length of the file. The text that it
returns is not longer than the file, except for names, which are truncated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphrerank.utils.checks import UserError

PATH, PAGE, DOCUMENT, LABEL, SYMBOL, TAG = LINK_KINDS = ("path", "page", "document", "label", "symbol", "tag")
#: Maximum number of characters of a title, heading, anchor or id. Passages repeat these names.
MAX_NAME = 1000
#: Maximum number of characters of a link's target. Links with longer targets are dropped.
MAX_TARGET = 2000


class UnreadableError(UserError):
    """Raised if a file or record cannot be parsed. The message is the reason without the name of the file."""


@dataclass(frozen=True, slots=True)
class Link:
    """Link as written in a document. Targets are resolved after all documents have been parsed.

    Attributes:
        target: Target without markup, at most :data:`MAX_TARGET` characters. The meaning depends on ``kind``.
        line: Line of the file, 1-based, or 0 if the format has no lines.
        kind: Kind of the target:

            - ``path``: URL or path, optionally followed by ``#anchor``. A path is relative to the document or, with a
              leading ``/``, to the site.
            - ``page``: name, title or alias of a wiki page, optionally followed by ``#heading``.
            - ``document``: path without suffix, as in Sphinx's ``:doc:``. The path is relative to the document or, with
              a leading ``/``, to the folder.
            - ``label``: one of :attr:`Section.labels` in any document, as in Sphinx's ``:ref:``, or a message id.
            - ``symbol``: qualified name in code, such as ``pump.Motor.start``, as in :attr:`Section.symbols`. Unknown
              symbols are not reported as broken links.
            - ``tag``: name of a page, as in Logseq's ``#name``. Tags without a page are not reported as broken links.
        edge: Type of the resulting edge: link, reply, call, import, inherits or tests. Redirects have the type redirect
            in the report and no edge.
    """

    target: str
    line: int = 0
    kind: str = PATH
    edge: str = "link"


@dataclass(frozen=True, slots=True)
class Block:
    """Smallest unit of a section, such as a paragraph, a list item, a table row or a code listing.

    A block that fits into a passage is not split.

    Attributes:
        text: Non-empty text without surrounding white space. Code keeps the indentation of its first line.
        line: First line in the file, 1-based, or 0 if the format has no lines.
        links: Links in the block.
        is_whole: Whether the block is split only if it exceeds the maximum number of characters of a passage. True for
            code, table rows and chat messages.
        is_tight: Whether there is no empty line before the block, as between list items and table rows.
        header: Text of the table's header row, repeated in each passage with rows of the table. Empty for other blocks.
    """

    text: str
    line: int = 0
    links: tuple[Link, ...] = ()
    is_whole: bool = False
    is_tight: bool = False
    header: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Heading and the text up to the next heading. In code, a function, method or class.

    Attributes:
        heading: Heading as plain text or, in code, the qualified name within the file. Empty for the text before the
            first heading.
        blocks: Blocks of the section.
        line: First line in the file, including the heading, 1-based, or 0 if the format has no lines.
        end: Last line, excluding subsections. The line ranges of all sections cover the text of the document.
        anchors: Fragments of URLs (after ``#``) that point to the section. The first one is used in passage ids.
        labels: Names that point to the section from any document.
        symbols: Qualified names in code that the section defines or documents.
    """

    heading: str
    blocks: tuple[Block, ...] = ()
    line: int = 0
    end: int = 0
    anchors: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """Document parsed from a file. Most files contain exactly one document.

    Attributes:
        name: Path of the file within the folder. If the file has several documents, ``#`` and an id or number follow.
        title: Title of the document.
        sections: Sections in order.
        aliases: Alternative names from the front matter: wiki names, and paths of the site (with a leading ``/``) that
            redirect to the document.
        base: Base URL of relative links, from ``<base href>``. Empty if there is none.
        imports: Symbol that each local name of a code file refers to.
        dropped: Number of omitted parts, by kind, such as ``{"data URIs": 3}``.
        is_page: Whether the document is a web page, which may contain the navigation, header and footer of its site.
        includes: Paths of files that the document includes, as written.
        names: Definitions for this and other documents, by name
            (see :func:`~graphrerank_documents.deferred_names.definition_of`).
        redirect: Page to which the document sends its readers. Such a document has no text, and links to it lead to
            that page. None for other documents.
        damage: Parts of the document that are damaged and were ignored, each as a reason for the report.
    """

    name: str
    title: str
    sections: tuple[Section, ...]
    aliases: tuple[str, ...] = ()
    base: str = ""
    imports: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    is_page: bool = False
    includes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    redirect: Link | None = None
    damage: tuple[str, ...] = ()
