"""Parse code in Kotlin, C#, PHP and Ruby as text, with the imports and definitions that its first words show."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from graphrerank_documents.document import MAX_NAME, PATH, SYMBOL, Document, Link
from graphrerank_documents.formats.note_markup import with_links
from graphrerank_documents.formats.text import decode_text, read_plain_text
from graphrerank_documents.module_names import family_of

_MAX_NAMES = 200  # maximum number of definitions, imports and names of types of a file
_MAX_LINKS = 1000  # maximum number of links of a file
_COMMENT = re.compile(r"/\*(?:.*?\*/|.*)|\"(?:\\.|[^\"\\\n])*+\"?|(?:^|(?<=\s))//[^\n]*", re.DOTALL)
_TYPE = re.compile(r"(?<![\w.\\$])([A-Z]\w{1,200})\b")
_KOTLIN_PACKAGE = re.compile(r"^\s{0,9}package\s{1,9}([\w.]{1,500})", re.MULTILINE)
_KOTLIN_IMPORT = re.compile(r"^import[ \t]{1,9}([\w.]{1,500})(?![\w.*])", re.MULTILINE)
_KOTLIN_NAME = re.compile(
    r"^(?:@\w+(?:\([^()\n]{0,200}\))?\s{1,9}){0,9}(?:(?:public|internal|private|abstract|open|sealed|data|inline|value|enum|"
    r"annotation|suspend|const|lateinit|expect|actual|operator|infix|tailrec)\s{1,9}){0,9}(?:class|interface|object|"
    r"typealias|fun\s{0,9}(?:<[^<>\n]{0,200}>)?(?:\s{1,9}[\w.<>?]{1,100}\.(?=\w))?|val|var)\s{1,9}(\w{1,200})",
    re.MULTILINE,
)
_CSHARP_NAMESPACE = re.compile(r"^\s{0,20}namespace\s{1,9}([\w.]{1,500})", re.MULTILINE)
_CSHARP_USING = re.compile(
    r"^\s{0,20}(?:global\s{1,9})?using\s{1,9}(?:static\s{1,9})?(?:\w{1,100}\s{0,9}=\s{0,9})?([\w.]{1,500})\s{0,9};",
    re.MULTILINE,
)
_CSHARP_NAME = re.compile(
    r"^\s{0,20}(?:\[[^\[\]\n]{0,300}\]\s{0,9}){0,9}(?:(?:public|internal|private|protected|abstract|sealed|static|partial|"
    r"readonly|ref|file|unsafe)\s{1,9}){0,9}(?:class|interface|struct|enum|record(?:\s{1,9}(?:class|struct))?)"
    r"\s{1,9}([A-Z]\w{0,200})",
    re.MULTILINE,
)
_PHP_NAMESPACE = re.compile(r"^\s{0,9}(?:<\?php\s{1,9})?namespace\s{1,9}([\w\\]{1,500})", re.MULTILINE)
_PHP_USE = re.compile(
    r"^use\s{1,9}(?:function\s{1,9}|const\s{1,9})?([\w\\]{1,500})(?:\{([^{}]{1,2000})\})?", re.MULTILINE
)
_PHP_NAME = re.compile(
    r"^\s{0,9}(?:(?:abstract|final|readonly)\s{1,9}){0,3}(?:class|interface|trait|enum|function)\s{1,9}(\w{1,200})",
    re.MULTILINE,
)
_PHP_FILE = re.compile(
    r"\b(?:require|include)(?:_once)?\s{0,9}\(?\s{0,9}(?:__DIR__\s{0,9}\.\s{0,9})?['\"]([^'\"\n$]{1,500}\.php)['\"]"
)
_RUBY_FILE = re.compile(r"^\s{0,20}(require_relative|require)\s{0,9}\(?\s{0,9}['\"]([\w./-]{1,500})['\"]", re.MULTILINE)
_RUBY_ROOTS = re.compile(r"\A(?:.*/)?(?:lib|app/[^/]+)/")


class _Names(NamedTuple):
    """Names in a file of code.

    Attributes:
        symbols: Qualified names that the file defines.
        links: Imports and uses, with their lines.
    """

    symbols: list[str]
    links: list[Link]


def read_plain_code(content: bytes, name: str) -> list[Document]:
    """Parse a file of Kotlin, C#, PHP or Ruby as text. Imports and uses of the folder's types become links.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document with one section, which defines the types and functions at the top of the file.
    """
    (document,) = read_plain_text(content, name)
    text = decode_text(content)
    names = _LANGUAGES[family_of(name)](_COMMENT.sub(_blank, text) if family_of(name) != "ruby" else text, name)
    if not document.sections:
        return [document]
    symbols = tuple(dict.fromkeys(symbol[:MAX_NAME] for symbol in names.symbols))[:_MAX_NAMES]
    (section,) = document.sections
    document = replace(document, sections=(replace(section, symbols=symbols),))
    links = [link for link in names.links if link.target not in symbols]
    return [with_links(document, list(dict.fromkeys(links))[:_MAX_LINKS])]


def _blank(found: re.Match[str]) -> str:
    """Return the line breaks of a comment. Texts are unchanged."""
    return found[0] if found[0].startswith('"') else "\n" * found[0].count("\n")


def _lines(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the first matches of a pattern with their lines, 1-based."""
    line, counted = 1, 0
    for found in islice(pattern.finditer(text), _MAX_NAMES):
        line += text.count("\n", counted, found.start(found.lastindex or 0))
        counted = found.start(found.lastindex or 0)
        yield found, line


def _types(text: str) -> dict[str, int]:
    """Return the names of types in a file with their first lines."""
    lines: dict[str, int] = {}
    line, counted = 1, 0
    for found in _TYPE.finditer(text):
        if found[1] not in lines:
            line += text.count("\n", counted, found.start())
            counted = found.start()
            lines[found[1]] = line
            if len(lines) >= _MAX_NAMES:
                break
    return lines


def _uses(space: str, types: Mapping[str, int], edge: str = "call") -> list[Link]:
    """Return the types of a namespace that a file may use. Only those that exist become edges."""
    return [Link(f"{space}.{name}", line, SYMBOL, edge) for name, line in types.items()] if space else []


def _kotlin(text: str, name: str) -> _Names:
    found = _KOTLIN_PACKAGE.search(text)
    package = found[1] if found else ""
    defined = [found[1] for found, _ in _lines(_KOTLIN_NAME, text)]
    links = [Link(found[1], line, SYMBOL, "import") for found, line in _lines(_KOTLIN_IMPORT, text)]
    return _Names([f"{package}.{each}".lstrip(".") for each in defined], [*links, *_uses(package, _types(text))])


def _csharp(text: str, name: str) -> _Names:
    """Return the names of a file of C#. A namespace is imported as a whole, so that all types may be from it."""
    spaces = [found[1] for found, _ in _lines(_CSHARP_NAMESPACE, text)]
    defined = [found[1] for found, _ in _lines(_CSHARP_NAME, text)]
    symbols = [f"{space}.{each}" for space in spaces[:1] or [""] for each in defined]
    types = _types(text)
    links = _uses(spaces[0] if spaces else "", types)
    usings = sorted(_lines(_CSHARP_USING, text), key=lambda pair: pair[0][1].startswith(("System", "Microsoft")))
    for found, line in usings:  # those of the platform last, because the number of links is limited
        links += [Link(found[1], line, SYMBOL, "import"), *_uses(found[1], types, "import")]
    return _Names([symbol.lstrip(".") for symbol in symbols], links)


def _php(text: str, name: str) -> _Names:
    found = _PHP_NAMESPACE.search(text)
    space = found[1].strip("\\").replace("\\", ".") if found else ""
    defined = [found[1] for found, _ in _lines(_PHP_NAME, text)]
    links = [Link(found[1].lstrip("/"), line, PATH, "import") for found, line in _lines(_PHP_FILE, text)]
    for found, line in _lines(_PHP_USE, text):
        inner = found[2].split(",") if found[2] else [""]
        targets = (f"{found[1]}{each.strip().partition(' ')[0]}".strip("\\").replace("\\", ".") for each in inner)
        links += [Link(target, line, SYMBOL, "import") for target in targets]
    return _Names([f"{space}.{each}" for each in defined] if space else [], [*links, *_uses(space, _types(text))])


def _ruby(text: str, name: str) -> _Names:
    """Return the names of a file of Ruby: its path as `require` names it."""
    path = str(PurePosixPath(name).with_suffix(""))
    links = []
    for found, line in _lines(_RUBY_FILE, text):
        if found[1] == "require_relative":
            target = found[2] if found[2].endswith(".rb") else f"{found[2]}.rb"
            links.append(Link(target, line, PATH, "import"))
        elif not found[2].startswith("."):
            links.append(Link(found[2].removesuffix(".rb"), line, SYMBOL, "import"))
    return _Names([_RUBY_ROOTS.sub("", path)], links)


_LANGUAGES: dict[str, Callable[[str, str], _Names]] = {"kotlin": _kotlin, "csharp": _csharp, "php": _php, "ruby": _ruby}
