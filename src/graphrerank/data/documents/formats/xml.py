"""Texts, data and feeds in XML."""

from collections.abc import Iterable
from dataclasses import replace
from html import unescape
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import MAX_NAME, MAX_TARGET, Block, Document, Link, Section, UnreadableError
from graphrerank.data.documents.formats.html import read_html
from graphrerank.data.documents.formats.sections import Sections
from graphrerank.extras import optional

_PROSE = frozenset(("p", "para", "simpara", "ab", "l", "sp", "li"))  # names of elements of a text, not of data
_TITLES = frozenset(("title", "head", "bridgehead"))
_PART_NAMES = """programlisting screen literallayout codeblock msgblock itemizedlist orderedlist variablelist listitem
varlistentry ul ol li dl dlentry table row entry note tip warning caution important figure example blockquote formalpara
list item lg l"""
_PARTS = frozenset(_PART_NAMES.split())  # that end a paragraph in which they stand
_ROWS = frozenset(("row", "tr"))
_CODE = frozenset(("programlisting", "screen", "literallayout", "codeblock", "msgblock", "pre"))
_LABELS, _PATHS = ("linkend",), ("href", "url", "target", "conref")  # attributes of links
_MAX_ATTRIBUTES = 1000  # of an element, which take quadratic time
_PARTS_WITH_TITLES = ("topic", "chapter", "section", "procedure")  # as attributes
_MAX_PARTS = 30  # of a record that is a block
_ITEMS = ("item", "entry")
_FEEDS = ("rss", "feed", "RDF")


def read_xml(content: bytes, name: str) -> list[Document]:
    """Read a text in XML by its titles, data as names and texts, or the items of a feed as documents."""
    etree = optional("lxml.etree", "an XML file")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableError("not XML") from error
    local = _local(root)
    if local == "html":
        return read_html(content, name)
    if local in _FEEDS:
        return _read_feed(root, name)
    is_data = not any(_local(element) in _PROSE for element in root.iter())
    out = _XMLWalk(is_data=is_data).walk(etree.iterwalk(root, events=("start", "end")))
    title = out.titled or PurePosixPath(name).stem
    sections = (replace(section, labels=section.anchors) for section in out.end())  # that any document may name
    return [Document(name, title, tuple(sections))]


def _local(element: Any) -> str:
    """Return the name of an element without its namespace; of an entity nothing."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


class _XMLWalk:
    """Collects the sections of a text of XML."""

    def __init__(self, *, is_data: bool) -> None:
        self._out = Sections()
        self._is_data = is_data
        self._parts: list[str] = []
        self._ids: list[str] = []
        self._mixed: list[bool] = []  # of the elements that are open, whether texts stand between their parts
        self._record: list[str] = []  # what the parts of an element of data say
        self._whole: Any = None  # the title or row that is open
        self._is_first = True  # whether no title has come

    def walk(self, events: Iterable[tuple[str, Any]]) -> Sections:
        """Go through the starts and ends of elements."""
        for event, element in events:
            local = _local(element)
            is_inline = not local or (bool(self._mixed) and self._mixed[-1] and local not in _PARTS)
            if event == "start":
                self._start(element, local, is_inline=is_inline or self._whole is not None)
            else:
                self._mixed.pop()
                is_inline = not local or (bool(self._mixed) and self._mixed[-1] and local not in _PARTS)
                self._end(element, local, is_inline=is_inline or self._whole is not None)
        self._flush()
        self._end_record()
        self._out.point(self._ids)
        return self._out

    def _start(self, element: Any, local: str, *, is_inline: bool) -> None:
        if not is_inline:
            self._flush()
        elif self._whole is not None and _local(self._whole) in _ROWS:
            self._parts.append(" | " if element.getparent() is self._whole else " ")
        text = element.text or ""
        self._mixed.append(is_inline or bool(text.strip()) or any((part.tail or "").strip() for part in element))
        if not local:
            self._parts.append(unescape(text))
            return
        if len(element):
            self._end_record()
        self._read_attributes(element, local)
        if (title := element.get("title")) and local in _PARTS_WITH_TITLES:  # of Writerside
            self._start_section(title)
        if not is_inline and (local in _TITLES or local in _ROWS):
            self._whole = element
        self._parts.append(text)

    def _read_attributes(self, element: Any, local: str) -> None:
        said = []
        for key, value in element.attrib.items() if len(element.attrib) <= _MAX_ATTRIBUTES else ():
            key = key.rpartition("}")[2]
            if key.lower() == "id":
                self._ids.append(value)
            elif key in _LABELS:
                self._out.link(value, "label")
            elif key in _PATHS and " " not in value:
                self._out.link(value)
            said.append(f"{key}={value}")
        if self._is_data and said:
            self._record.append(f"{local}: {', '.join(said)}")

    def _end(self, element: Any, local: str, *, is_inline: bool) -> None:
        if element is self._whole:
            heading, self._whole = " ".join("".join(self._parts).split()).strip(" |"), None
            self._parts = []
            if heading and local in _ROWS:
                self._out.add(heading, "row", is_whole=True)
            elif heading:
                self._start_section(heading)
        elif not is_inline:
            self._flush(local, is_leaf=len(element) == 0)
            if len(element):
                self._end_record()
        self._parts.append(element.tail or "")

    def _start_section(self, heading: str) -> None:
        self._end_record()
        self._out.start(heading, self._ids[::-1], level=1 if self._is_first else 2)
        self._ids, self._is_first = [], False

    def _end_record(self) -> None:
        """Add a record as a block, or its parts if they are many."""
        if len(self._record) <= _MAX_PARTS:
            self._out.add("\n".join(self._record), is_whole=True)
        else:
            for part in self._record:
                self._out.add(part, "item")
        self._record = []

    def _flush(self, local: str = "", *, is_leaf: bool = False) -> None:
        is_code = local in _CODE
        text = "".join(self._parts)
        text = text.strip("\n").rstrip() if is_code else " ".join(text.split())
        self._parts = []
        if text:
            self._out.point(self._ids)
            self._ids = []
            if self._is_data and is_leaf:
                self._record.append(f"{local}: {text}")
            else:
                self._end_record()
                self._out.add(text, is_whole=is_code)


def _read_feed(root: Any, name: str) -> list[Document]:
    """Read the items of RSS or Atom."""
    documents = []
    for number, item in enumerate((part for part in root.iter() if _local(part) in _ITEMS), 1):
        said: dict[str, str] = {}
        for part in item:
            key, text = _local(part), "".join(part.itertext()).strip() or part.get("href") or ""
            if len(text) > len(said.get(key, "")):
                said[key] = text
        page = next((said[key] for key in ("encoded", "content", "description", "summary") if key in said), "")
        title = " ".join(said.get("title", "").split())[:MAX_NAME]
        (document,) = read_html(f"<body><main>{page}".encode(), name)
        link = (Link(said["link"]),) if 0 < len(said.get("link", "")) <= MAX_TARGET else ()
        sections = document.sections or ((Section("", (Block(title),)),) if title else ())
        if link and sections and sections[0].blocks:
            first, *others = sections[0].blocks
            sections = (replace(sections[0], blocks=(replace(first, links=link + first.links), *others)), *sections[1:])
        documents.append(Document(f"{name}#{number}", title or f"{number}", sections))
    return documents
