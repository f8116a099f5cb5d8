"""Parse documents and data in XML by converting them to HTML."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from pathlib import PurePosixPath
from typing import Any

from graphrerank.installation.extras import optional
from graphrerank_documents.document import LABEL, Block, Document, UnreadableError
from graphrerank_documents.formats.html import read_html
from graphrerank_documents.formats.mediawiki import read_dump

_PROSE = frozenset(("p", "para", "simpara", "ab", "l", "sp", "li"))  # elements that distinguish documents from data
# HTML elements and the corresponding elements of DocBook, DITA, TEI and Writerside. Other elements in text are inline.
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
_TARGETS = ("linkend", "href", "url", "target", "conref")  # attributes of links; `linkend` is an id in any document
_LABEL = "label:"  # prefix of `linkend` targets in the HTML page
_HEAD = 4096  # number of bytes in which the root element is searched for
_DUMP = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,99}(?:<[?!][^<>]{0,1000}>\s{0,99}){0,9}<mediawiki[\s>]")
_MAX_ATTRIBUTES = 1000  # maximum number of attributes of an element, because their time is quadratic


def read_xml(content: bytes, name: str) -> list[Document]:
    """Parse an XML file. If it contains data rather than a document, the text includes the names of elements.

    Ids of elements become labels.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document, or one per page of a dump of MediaWiki.

    Raises:
        UnreadableError: If ``content`` is not XML.
    """
    if _DUMP.match(content[:_HEAD]):
        return read_dump(content, name)
    root = parse_xml(content)
    if local_name(root) == "html":
        return read_html(content, name)
    (page,) = read_html("".join(_page(root)).encode(), name)
    sections = tuple(
        replace(section, labels=section.anchors, blocks=tuple(map(_with_labels, section.blocks)))
        for section in page.sections
    )
    title = next((section.heading for section in sections if section.heading), PurePosixPath(name).stem)
    return [Document(name, title, sections)]


def parse_xml(content: bytes) -> Any:
    """Return the root element of an XML file. Entities are not resolved.

    Args:
        content: Bytes of the file.

    Raises:
        UnreadableError: If ``content`` is not XML.
    """
    etree = optional("lxml.etree", "an XML file")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        return etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnreadableError("not XML") from error


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace, or an empty string for an entity.

    Args:
        element: Element of lxml.
    """
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attributes(element: Any) -> dict[str, str]:
    """Return the attributes of an element, with names without namespaces."""
    held = element.attrib.items() if len(element.attrib) <= _MAX_ATTRIBUTES else ()
    return {key.rpartition("}")[2]: value for key, value in held}


def _targets(attributes: Mapping[str, str]) -> list[str]:
    held = ((key, attributes.get(key, " ")) for key in _TARGETS)
    return [f"{_LABEL * (key == _TARGETS[0])}{target}" for key, target in held if target and " " not in target]


def _page(root: Any) -> Iterator[str]:
    """Yield fragments of the HTML page."""
    yield "<body><main>"
    is_prose = any(local_name(part) in _PROSE for part in root.iter())
    texts = [
        part for part in root.iter() if _HTML.get(local_name(part)) in ("p", "h2", "pre") or (part.text or "").strip()
    ]
    lines = {*texts, *(part.getparent() for part in root.iter() if (part.tail or "").strip())}
    for event, element in optional("lxml.etree", "an XML file").iterwalk(root, events=("start", "end")):
        local, parent = local_name(element), element.getparent()
        if not is_prose:
            tag = "div" if len(element) else "span"
        elif (tag := _HTML.get(local, "span" if parent in lines else "div")) == "span":
            lines.add(element)
        if event == "end":
            yield f"</{tag}>" * bool(local) + escape(element.tail or "")
            continue
        if not local:  # an entity
            yield element.text or ""
            continue
        attributes, text = _attributes(element), element.text or ""
        yield f'<{tag} id="{escape(attributes.get("id", ""))}">'
        yield from (f'<area href="{escape(target)}">' for target in _targets(attributes))
        if not is_prose:
            said = [", ".join(f"{key}={value}" for key, value in attributes.items()), " ".join(text.split())]
            yield from (f"{escape(f'{local}: {each}')}<br>" for each in said if each)
            continue
        yield "<tr>" * (tag == "table") + escape(text)
        if (title := attributes.get("title")) and tag == "div":  # Writerside has titles as attributes
            yield f"<h2>{escape(title)}</h2>"


def _with_labels(block: Block) -> Block:
    links = (
        replace(link, target=label, kind=LABEL) if (label := link.target.removeprefix(_LABEL)) != link.target else link
        for link in block.links
    )
    return replace(block, links=tuple(links))
