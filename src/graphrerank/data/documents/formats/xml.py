"""Texts, data and feeds in XML."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import (
    LABEL,
    MAX_NAME,
    MAX_TARGET,
    PATH,
    Block,
    Document,
    Link,
    Section,
    UnreadableError,
)
from graphrerank.data.documents.formats.html import read_html
from graphrerank.data.documents.formats.sections import Sections
from graphrerank.extras import optional

_PROSE = frozenset(("p", "para", "simpara", "ab", "l", "sp", "li"))  # names of elements of a text, not of data
# elements of HTML: those of DocBook, DITA, TEI and Writerside that are shown so; others are inline within a text
_SHOWN_AS = {
    "p": "p para simpara formalpara ab l lg sp",
    "div": "note tip warning caution important figure example blockquote dlentry varlistentry table procedure topic "
    "chapter section article book",
    "h2": "title head bridgehead",
    "pre": "programlisting screen literallayout codeblock msgblock pre",
    "ul": "itemizedlist orderedlist variablelist ul ol dl list",
    "li": "listitem li item",
    "table": "row tr",
    "td": "entry td th",
}
_HTML = {name: shown for shown, names in _SHOWN_AS.items() for name in names.split()}
_TARGETS = ("linkend", "href", "url", "target", "conref")  # attributes of links; the first names an id of any document
_LABEL = "label:"  # before them in the page
_MAX_ATTRIBUTES = 1000  # of an element, which take quadratic time
_MAX_PARTS = 30  # of a record that is a block
_ITEMS = ("item", "entry")
_FEEDS = ("rss", "feed", "RDF")


def read_xml(content: bytes, name: str) -> list[Document]:
    """Read a text in XML by its titles, data as names and texts, or the items of a feed as documents."""
    root = parse_xml(content)
    local = local_name(root)
    if local == "html":
        return read_html(content, name)
    if local in _FEEDS:
        return _read_feed(root, name)
    if any(local_name(element) in _PROSE for element in root.iter()):
        return _read_text(root, name)
    out = Sections()
    out.point(_attributes(part).get("id", "") for part in root.iter() if local_name(part))
    _read_data(root, out)
    sections = tuple(replace(section, labels=section.anchors) for section in out.end())
    return [Document(name, PurePosixPath(name).stem, sections)]


def parse_xml(content: bytes) -> Any:
    """Return the root of XML, whose entities are not resolved; an UnreadableError for what is none."""
    etree = optional("lxml.etree", "an XML file")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        return etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableError("not XML") from error


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; of an entity nothing."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attributes(element: Any) -> dict[str, str]:
    """Return the attributes of an element by their names without namespaces."""
    held = element.attrib.items() if len(element.attrib) <= _MAX_ATTRIBUTES else ()
    return {key.rpartition("}")[2]: value for key, value in held}


def _targets(attributes: Mapping[str, str]) -> list[str]:
    held = ((key, attributes.get(key, " ")) for key in _TARGETS)
    return [f"{_LABEL * (key == _TARGETS[0])}{target}" for key, target in held if target and " " not in target]


def _read_text(root: Any, name: str) -> list[Document]:
    """Read a text as the page of HTML that shows it; ids are labels, which any document may name."""
    shown = ["<body><main>"]
    texts = [
        part for part in root.iter() if _HTML.get(local_name(part)) in ("p", "h2", "pre") or (part.text or "").strip()
    ]
    lines = {*texts, *(part.getparent() for part in root.iter() if (part.tail or "").strip())}
    for event, element in optional("lxml.etree", "an XML file").iterwalk(root, events=("start", "end")):
        local = local_name(element)
        if (tag := _HTML.get(local, "span" if element.getparent() in lines else "div")) == "span":
            lines.add(element)
        if event == "end":
            shown += [f"</{tag}>" if local else "", escape(element.tail or "")]
            continue
        if not local:  # an entity
            shown.append(element.text or "")
            continue
        attributes = _attributes(element)
        shown.append(f'<{tag} id="{escape(attributes.get("id", ""))}">')
        shown += [f'<area href="{escape(target)}">' for target in _targets(attributes)]
        shown += ["<tr>" if tag == "table" else "", escape(element.text or "")]
        if (title := attributes.get("title")) and tag == "div":  # of Writerside
            shown.append(f"<h2>{escape(title)}</h2>")
    (page,) = read_html("".join(shown).encode(), name)
    sections = tuple(
        replace(section, labels=section.anchors, blocks=tuple(map(_with_labels, section.blocks)))
        for section in page.sections
    )
    title = next((section.heading for section in sections if section.heading), PurePosixPath(name).stem)
    return [Document(name, title, sections)]


def _with_labels(block: Block) -> Block:
    links = (
        replace(link, target=label, kind=LABEL) if (label := link.target.removeprefix(_LABEL)) != link.target else link
        for link in block.links
    )
    return replace(block, links=tuple(links))


def _read_data(element: Any, out: Sections) -> None:
    """Add the records of data, an element with its parts that have none, as blocks: lines of names and values."""
    records: dict[Any, list[str]] = {}
    targets: defaultdict[Any, list[str]] = defaultdict(list)
    for part in element.iter():
        if local := local_name(part):
            attributes = _attributes(part)
            value = " ".join(" ".join([part.text or "", *(inner.tail or "" for inner in part)]).split())
            owner = part if len(part) else part.getparent()
            record = records.setdefault(owner, [])
            said = ", ".join(f"{key}={value}" for key, value in attributes.items())
            record += [f"{local}: {each}" for each in (said, value) if each]
            targets[owner] += _targets(attributes)
    for owner, record in records.items():
        for target in targets[owner]:
            out.link(target.removeprefix(_LABEL), LABEL if target.startswith(_LABEL) else PATH)
        for text in ["\n".join(record)] if len(record) <= _MAX_PARTS else record:
            out.add(text, "item" if len(record) > _MAX_PARTS else "", is_whole=len(record) <= _MAX_PARTS)


def _read_feed(root: Any, name: str) -> list[Document]:
    """Read the items of RSS or Atom."""
    documents = []
    for number, item in enumerate((part for part in root.iter() if local_name(part) in _ITEMS), 1):
        said: dict[str, str] = {}
        for part in item:
            key, text = local_name(part), "".join(part.itertext()).strip() or part.get("href") or ""
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
