"""Directives and roles of Sphinx for the docutils parser, without Sphinx.

The nodes have the attributes that :mod:`~graphrerank_documents.formats.restructured_text` needs. Links are references
with the attribute ``link`` (kind and target). Objects and terms are containers with a ``heading``, the last line
(``end``), ``anchors``, ``labels`` and ``symbols``.
"""

import re
from collections.abc import Callable
from typing import Any

from graphrerank.installation.extras import importing
from graphrerank_documents.document import DOCUMENT, LABEL, PATH, SYMBOL

with importing("documents", "an RST file"):
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives
    from docutils.parsers.rst.directives.tables import CSVTable

_NAMES = {  # directives without domain, by the method that handles them; `auto` before an `object` is optional
    "hidden": "raw contents local sectnum section-numbering meta title header footer default-role role highlight "
    "default-domain tabularcolumns index program codeauthor moduleauthor sectionauthor rst-class mermaid graphviz "
    "digraph graph uml inheritance-diagram bibliography todolist testsetup testcleanup date",
    "code": "code code-block sourcecode math parsed-literal doctest testcode testoutput productionlist prompt console "
    "ipython jupyter-execute plot literal code-tab",
    "prose": "note warning tip hint important caution danger attention error seealso todo epigraph highlights "
    "pull-quote compound centered hlist line-block versionadded versionchanged deprecated versionremoved",
    "image": "image video youtube",
    "include": "include literalinclude mdinclude",
    "entries": "toctree autosummary",
    "module": "module currentmodule",
    "glossary": "glossary",
    "object": "module function class method staticmethod classmethod attribute property data exception decorator "
    "instance decoratormethod variable describe object option cmdoption envvar confval type macro struct union enum "
    "enumerator member var concept alias directive role typealias typevar",
    "bare": "container only ifconfig class cssclass grid tab-set tabs card-carousel figure",  # argument is not text
    "shown": "rubric topic sidebar admonition card dropdown details tab-item tab button-link",
    "docutils": "table csv-table list-table replace unicode",  # handled by docutils
}
_KINDS = {name: kind for kind, names in reversed(_NAMES.items()) for name in names.split()}
_VERSIONS = {
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "versionremoved": "Removed in version",
}
_ROLES = {  # roles without domain, for links and for text; unknown roles link to objects of a directive with their name
    "symbol": "class func function meth method mod module attr exc obj data const type deco macro member",
    "text": "kbd guilabel menuselection file samp command program abbr math code literal emphasis strong sub sup "
    "subscript superscript title title-reference dfn mailheader makevar manpage mimetype newsgroup regexp token eq raw "
    "issue pr pull user ghuser cve cwe gh bpo octicon pypi",
}
_ROLE_KINDS = {name: kind for kind, names in _ROLES.items() for name in names.split()}
_SPACE = re.compile(r"\s+")
_TITLED = re.compile(r"^(.+?)\s*(?<!\x00)<([^<]*?)>$", re.DOTALL)
_DOTTED = re.compile(r"~?\.?[^\W\d]\w*(\.\w+)+(\(\))?")
_SUFFIX = re.compile(r"\.(rst|rest|md|txt|ipynb)$")
_NAME = re.compile(r"[\w.:~-]*\w")


_DOCUTILS = directives.directive


def _kind_of(name: str) -> str:
    short = name.lower().split(":")[-1]
    return _KINDS.get(short, "object" if _KINDS.get(short.removeprefix("auto")) in ("object", "module") else "other")


def directive_of(name: str, language: Any, document: Any) -> Any:
    """Return the class of a directive. Replaces the function of docutils with the same signature.

    Args:
        name: Name of the directive.
        language: Language module of docutils.
        document: Document node.

    Returns:
        Class of the directive, and an empty list of messages.
    """
    kind = _kind_of(name)
    if kind == "docutils":
        if name.lower().endswith("csv-table"):
            return _CsvTable, []
        return _DOCUTILS(name.lower().split(":")[-1], language, document)
    return _Prose if kind == "prose" else _Markup, []


class _AnyOption(dict[str, Callable[[Any], Any]]):
    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Callable[[Any], Any]:
        return lambda text: text


class _CsvTable(CSVTable):
    """Table with rows in the page or, as a link, in another file, which is not opened."""

    def run(self) -> list[Any]:
        path = (self.options.get("file") or "").strip()
        if not path:
            return list(super().run())
        title = " ".join(self.arguments) or path
        paragraph = nodes.paragraph("", "", _reference(title, PATH, path))
        paragraph.line = self.lineno
        return [paragraph]


class _Markup(Directive):
    """Directive of any name. Each kind in `_NAMES` has a method; `other` handles the remaining names."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOption()

    def run(self) -> list[Any]:
        self.short = str(self.name).lower().split(":")[-1]
        self.argument = self.arguments[0].strip() if self.arguments else ""
        found = []
        if name := self.options.get("name"):
            found.append(nodes.target(names=[nodes.fully_normalize_name(name)]))
            self.state.document.note_explicit_target(found[0])
        if caption := self.options.get("caption"):
            found.append(self.paragraph(*self.state.inline_text(caption, self.lineno)[0]))
        found += getattr(self, _kind_of(self.name), self.other)()
        for node in found:
            node.line = node.line or self.lineno
        return found

    def hidden(self) -> list[Any]:
        return []

    def parsed(self, **attributes: Any) -> Any:
        node = nodes.container(**attributes)
        node.line = self.lineno
        self.state.nested_parse(self.content, self.content_offset, node, match_titles=True)
        return node

    def paragraph(self, *parts: Any) -> Any:
        node = nodes.paragraph("", "", *parts)
        node.line = self.lineno
        return node

    def prose(self) -> list[Any]:
        node = self.parsed()
        if (version := _VERSIONS.get(self.short)) and node.children and isinstance(node[0], nodes.paragraph):
            node[0].insert(0, nodes.Text(f"{version} "))
        return [node]

    def code(self) -> list[Any]:
        lines = [self.argument, *self.content] if self.short == "math" else self.content
        node = nodes.literal_block("", "\n".join(lines).strip("\n"))
        node.line = self.content_offset + 1
        return [node]

    def other(self) -> list[Any]:
        kind = _KINDS.get(self.short)
        symbols = [f"{self.short}:{self.argument}"] if re.fullmatch(r"\S{1,100}", self.argument) else []
        if symbols and not self.content and kind is None:  # invisible target of Sphinx's `add_crossref_type`
            return [nodes.target(symbols=symbols)]
        node = self.parsed(symbols=symbols)
        if kind != "bare" and re.search(r"[^\W\d_]", self.argument):
            node.insert(0, self.paragraph(*self.state.inline_text(self.argument, self.lineno)[0]))
        return [*(self.image() if self.short == "figure" else []), node]

    def image(self) -> list[Any]:
        target = (self.options.get("target") or "").strip()
        link = (PATH, target) if target and target[-1] != "_" else None
        return [nodes.image(alt=self.options.get("alt") or "", link=link)]

    def include(self) -> list[Any]:
        path = self.argument
        if path and path[0] != "<" and self.short == "include" and not {"literal", "code", "parser"} & {*self.options}:
            self.state.document.settings.includes.append(path)
        return [self.paragraph(_reference(path, PATH, path))] if path and path[0] != "<" else []

    def entries(self) -> list[Any]:
        block = nodes.line_block()
        for number, entry in enumerate(map(str.strip, self.content), self.content_offset + 1):
            if not entry or entry[0] == ":" or entry == "self":
                continue
            found = _TITLED.match(entry)
            title, target = found.groups() if found else ("", entry)
            if self.short == "autosummary":
                title, kind, target = entry.lstrip("~"), SYMBOL, entry.lstrip("~!")
            else:
                kind = PATH if re.match(r"\w+://|#", target) else DOCUMENT
                target = target if kind == PATH else _SUFFIX.sub("", target)
            block += nodes.line("", "", _reference(title or target, kind, target))
            block[-1].line = number
        return [block] if block.children else []

    def module(self) -> list[Any]:
        module = self.argument.split()[0] if self.argument not in ("", "None") else ""
        self.state.document.settings.module = module
        shown = module and self.short == "module"
        return [nodes.container(symbols=[module], anchors=[f"module-{module}"])] if shown else []

    def object(self) -> list[Any]:
        settings, kind = self.state.document.settings, self.short.removeprefix("auto")
        signatures = [line.strip().rstrip("\\") for line in self.argument.split("\n") if line.strip()]
        if not signatures or (self.name == "class" and not re.search(r"[(.A-Z]", signatures[0])):
            return [self.parsed()]  # `class` of docutils, which sets a style
        prefix = settings.module
        symbols = [symbol for signature in signatures for symbol in _symbols(kind, signature, prefix)]
        try:
            settings.module = symbols[0] if symbols and ":" not in symbols[0] else prefix
            node = self.parsed(symbols=symbols, anchors=_anchors(symbols))
        finally:
            settings.module = prefix
        if node.children:
            node["heading"], node["end"] = "\n".join(signatures), self.content_offset + len(self.content)
        else:
            node += self.paragraph(nodes.Text("\n".join(signatures)))
        return [node]

    def glossary(self) -> list[Any]:
        found, terms, i = [], list[str](), 0
        while i < len(self.content):
            start = i
            while i < len(self.content) and self.content[i][:1] in ("", " "):
                i += 1
            if terms and i > start:
                node = nodes.container(heading=", ".join(terms), labels=[f"term:{_normal(term)}" for term in terms])
                node["anchors"], node["end"] = [f"term-{nodes.make_id(terms[0])}"], self.content_offset + i
                node.line = self.content_offset + start
                block = self.content[start:i]
                block.disconnect()
                block.trim_left(min((len(line) - len(line.lstrip()) for line in block if line), default=0))
                self.state.nested_parse(block, self.content_offset + start, node)
                found.append(node)
                terms = []
            if i < len(self.content):
                terms.append(self.content[i].split(" : ")[0].strip())
                i += 1
        return found


class _Prose(_Markup):
    optional_arguments = 0


def _symbols(kind: str, signature: str, prefix: str) -> list[str]:
    if kind in ("option", "cmdoption"):
        return [f"option:{part.split()[0]}" for part in re.split(r", |[=\[ ]", signature) if part.startswith("-")]
    if kind in ("envvar", "confval", "role", "directive"):
        return [f"{kind}:{signature.split('(')[0].strip()}"]
    names = _NAME.findall(re.split(r"[(\[=]| -> |: ", signature.replace("::", "."))[0])
    if not names:
        return []
    name = names[-1].strip(".:~")
    return [name if not prefix or name == prefix or name.startswith(f"{prefix}.") else f"{prefix}.{name}"]


def _anchors(symbols: list[str]) -> list[str]:
    """Return the anchors of objects: names in code, and names with a prefix for other objects (`confval-addopts`)."""
    parts = [symbol.rpartition(":") for symbol in symbols]
    names = [f"{'cmdoption' if kind == 'option' else kind}-{name.lstrip('-')}" for kind, _, name in parts if kind]
    return [*(name for *_, name in parts), *names]


def _normal(text: str) -> str:
    return _SPACE.sub(" ", text).strip().lower()


def _reference(text: str, kind: str, target: str) -> Any:
    return nodes.reference("", text, link=(kind, target))


def role_of(name: str, language: Any, lineno: int, reporter: Any) -> Any:
    """Return the function of a role. Replaces the function of docutils with the same signature.

    Args:
        name: Name of the role.
        language: Language module of docutils.
        lineno: Line of the role.
        reporter: Reporter of docutils.

    Returns:
        Function that creates the node of the role, and an empty list of messages.
    """
    return (lambda _, raw, text, *rest, **options: ([_role_node(name.lower(), text)], [])), []


def _role_node(name: str, escaped: str) -> Any:
    text, found, short = nodes.unescape(escaped), _TITLED.match(escaped), name.split(":")[-1]
    title, target = (nodes.unescape(part) for part in found.groups()) if found else ("", text)
    kind = _ROLE_KINDS.get(short, "symbol" if short in ("", "any", "autolink") and _DOTTED.fullmatch(target) else short)
    if kind in ("pep", "rfc"):
        return nodes.inline("", title or f"{short.upper()} {target}")
    if text.startswith("!") or name.startswith("external") or kind in ("text", "", "autolink"):
        return nodes.inline("", text.removeprefix("!"))
    match kind:
        case "symbol":
            symbol = target.lstrip("~.").removesuffix("()").replace("::", ".")
            shown = symbol.split(".")[-1] if target[:1] == "~" else target.lstrip(".")
            return _reference(title or shown, SYMBOL, symbol)
        case "doc" if ":" in target:  # document of another project
            return nodes.inline("", title or target)
        case "doc":
            return _reference(title or target.split("/")[-1], DOCUMENT, _SUFFIX.sub("", target))
        case "keyword":  # of Python, or a label of its own documentation
            return _reference(title or target, LABEL, f"keyword:{_normal(target)}")
        case "ref" | "numref" | "any":
            return _reference(title or _SPACE.sub(" ", re.sub("[-_]", " ", target)), LABEL, _normal(target))
        case "term":
            return _reference(title or target, LABEL, f"term:{_normal(target)}")
        case "download":
            return _reference(title or target.split("/")[-1], PATH, target)
        case "option":
            target = (target.split() or [""])[-1].split("=")[0]
    return _reference(title or text, SYMBOL, f"{short}:{target}")
