"""What a format gives: documents of sections of blocks, and the links that they hold.

The files are not trusted: the time and the memory of a reader grow with the length of a file alone, and what it returns
is not longer than the file but for names, which are cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphrerank.utils.checks import UserError

PATH, PAGE, DOCUMENT, LABEL, SYMBOL = LINK_KINDS = ("path", "page", "document", "label", "symbol")
MAX_NAME, MAX_TARGET = 1000, 2000  # characters of a title, heading, anchor or id, which passages repeat; of a target


class UnreadableError(UserError):
    """A file or record that is not read; the message is the reason, without its name."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it is written; what it points at is found when all documents are read."""

    target: str  # without the marks of its format, not longer than MAX_TARGET (longer ones are left out)
    line: int = 0  # of the file, from 1; 0 where the format has no lines
    # how the target is found:
    # path: a URL or a path, relative to the document or, with a leading /, to the site; perhaps `#anchor`
    # page: a page of a wiki by its name, title or alias; perhaps `#heading`
    # document: Sphinx's `:doc:`, a path without suffix, relative to the document or, with /, to the folder
    # label: of a section of any document (Sphinx's `:ref:`, the id of a message), as in `Section.labels`
    # symbol: a qualified name of code (`pump.Motor.start`), as in `Section.symbols`; unknown ones are not dead links
    kind: str = PATH
    edge: str = "link"  # the type of its edge: link, reply, call, import, inherits, tests


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a section that is not cut if it fits: a paragraph, an item of a list, a row of a table, code."""

    text: str  # not empty; without white space at its ends, but for the first line's indentation of code
    line: int = 0  # of the file, from 1, where the block starts
    links: tuple[Link, ...] = ()
    is_whole: bool = False  # code, a row, a record of a chat: never cut but above the bound of characters
    is_tight: bool = False  # follows the block before without an empty line: items, rows
    header: str = ""  # of a table: its first row as text, the same for all rows; each passage of rows begins with it


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it, up to the next heading; of code a function, method or class."""

    heading: (
        str  # as it is shown, in plain text; of code the qualified name within the file; empty before the first one
    )
    blocks: tuple[Block, ...] = ()
    line: int = 0  # of the file: where the section starts, its heading included
    end: int = 0  # the last line, subsections not included; with `line` the sections of a document cover its text
    anchors: tuple[str, ...] = ()  # names after `#` that point at it, as the format makes them; the first is its own
    labels: tuple[str, ...] = ()  # names that point at it from any document
    symbols: tuple[str, ...] = ()  # qualified names of code that it defines or documents


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a file, mostly the only one."""

    name: str  # the path within the folder; for one of several documents of a file with `#` and its id or number
    title: str
    sections: tuple[Section, ...]
    aliases: tuple[str, ...] = ()  # of front matter: paths of the site (with /), which redirect here, and wiki names
    base: str = ""  # of `<base href>`, for its links
    imports: Mapping[str, str] = field(default_factory=dict)  # of code: a name in this file -> the symbol it stands for
    dropped: Mapping[str, int] = field(default_factory=dict)  # what was left out, for the account: "data URIs": 3
    is_page: bool = False  # whether it may repeat a site's navigation, header and footer, which are searched for
