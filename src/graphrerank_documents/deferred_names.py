"""Names in the text of a document that other documents of the folder define.

Examples are macros of LaTeX, which a file that inputs the document may define, and the ids of Slack's users, whose
names are in ``users.json``. A reader writes a mark into the text. After all documents have been parsed,
:func:`resolve_names` replaces the marks. No file is opened.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graphrerank_documents.document import MAX_NAME, Document, Section
from graphrerank_documents.includes import included_paths

#: Kinds of names: macros of LaTeX, by the file that defines them, and ids of users, in the whole folder.
MACRO, USER = "macro:", "user:"
_START, _NEXT, _END = "\U0010f8f0\U0010f8f1\U0010f8f2"  # private use, and none that icon fonts use
_MARK = re.compile(f"{_START}([^{_START}-{_END}]{{1,200}})((?:{_NEXT}[^{_START}-{_END}]*)*){_END}")
_SIGNS = re.compile(f"[{_START}-{_END}]")
_SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")
_PARAMETER = re.compile(r"#([1-9])")
_MIN_ROOM = 100_000  # number of characters that definitions may add to a document, besides its own length
_MAX_ROUNDS = 8  # maximum depth of definitions in definitions
_MAX_FILES = 200  # maximum number of files whose definitions a file sees

#: Function that returns the definition of a name, or None.
Lookup = Callable[[str], str | None]


def definition_of(text: str, num_parameters: int = 0) -> str:
    """Return the definition of a name for :attr:`~graphrerank_documents.document.Document.names`.

    Args:
        text: Text of the name, in which ``#1`` to ``#9`` are parameters.
        num_parameters: Number of parameters, at most 9. Further arguments follow the text.
    """
    return f"{num_parameters}{text}"


def mark(name: str, arguments: Sequence[str] = ()) -> str:
    """Return the mark of a name.

    Args:
        name: Kind and name, such as ``user:U1``, at most 200 characters.
        arguments: Arguments of a macro. Without a definition, they are the text, or the name if all are blank.

    Returns:
        Mark, to be replaced by :class:`NameResolver`.
    """
    return "".join((_START, name, *(part for argument in arguments for part in (_NEXT, argument)), _END))


class NameResolver:
    """Replaces the marks in the texts of a document.

    Definitions are those of :func:`definition_of`. The texts grow by at most ``room`` characters in total, so that
    definitions in definitions cannot make them arbitrarily long.

    Args:
        lookup: Function that returns the definition of a name, or None.
        room: Number of characters that definitions may add.

    Example:
        >>> resolver = NameResolver({"macro:unit": definition_of("#1 #2", 2)}.get)
        >>> resolver.text(f"a {mark('macro:unit', ['6', 'bar'])} b {mark('macro:pump')}")
        'a 6 bar b pump'
    """

    def __init__(self, lookup: Lookup, room: int = _MIN_ROOM) -> None:
        self._lookup, self._room = lookup, room

    def text(self, text: str) -> str:
        """Return a text without marks.

        The parameters ``#1`` to ``#9`` of a definition are replaced by the arguments. Definitions may contain marks.

        Args:
            text: Text with marks.
        """
        if _START not in text:
            return text
        for _ in range(_MAX_ROUNDS):
            text, count = _MARK.subn(self._shown, text)
            if not count:
                break
        return _SPACES.sub(" ", _SIGNS.sub("", _MARK.sub(_plain, text)))  # a definition may be empty

    def _shown(self, found: re.Match[str]) -> str:
        definition = self._lookup(found[1])
        if definition is None:
            return _plain(found)
        arguments = found[2].split(_NEXT)[1:]
        filled = _PARAMETER.sub(lambda each: "".join(arguments[int(each[1]) - 1 : int(each[1])]), definition[1:])
        self._room -= len(filled)
        return filled + "".join(arguments[int(definition[0]) :]) if self._room >= 0 else _plain(found)


def _plain(found: re.Match[str]) -> str:
    """Return the arguments of a name without a definition, or the name."""
    arguments = filter(None, map(str.strip, found[2].split(_NEXT)))
    return " ".join(arguments) or found[1].partition(":")[2]


def resolve_names(documents: Sequence[Document]) -> list[Document]:
    """Replace the marks in the titles, headings and texts of documents.

    A macro has the definition in the file itself, in the nearest file that inputs it, or in a file that these input.

    Args:
        documents: All documents of a folder.

    Returns:
        Documents in the same order without marks.
    """
    users = {name: text for document in documents for name, text in document.names.items() if name.startswith(USER)}
    macros = _Macros(documents)
    return [
        _without_marks(document, lambda name, own=document: users.get(name) or macros.find(own, name))  # type: ignore[misc]
        if _has_marks(document)
        else document
        for document in documents
    ]


class _Macros:
    """Definitions of macros that a file sees."""

    def __init__(self, documents: Sequence[Document]) -> None:
        files = {document.name: document for document in documents}
        self._documents = files
        self._inputs = {
            name: [*included_paths(document, files)] for name, document in files.items() if document.includes
        }
        self._users: dict[str, list[str]] = {}
        for name, inputs in self._inputs.items():
            for path in inputs:
                self._users.setdefault(path, []).append(name)
        self._known: dict[str, Mapping[str, str]] = {}

    def find(self, document: Document, name: str) -> str | None:
        """Return the definition of a macro in a document, or None."""
        if document.name not in self._known:
            self._known = {document.name: self._definitions(document)}  # documents are resolved one after the other
        return self._known[document.name].get(name)

    def _definitions(self, document: Document) -> dict[str, str]:
        """Return the definitions that a document sees. Those of nearer files take precedence."""
        above = _reachable([document.name], self._users)
        names = [*above, *_reachable(above, self._inputs)]
        definitions = dict(document.names)
        for name in names:
            if name in self._documents:
                definitions = {**self._documents[name].names, **definitions}
        return definitions


def _reachable(names: Sequence[str], edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the nodes that can be reached, nearest first, up to a limit."""
    seen, pending = dict.fromkeys(names), deque(names)
    while pending and len(seen) < _MAX_FILES:
        for each in edges.get(pending.popleft(), ()):
            if each not in seen:
                seen[each] = None
                pending.append(each)
    return [*seen]


def _has_marks(document: Document) -> bool:
    return _START in document.title or any(
        _START in section.heading or any(_START in block.text or _START in block.header for block in section.blocks)
        for section in document.sections
    )


def _without_marks(document: Document, lookup: Lookup) -> Document:
    size = sum(len(block.text) for section in document.sections for block in section.blocks)
    resolver = NameResolver(lookup, size + _MIN_ROOM)

    def shown(section: Section) -> Section:
        blocks = (
            replace(block, text=resolver.text(block.text), header=resolver.text(block.header))
            for block in section.blocks
        )
        blocks_with_text = tuple(block for block in blocks if block.text.strip() or block.links)
        return replace(section, heading=resolver.text(section.heading)[:MAX_NAME], blocks=blocks_with_text)

    title = resolver.text(document.title)[:MAX_NAME]
    return replace(document, title=title, sections=tuple(map(shown, document.sections)))
