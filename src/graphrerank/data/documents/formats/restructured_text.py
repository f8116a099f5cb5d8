"""reStructuredText by docutils' parser, with Sphinx's roles and directives understood without Sphinx."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from graphrerank.data.documents.document import (
    MAX_NAME,
    MAX_TARGET,
    PATH,
    Block,
    Document,
    Link,
    Section,
    UnreadableError,
)
from graphrerank.data.documents.formats.spans import Span, sections_of
from graphrerank.data.documents.formats.sphinx_markup import directive_of, role_of
from graphrerank.data.documents.formats.text import decode_text, without_blobs
from graphrerank.extras import importing

with importing("documents", "an RST file"):
    from docutils import frontend, nodes, utils
    from docutils.parsers.rst import Parser, directives, roles, states
    from docutils.statemachine import StringList

MAX_CHARS, MAX_LINES = 3_000_000, 60_000  # of a file: docutils takes a second or two for each million characters
_MAX_LINE, _MAX_BLOCK = 50_000, 20_000  # characters of a line; lines of a block that has no end
_MAX_MARKS = 100_000_000  # marks times characters of their paragraphs, in time; those beyond are text
_MAX_COLUMNS = 100  # of a table, read in more than linear time
_MAX_NESTED = 40_000  # lists, items, cells and directives
_PART, _WEAK_PART = 300, 2000  # lines after which a heading, or any paragraph, begins another run of the parser

_METADATA = ("orphan", "tocdepth", "nosearch", "no-search", "nocomments", "template")  # fields of a whole page
_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+\s*")  # under or over a heading


def read_rst(content: bytes, name: str) -> list[Document]:
    """Read a file of reStructuredText, of Sphinx or not; nothing that it includes is opened."""
    text, dropped = without_blobs(decode_text(content))
    lines = [line.rstrip() for line in text.expandtabs(8).split("\n")]
    _check(lines)
    try:
        with _sphinx():
            tree = _parse(lines, name)
        walk = _Walk(tree, len(text))
        walk.children(tree)
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    sections = walk.sections(max(text.rstrip().count("\n") + 1, 1))
    title = next((section.heading for section in sections if section.heading), "") or PurePosixPath(name).stem
    return [Document(name, title, sections, dropped=dropped)]


def _check(lines: Sequence[str]) -> None:
    if sum(map(len, lines)) > MAX_CHARS:
        raise UnreadableError(f"more than {MAX_CHARS:,} characters of reStructuredText")
    if len(lines) > MAX_LINES:
        raise UnreadableError(f"more than {MAX_LINES:,} lines of reStructuredText")
    if any(line[:1] in "=+" and line.count(" =" if line[:1] == "=" else "+-") > _MAX_COLUMNS for line in lines if line):
        raise UnreadableError(f"a table of more than {_MAX_COLUMNS} columns")
    if max(map(len, lines)) > _MAX_LINE:
        raise UnreadableError(f"a line of more than {_MAX_LINE:,} characters")


# --- docutils: one document of a flat list of sections, parsed in parts, as its lists take quadratic time


_SETTINGS = frontend.get_default_settings(Parser)
_SETTINGS.__dict__.update(
    report_level=5,
    halt_level=5,
    file_insertion_enabled=False,
    raw_enabled=False,
    auto_id_prefix="id",  # Sphinx's
    module="",  # ours: what the names of objects begin with; what may still be read
    marks=_MAX_MARKS,
    nested=_MAX_NESTED,
)


def _parse(lines: list[str], name: str) -> Any:
    settings = _SETTINGS.copy()
    tree = utils.new_document(name, settings)
    inliner = states.Inliner()
    for first, last in _parts(lines):
        part = StringList(lines[first:last], items=[(name, number) for number in range(first, last)])
        machine = states.RSTStateMachine(state_classes=states.state_classes, initial_state="Body")
        machine.run(part, tree, input_offset=first, match_titles=True, inliner=inliner)
        machine.unlink()
    return tree


def _parts(lines: list[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for i in range(1, len(lines)):
        if i - start < _PART or lines[i - 1] or not lines[i] or lines[i][0] in " |+=":
            continue
        if i - start >= _WEAK_PART or (i + 1 < len(lines) and lines[i][0] != "." and _RULE.fullmatch(lines[i + 1])):
            yield start, i
            start = i
        if i - start > _MAX_BLOCK:
            break
    if len(lines) - start > _MAX_BLOCK:
        raise UnreadableError(f"a block of more than {_MAX_BLOCK:,} lines")
    yield start, len(lines)


@contextmanager
def _sphinx() -> Iterator[None]:
    """Let docutils find our roles and directives, and make the sections flat, as Sphinx replaces its look-ups."""
    owners = {directives: ("directive",), roles: ("role",), states.RSTState: tuple(_STATE)}
    new = {"directive": directive_of, "role": role_of, **_STATE, "nested_sm_cache": []}
    saved = [(owner, name, getattr(owner, name)) for owner, names in owners.items() for name in names]
    try:
        for owner, name, _ in saved:
            setattr(owner, name, new[name])
        yield
    finally:
        for owner, name, old in saved:
            setattr(owner, name, old)


def _inline_text(state: Any, text: str, lineno: int) -> Any:
    settings = state.document.settings
    settings.marks -= sum(map(text.count, "`*|_")) * (len(text) + 500)
    if settings.marks < 0:
        return [nodes.Text(text)], []
    return state.inliner.parse(text, lineno, state.memo, state.parent)


def _section(state: Any, title: str, source: str, style: str, lineno: int, messages: Any) -> None:
    while isinstance(state.parent, nodes.section):
        state.parent = state.parent.parent
    state.new_subsection(title, lineno, messages)
    line = state.state_machine.get_source_and_line(lineno)[1] or 0
    state.parent.line = line - (len(style) > 1)


class _States(dict[str, Any]):
    """The states of a machine, each made when it is first needed: most machines need two of fifteen."""

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
        """Make no state yet."""
        self.states = _States(self, state_classes)

    def attach_observer(self, observer: Any) -> None:
        """Observe no lines: nodes have theirs without it."""

    def run(self, input_lines: Any, input_offset: int, memo: Any, node: Any, match_titles: bool = True) -> Any:
        """Run within bounds."""
        memo.document.settings.nested -= 1
        if memo.document.settings.nested < 0:
            raise UnreadableError(f"more than {_MAX_NESTED:,} lists, items, cells and directives")
        return super().run(input_lines, input_offset, memo, node, match_titles)


_STATE = {"section": _section, "inline_text": _inline_text, "nested_sm": _Machine, "nested_sm_cache": ()}


class _Walk:
    def __init__(self, tree: Any, length: int) -> None:
        self.tree, self.room = tree, length  # characters that substitutions may add
        self.all = [Span("", 1)]
        self.pending: list[Any] = []  # targets before what they point at
        self.held: list[Link] = []  # of a heading, for the first block after it
        self.prefix, self.tight = "", False
        self.line = self.at = 1  # of the block, of the text within it
        self.substitutes = False  # whether a substitution is shown
        self.anonymous = (node for node in tree.findall(nodes.target) if node.get("anonymous"))

    def sections(self, end: int) -> tuple[Section, ...]:
        self.flush()
        return sections_of(self.all, end)

    def flush(self) -> None:
        for node in self.pending:
            self.all[-1].anchors += node["ids"]
            self.all[-1].labels += [*node["names"], *node["dupnames"]]
            self.all[-1].symbols += node.get("symbols", ())
        self.pending = []

    def open(self, heading: str, line: int) -> Span:
        self.all.append(Span(" ".join(heading.split())[:MAX_NAME], line))
        self.flush()
        return self.all[-1]

    def children(self, node: Any) -> None:
        for child in node.children:
            self.visit(child)

    def visit(self, node: Any) -> None:
        self.line = max(self.line, node.line or 0)
        name = node.tagname
        if name == "target":
            self.pending += [node] if not node.get("refuri") else []
            return
        if name in ("comment", "substitution_definition", "transition", "pending"):
            return
        if name == "system_message":
            literal = [child for child in node.children if child.tagname == "literal_block"]
            if literal and literal[0].astext().startswith(".. "):
                self.code(literal[0])
            return
        if name == "section":
            self.heading(node)
            return
        if node.get("heading"):
            self.object(node)
            return
        self.flush()
        self.all[-1].anchors += [*node["ids"], *node.get("anchors", ())]
        self.all[-1].labels += node["names"]
        self.all[-1].symbols += node.get("symbols", ())
        getattr(self, name, self.children)(node)

    def heading(self, node: Any) -> None:
        text, links = self.inline(node[0], node.line)
        self.held += links
        part = self.open(text, node.line)
        part.anchors += node["ids"]
        for child in node.children[1:]:
            self.visit(child)

    def object(self, node: Any) -> None:
        around = self.all[-1]
        part = self.open(node["heading"], node.line)
        part.anchors += node.get("anchors", ())
        part.labels += node.get("labels", ())
        part.symbols += node.get("symbols", ())
        self.children(node)
        self.flush()
        self.all.append(Span(around.heading, node["end"] + 1, anchors=around.anchors[:1], goes_on=True))

    def add(self, text: str, links: Sequence[Link] = (), node: Any = None, **options: Any) -> None:
        if text:
            line = (node.line if node is not None else 0) or self.line
            mark, self.prefix = self.prefix, ""
            links, self.held = (*self.held, *links), []
            block = Block(mark + text, line, links, is_tight=self.tight and bool(self.all[-1].blocks), **options)
            self.all[-1].blocks.append(block)
            self.tight = False

    # blocks by the names of their nodes

    def paragraph(self, node: Any) -> None:
        text, links = self.inline(node)
        self.add(" ".join(text.split()), links, node)

    rubric = attribution = caption = title = paragraph

    def line_block(self, node: Any) -> None:
        text, links = self.inline(node)
        self.add("\n".join(line.strip() for line in text.split("\n")).strip(), links, node)

    def code(self, node: Any) -> None:
        self.add(node.astext().strip("\n").rstrip(), (), node, is_whole=True)

    literal_block = doctest_block = math_block = code

    def image(self, node: Any) -> None:
        text, links = self.inline(nodes.paragraph("", "", node))
        self.add(" ".join(text.split()), links, node)

    def raw(self, node: Any) -> None:
        pass

    def bullet_list(self, node: Any) -> None:
        start = int(node.get("start", 1))
        for i, item in enumerate(node.children):
            self.prefix = f"{start + i}. " if node.tagname == "enumerated_list" else "- "
            self.tight = i > 0
            self.children(item)
        self.prefix, self.tight = "", False

    enumerated_list = bullet_list

    def definition_list_item(self, node: Any) -> None:
        heads = [child for child in node.children if child.tagname in ("term", "classifier")]
        texts, links = zip(*(self.inline(head) for head in heads), strict=True)
        for head in heads:
            self.all[-1].anchors += head["ids"]
        body = node.children[-1]
        term = self.prefix + " ".join(" : ".join(texts).split())
        self.prefix = ""
        if not body.children or body[0].tagname != "paragraph":
            self.add(term, [link for found in links for link in found], node)
            self.children(body)
            return
        text, found = self.inline(body[0])
        shown = f"{term}\n{' '.join(text.split())}"
        self.add(shown, [*(link for part in links for link in part), *found], node)
        for child in body.children[1:]:
            self.visit(child)

    def field(self, node: Any) -> None:
        name, body = node.children
        if name.astext().split(" ")[0] in _METADATA and not self.all[-1].heading:
            return
        self.prefix, self.tight = f"{' '.join(self.inline(name)[0].split())}: ", True
        self.children(body)
        self.prefix, self.tight = "", False

    def option_list_item(self, node: Any) -> None:
        self.prefix, self.tight = f"{' '.join(child.astext() for child in node[0].children)}: ", True
        self.children(node[1])
        self.prefix, self.tight = "", False

    def footnote(self, node: Any) -> None:
        labels = [child.astext() for child in node.children if child.tagname == "label"]
        self.prefix = f"[{labels[0] if labels else '#'}] "
        for child in node.children:
            if child.tagname != "label":
                self.visit(child)
        self.prefix = ""

    citation = footnote

    def tgroup(self, node: Any) -> None:
        header = ""
        for group in node.children:
            if group.tagname == "thead":
                header = "\n".join(self.row(row)[0] for row in group.children)
        rows = [row for group in node.children if group.tagname == "tbody" for row in group.children]
        for i, row in enumerate(rows):
            text, links = self.row(row)
            self.tight = i > 0
            self.add(text, links, next(iter(row.findall(nodes.paragraph)), None), is_whole=True, header=header)
        if header and not rows:
            self.add(header, is_whole=True)

    def row(self, node: Any) -> tuple[str, list[Link]]:
        cells, links = [], list[Link]()
        for entry in node.children:
            parts = [self.inline(part) for part in entry.children]
            cells.append(" ".join(" ".join(text for text, _ in parts).split()))
            links += [link for _, found in parts for link in found]
        return " | ".join(cells).strip(), links

    # text within a block

    def inline(self, node: Any, line: int = 0) -> tuple[str, list[Link]]:
        parts: list[str] = []
        links: list[Link] = []
        self.at = line or node.line or self.line
        self.within(node, parts, links)
        return "".join(parts), links

    def within(self, node: Any, parts: list[str], links: list[Link]) -> None:
        for child in node.children:
            if isinstance(child, nodes.Text):
                parts.append(child.astext())
                self.at += child.count("\n")
                continue
            name, is_inline = child.tagname, isinstance(child, nodes.Inline)
            self.at = self.at if is_inline else child.line or self.at  # docutils gives inline nodes lines after them
            if target := self.target(child):
                kind, address = target
                if address and len(address) <= MAX_TARGET:
                    links.append(Link(address, self.at, kind))
            if name == "target":
                self.pending += [child] if not child.get("refuri") else []
            if name == "image":
                parts.append(child.get("alt") or "")
            elif name in ("footnote_reference", "citation_reference"):
                parts.append(f"[{child.astext() or '#'}]")
            elif name == "substitution_reference":
                self.substitute(child, parts, links)
            elif name not in ("system_message", "comment"):
                self.within(child, parts, links)
                parts.append("" if is_inline else "\n")

    def substitute(self, node: Any, parts: list[str], links: list[Link]) -> None:
        name, tree = node["refname"], self.tree
        found = tree.substitution_defs.get(name) or tree.substitution_defs.get(
            tree.substitution_names.get(name.lower())
        )
        length = len(found.astext()) + 1 if found is not None else 0
        if found is None or length > self.room or self.substitutes:
            parts.append(node.astext())
            return
        self.room -= length
        self.substitutes, line = True, self.at
        self.within(found, parts, links)
        self.substitutes, self.at = False, line

    def target(self, node: Any) -> tuple[str, str] | None:
        if node.tagname not in ("reference", "image", "substitution_reference"):
            return None
        if node.get("link"):
            kind, address = node["link"]
            return kind, address
        if node.get("anonymous"):
            found = next(self.anonymous, None)
            return self.follow(found) if found is not None else None
        if node.get("refuri"):
            return PATH, node["refuri"]
        return self.follow(node) if node.get("refname") else None

    def follow(self, node: Any) -> tuple[str, str] | None:
        for _ in range(10):
            if node.get("refuri"):
                return PATH, node["refuri"]
            if not (name := node.get("refname")):
                return (PATH, f"#{node['ids'][0]}") if node["ids"] else None
            node = self.tree.ids.get(self.tree.nameids.get(name) or "")
            if node is None:
                return None
        return None
