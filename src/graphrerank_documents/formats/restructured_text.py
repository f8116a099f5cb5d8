"""Parse reStructuredText with docutils. Roles and directives of Sphinx are supported without Sphinx."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from graphrerank.installation.extras import importing
from graphrerank_documents.document import PATH, Document, Link, UnreadableError
from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.formats.lined_reader import LinedReader, Row, Span
from graphrerank_documents.formats.redirect_pages import markup_url, redirecting
from graphrerank_documents.formats.sphinx_markup import directive_of, role_of

with importing("documents", "an RST file"):
    from docutils import frontend, nodes, utils
    from docutils.parsers.rst import Parser, directives, roles, states
    from docutils.transforms import references

#: Maximum number of characters of a file. docutils takes about three seconds per million characters.
MAX_CHARS = 3_000_000
_MAX_LINE = 50_000  # maximum number of characters of a line
# Limit on the sum over paragraphs of markup characters times length, which bounds the time of the inline parser. The
# paragraphs beyond it are treated as plain text.
_MAX_MARKS = 100_000_000

_METADATA = ("orphan", "tocdepth", "nosearch", "no-search", "nocomments", "template")  # fields that describe the page
_HIDDEN = ("comment", "substitution_definition", "transition", "pending", "system_message")
_SETTINGS = frontend.get_default_settings(Parser)
_SETTINGS.__dict__.update(
    report_level=5,
    halt_level=5,
    file_insertion_enabled=False,
    raw_enabled=False,
    auto_id_prefix="id",  # as in Sphinx
    line_length_limit=_MAX_LINE,
    # settings of this module: the current module or class, and the remaining work of the inline parser
    module="",
    includes=(),
    marks=_MAX_MARKS,
)
_THEIR_NAMES = nodes.document.set_name_id_map
_TRANSFORMS = (references.AnonymousHyperlinks, references.IndirectHyperlinks, references.ExternalTargets)


def read_rst(content: bytes, name: str) -> list[Document]:
    """Parse a reStructuredText file with or without Sphinx markup. Included files are not opened.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with a section per heading and per described object.

    Raises:
        UnreadableError: If ``content`` is binary or too long, or its encoding is unknown.
    """
    reader = _RST(content, name)
    documents = reader.read()
    url = markup_url(reader.text) if "refresh" in reader.text.lower() else ""
    return [redirecting(document, url) for document in documents]


def _inline_text(state: Any, text: str, lineno: int) -> Any:
    """Parse the inline markup of a paragraph within a limit, because unclosed markup takes quadratic time."""
    settings = state.document.settings
    settings.marks -= sum(map(text.count, "`*|_")) * len(text)
    if settings.marks < 0:
        return [nodes.Text(text)], []
    return state.inliner.parse(text, lineno, state.memo, state.parent)


def _set_names(document: Any, node: Any, id: str, msgnode: Any = None, explicit: bool = False) -> None:
    """Register the names of a node without messages, because docutils takes quadratic time to attach them."""
    _THEIR_NAMES(document, node, id, None, explicit)


def _section(state: Any, title: str, source: str, style: str, lineno: int, messages: Any) -> None:
    """Open a section directly below the document, ignoring its level."""
    while isinstance(state.parent, nodes.section):
        state.parent = state.parent.parent
    state.new_subsection(title, lineno, messages)
    line = state.state_machine.get_source_and_line(lineno)[1] or 0
    state.parent.line = line - (len(style) > 1)


class _States(dict[str, Any]):
    """States of a state machine, created on first use. Most machines need two of fifteen states."""

    def __init__(self, machine: Any, classes: Sequence[Any]) -> None:
        super().__init__()
        self.machine, self.classes = machine, {found.__name__: found for found in classes}

    def __missing__(self, name: str) -> Any:
        state = self[name] = self.classes[name](self.machine)
        if hasattr(self.machine, "memo"):
            state.runtime_init()
        return state


class _Machine(states.NestedStateMachine):
    def add_states(self, state_classes: Sequence[Any]) -> None:
        """Create the states on first use."""
        self.states = _States(self, state_classes)

    def attach_observer(self, observer: Any) -> None:
        """Do nothing, because nodes have line numbers without observers."""


@contextmanager
def _sphinx() -> Iterator[None]:
    """Replace functions of docutils, so that it finds our roles and directives and creates flat sections."""
    state = states.RSTState
    ours: list[tuple[Any, str, Any]] = [(directives, "directive", directive_of), (roles, "role", role_of)]
    ours += [(nodes.document, "set_name_id_map", _set_names)]
    ours += [(state, "section", _section), (state, "inline_text", _inline_text)]
    ours += [(state, "nested_sm", _Machine), (state, "nested_sm_cache", [])]
    theirs = [(owner, name, getattr(owner, name)) for owner, name, _ in ours]
    try:
        for owner, name, new in ours:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in theirs:
            setattr(owner, name, old)


class _RST(LinedReader):
    """Converter of docutils' tree: methods ``on_TYPE`` convert nodes by type, and other nodes only have children."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        if max(map(len, self.text.split("\n"))) > _MAX_LINE or len(self.text) > MAX_CHARS:
            raise UnreadableError(f"more than {_MAX_LINE:,} characters in a line, or {MAX_CHARS:,} in the file")
        self.tree = utils.new_document(name, _SETTINGS.copy())
        self.tree.settings.includes = []
        self.pending: list[Any] = []  # targets that precede the element to which they refer
        self.line = self.text_line = 1  # line of the current block, and of the text within it
        self.room = len(self.text)  # number of characters that substitutions may still add

    def read(self) -> list[Document]:
        """Parse the text and convert the tree."""
        with _sphinx():
            Parser().parse(self.text, self.tree)
        for transform in _TRANSFORMS:
            transform(self.tree).apply()
        self.children(self.tree)
        self.point()
        includes = tuple(dict.fromkeys(self.tree.settings.includes))
        return [replace(document, includes=includes) for document in self.documents()]

    def point(self, *found: Any) -> None:
        """Add the names of nodes and pending targets to the current section."""
        span = self.spans[-1]
        for node in (*self.pending, *found):
            span.anchors += [*node["ids"], *node.get("anchors", ())]
            span.labels += [*node["names"], *node["dupnames"], *node.get("labels", ())]
            span.symbols += node.get("symbols", ())
        self.pending = []

    def children(self, node: Any) -> None:
        """Convert the children of a node."""
        for child in node.children:
            self.visit(child)

    def visit(self, node: Any) -> None:
        """Convert a node."""
        self.line = max(self.line, node.line or 0)
        if node.tagname == "target":
            self.pending += [node] if not node.get("refuri") else []
        elif node.tagname == "section":
            heading, links = self.inline(node.pop(0), node.line)
            self.open(heading, node.line, links)
            self.point()
            self.spans[-1].anchors += node["ids"]
            self.children(node)
        elif node.get("heading"):
            around = self.spans[-1]
            self.open(node["heading"], node.line)
            self.point(node)
            self.children(node)
            self.point()
            self.spans.append(Span(around.heading, node["end"] + 1, anchors=around.anchors[:1], goes_on=True))
        elif node.tagname not in _HIDDEN:
            self.point(node)
            getattr(self, f"on_{node.tagname}", self.children)(node)

    def show(self, node: Any, **options: Any) -> None:
        """Add the text of a node as a block."""
        text, links = self.inline(node)
        self.add(" ".join(text.split()), node.line or self.line, links, **options)

    on_paragraph = on_rubric = on_attribution = on_caption = on_title = show

    def on_image(self, node: Any) -> None:
        """Add the alternative text of an image."""
        self.show(nodes.paragraph("", "", node))

    def on_line_block(self, node: Any) -> None:
        """Add lines without joining them."""
        text, links = self.inline(node)
        self.add("\n".join(map(str.strip, text.split("\n"))).strip(), node.line or self.line, links)

    def on_literal_block(self, node: Any) -> None:
        """Add code as an indivisible block."""
        self.add(node.astext().strip("\n").rstrip(), node.line or self.line, is_whole=True)

    on_doctest_block = on_math_block = on_literal_block

    def on_bullet_list(self, node: Any) -> None:
        """Add the items of a list."""
        for i, item in enumerate(node.children):
            self.mark = f"{node.get('start', 1) + i}. " if node.tagname == "enumerated_list" else "- "
            self.is_tight = i > 0
            self.children(item)
        self.mark, self.is_tight = "", False

    on_enumerated_list = on_bullet_list

    def on_definition_list_item(self, node: Any) -> None:
        """Add a term as a line before the first paragraph of its definition."""
        *heads, body = node.children  # the term and its classifiers, and the definition
        terms, links = list[str](), list[Link]()
        for head in heads:
            self.spans[-1].anchors += head["ids"]
            term, term_links = self.inline(head)
            terms.append(term)
            links += term_links
        text = " ".join(" : ".join(terms).split())
        if body.children and body[0].tagname == "paragraph":
            definition, definition_links = self.inline(body.pop(0))
            text = f"{text}\n{' '.join(definition.split())}"
            links += definition_links
        self.add(text, node.line or self.line, links)
        self.children(body)

    def on_field(self, node: Any) -> None:
        """Add a field with its name. Fields that describe the page are omitted."""
        name, body = node.children
        if name.astext().split(" ")[0] in _METADATA and not self.spans[-1].heading:
            return
        self.mark, self.is_tight = f"{' '.join(name.astext().split())}: ", True
        self.children(body)
        self.mark, self.is_tight = "", False

    on_option_list_item = on_field

    def on_label(self, node: Any) -> None:
        """Use the number of a footnote or the label of a citation as the marker of the next block."""
        self.mark = f"[{node.astext()}] "

    def on_tgroup(self, node: Any) -> None:
        """Add the rows of a table."""
        groups = {group.tagname: group.children for group in node.children}
        heads, rows = groups.get("thead", []), groups.get("tbody", [])
        self.table([self.row(row) for row in (*heads, *rows)], len(heads))

    def row(self, node: Any) -> Row:
        """Return the text, line and links of a table row."""
        cells, links = list[str](), list[Link]()
        for entry in node.children:
            text, cell_links = self.inline(entry)
            cells.append(" ".join(text.split()))
            links += cell_links
        line = next((paragraph.line for paragraph in node.findall(nodes.paragraph) if paragraph.line), self.line)
        return Row(" | ".join(cells).strip(), line, links)

    def inline(self, node: Any, line: int = 0) -> tuple[str, list[Link]]:
        """Return the text of a node, and its links."""
        parts, links = list[str](), list[Link]()
        self.text_line = line or node.line or self.line
        self.within(node, parts, links)
        return "".join(parts), links

    def within(self, node: Any, parts: list[str], links: list[Link]) -> None:
        """Append the texts and links of a node's descendants."""
        for child in node.children:
            if isinstance(child, nodes.Text):
                parts.append(child.astext())
                self.text_line += child.count("\n")
                continue
            name, is_inline = child.tagname, isinstance(child, nodes.Inline)
            # docutils sets the line of an inline node to a line after it
            self.text_line = self.text_line if is_inline else child.line or self.text_line
            if name in ("reference", "image"):
                kind, address = child.get("link") or (PATH, self.address(child))
                links += [Link(address, self.text_line, kind)] if address else []
            if name == "target":
                self.pending += [child] if not child.get("refuri") else []
            if name == "image":
                parts.append(alt_text(child.get("alt") or ""))
            elif name in ("footnote_reference", "citation_reference"):
                parts.append(f"[{child.astext() or '#'}]")
            elif name == "substitution_reference" and (definition := self.definition(child)):
                remaining_room = self.room - len(definition.astext())
                self.room = 0  # disallow nested substitutions
                self.within(definition, parts, links)
                self.room = remaining_room
            elif name not in ("system_message", "comment"):
                self.within(child, parts, links)
                parts.append("" if is_inline else "\n")

    def address(self, node: Any) -> str:
        """Return the target of a docutils reference."""
        name = node.get("refid") or self.tree.nameids.get(node.get("refname"))
        return node.get("refuri") or (f"#{name}" if name else "")

    def definition(self, node: Any) -> Any:
        """Return the definition of a substitution, or None if it is undefined or too long."""
        definitions, name = self.tree.substitution_defs, node["refname"]
        definition = definitions.get(name) or definitions.get(self.tree.substitution_names.get(name.lower()))
        return definition if definition and len(definition.astext()) <= self.room else None
