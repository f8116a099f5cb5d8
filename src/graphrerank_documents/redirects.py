"""Redirects of pages that moved, as the configuration of a site generator or a web host names them.

Configurations are untrusted. They are parsed as text and never executed.
"""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from posixpath import join, normpath
from typing import Any, NamedTuple

from graphrerank.installation.extras import MissingExtraError
from graphrerank_documents.document import MAX_TARGET, Document, Link, UnreadableError
from graphrerank_documents.untrusted_yaml import yaml_nodes

#: Maximum number of redirects of a site.
MAX_REDIRECTS = 20_000
#: Type of the links of redirects in the report.
REDIRECT = "redirect"
#: Start of the reason why redirects of a damaged configuration are not followed.
DAMAGED_CONFIG = "damaged site configuration, some redirects are not followed"
_MAX_PATTERNS = 100  # maximum number of redirects of whole folders, because each is compared with all documents
_FOLDERS = ("", "docs", "content", "source", "src", "src/pages", "pages", "static", "public")  # URLs omit these folders
_TEXT = r"""["'`]([^"'`\n]{1,1000})["'`]"""
_OBJECT = re.compile(r"\{([^{}]{1,5000})\}")
_FROM = re.compile(rf"""["']?\b(?:from|source)["']?\s{{0,9}}:\s{{0,9}}(?:\[([^\[\]]{{1,5000}})\]|{_TEXT})""")
_TO = re.compile(rf"""["']?\b(?:to|destination)["']?\s{{0,9}}:\s{{0,9}}{_TEXT}""")
_TEXTS = re.compile(_TEXT)
_PAIR = re.compile(rf"""{_TEXT}\s{{0,9}}:\s{{0,9}}{_TEXT}""")
_SPHINX = re.compile(r"^(redirects|rediraffe_redirects)\b[^=\n]{0,50}=\s{0,9}\{([^{}]{0,500000})\}", re.MULTILINE)
_START = re.compile(r"^[ \t]*(redirects|rediraffe_redirects)[ \t]*[:=]\s{0,9}[\[{]", re.MULTILINE)
_TOKEN = re.compile(  # strings, comments and brackets of JavaScript and Python
    r""""(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|`(?:\\.|[^`\\])*+`?|//[^\n]*|/\*(?:.*?\*/|.*)|\#[^\n]*|[\[\](){}]""",
    re.DOTALL,
)
_WILDCARD = re.compile(r"(?:\*|:[\w]{1,50}\*)\Z")
_SPLAT = re.compile(r"(?::[\w]{1,50}\*?|\*|\$1)\Z")


class Redirect(NamedTuple):
    """Redirect of a page.

    Attributes:
        source: Path of the page that moved, relative to the folder of documents. It may end with ``*``, which matches
            every page below a folder.
        target: URL or path of the page to which it moved. A path is relative to ``source`` or, with a leading ``/``,
            to the site.
    """

    source: str
    target: str


def redirects_of(
    name: str, content: bytes, folder: str, damage: MutableMapping[str, list[str]] | None = None
) -> list[Redirect]:
    """Return the redirects in a configuration file.

    Args:
        name: Name of the file, one of :data:`READERS`.
        content: Content of the file.
        folder: Path of the folder that contains the file, relative to the folder of documents.
        damage: Paths of damaged configurations, by what is wrong with them. New ones are added, and the redirects
            before the damage are returned. If None, the exception is raised.

    Returns:
        Redirects, at most :data:`MAX_REDIRECTS`. Empty if the file has none.

    Raises:
        UnreadableError: If the file is damaged and ``damage`` is None.

    Example:
        >>> redirects_of("_redirects", b"/old /new 301", "public")
        [Redirect(source='public/old', target='/new')]
    """
    redirects = []
    try:
        for source, target in islice(READERS[name](content.decode("utf-8-sig", "replace")), MAX_REDIRECTS):
            path = re.sub(r"^[a-z]+://[^/]*", "", source.strip()).partition("?")[0].partition("#")[0]
            path = normpath(join(folder, path.lstrip("/")))
            if path not in (".", "..") and not path.startswith("../") and 0 < len(target) <= MAX_TARGET >= len(path):
                redirects.append(Redirect(path, target.strip()))
    except Exception as error:  # whatever an untrusted file causes: it must not end the whole run
        is_described = isinstance(error, UnreadableError | MissingExtraError)
        reason = str(error) if is_described else f"cannot be parsed ({type(error).__name__})"
        if damage is None:
            raise UnreadableError(reason) from error
        damage.setdefault(f"{DAMAGED_CONFIG}: {reason}", []).append(join(folder, name))
    return redirects


def redirect_documents(redirects: Sequence[Redirect], documents: Iterable[Document]) -> list[Document]:
    """Return a document without text for each page that moved, so that links to its path are resolved.

    Args:
        redirects: Redirects of a site.
        documents: All documents. Redirects of whole folders are expanded to the pages that exist in the new folder.

    Returns:
        Documents that redirect, without those whose names other documents have.
    """
    names = {document.name for document in documents}
    plain = [each for each in redirects if not each.source.endswith("*")]
    patterns = [each for each in redirects if each.source.endswith("*")][:_MAX_PATTERNS]
    expanded = (each for pattern in patterns for each in _expanded(pattern, names))
    pages: dict[str, Document] = {}
    for redirect in islice((*plain, *expanded), MAX_REDIRECTS):
        if redirect.source not in names:
            link = Link(redirect.target, edge=REDIRECT)
            pages.setdefault(redirect.source, Document(redirect.source, "", (), redirect=link))
    return list(pages.values())


def _expanded(pattern: Redirect, names: Collection[str]) -> Iterator[Redirect]:
    """Yield a redirect for each page of the folder to which a whole folder moved."""
    folder = _SPLAT.sub("", pattern.target)
    if folder == pattern.target or not folder.startswith("/") or len(folder) < 2:
        return
    starts = tuple(join(top, folder.lstrip("/")) for top in _FOLDERS)
    source = pattern.source.rstrip("*")
    for name in names:
        if (start := next((start for start in starts if name.startswith(start)), None)) is not None:
            yield Redirect(source + name[len(start) :], f"/{name}")


def _mkdocs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of ``redirect_maps``. Both paths are relative to the folder of the pages."""
    root = yaml_nodes(text, "site configurations")
    pages = _scalar(_entry(root, "docs_dir")) or "docs"
    plugins = _entry(root, "plugins")  # a list of names and mappings, or one mapping
    items = plugins.value if getattr(plugins, "tag", "").endswith(":seq") else [plugins]
    settings = [value for item in items for _, value in _items(item)]
    for source, target in _scalars(pair for each in settings for pair in _items(_entry(each, "redirect_maps"))):
        yield f"{pages}/{source}", target if "://" in target else f"/{target}"


def _gitbook(text: str) -> Iterator[tuple[str, str]]:
    for source, target in _scalars(_items(_entry(yaml_nodes(text, "site configurations"), "redirects"))):
        yield source, target if "://" in target else f"/{target.lstrip('./')}"


def _items(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a mapping of YAML with the nodes of their values."""
    for pair in node.value if getattr(node, "tag", "").endswith(":map") else ():
        if isinstance(pair[0].value, str):
            yield pair[0].value, pair[1]


def _entry(node: Any, key: str) -> Any:
    """Return the node of a value in a mapping of YAML, or None."""
    return next((value for name, value in _items(node) if name == key), None)


def _scalar(node: Any) -> str:
    """Return the text of a node of YAML, or an empty string if it is a list, a mapping or None."""
    value = getattr(node, "value", None)
    return value if isinstance(value, str) else ""


def _scalars(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the items of a mapping of YAML whose values are texts, and raise an error if there are others."""
    invalid = []
    for key, node in items:
        if value := _scalar(node):
            yield key, value
        else:
            invalid.append(f"{key} (line {node.start_mark.line + 1})")
    _check_targets(invalid)


def _check_targets(invalid: Sequence[str]) -> None:
    if invalid:
        raise UnreadableError(f"{len(invalid):,} redirects without a target: {invalid[0][:100]}")


def _script(text: str) -> Iterator[tuple[str, str]]:
    """Yield the objects with ``from`` and ``to``, or ``source`` and ``destination``, of a program or of JSON."""
    for found in _OBJECT.finditer(text):
        sources, target = _FROM.search(found[1]), _TO.search(found[1])
        if sources and target:
            for source in _TEXTS.findall(sources[1]) if sources[1] else [sources[2]]:
                yield _WILDCARD.sub("*", source), target[1]
    _check_closed(text)


def _sphinx(text: str) -> Iterator[tuple[str, str]]:
    """Yield the redirects of sphinx-reredirects, relative to the old page, and of sphinxext-rediraffe."""
    for kind, entries in _SPHINX.findall(text):
        for source, target in _PAIR.findall(entries):
            yield source, target if kind == "redirects" or "://" in target else f"/{target}"
    _check_closed(text)


def _check_closed(text: str) -> None:
    """Raise an error if the list or mapping of redirects in a program is not closed.

    The program is not parsed, because only its redirects matter.
    """
    for found in islice(_START.finditer(text), _MAX_PATTERNS):
        depth = 0
        for token in _TOKEN.finditer(text, found.end() - 1):
            depth += (token[0] in ("[", "{", "(")) - (token[0] in ("]", "}", ")"))
            if depth <= 0 and token[0] in ("]", "}", ")"):
                break
        else:
            line = text.count("\n", 0, found.start()) + 1
            raise UnreadableError(f"the brackets of `{found[1]}` are not closed (line {line})")


def _host(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file of redirects, such as ``/old /new 301``."""
    invalid = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split() if not line.lstrip().startswith("#") else []
        if len(words) > 1:
            yield words[0], words[1]
        elif words:
            invalid.append(f"{words[0]} (line {number})")
    _check_targets(invalid)


def _toml(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of ``netlify.toml`` and of mdBook's ``book.toml``."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise UnreadableError(f"not valid TOML: {error}") from error
    pages: object = data
    for key in ("output", "html", "redirect"):
        pages = pages.get(key, {}) if isinstance(pages, dict) else {}
    if not isinstance(pages, dict):
        raise UnreadableError(f"`output.html.redirect` must be a table, got {type(pages).__name__}")
    entries = [(f"src/{source.lstrip('/')}", target) for source, target in pages.items()]
    yield from _targets([*_rows(data, "from", "to"), *entries])


def _json(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of ``vercel.json``, and of ``docs.json`` and ``mint.json`` of Mintlify."""
    try:
        data = json.loads(text)
    except ValueError as error:  # also for an integer of thousands of digits
        raise UnreadableError(f"not valid JSON: {error}") from error
    except RecursionError as error:
        raise UnreadableError("JSON with too many levels of nesting") from error
    if not isinstance(data, dict):
        raise UnreadableError("not a JSON object")
    for source, target in _targets(_rows(data, "source", "destination")):
        yield _WILDCARD.sub("*", source), target


def _rows(data: Mapping[str, Any], source: str, target: str) -> list[tuple[Any, Any]]:
    """Return the sources and targets in the list ``redirects`` of a configuration, as they are written."""
    rows = data.get("redirects") or []
    if not isinstance(rows, list):
        raise UnreadableError(f"`redirects` must be a list, got {type(rows).__name__}")
    return [(row.get(source), row.get(target)) if isinstance(row, dict) else (row, None) for row in rows]


def _targets(entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the entries whose sources and targets are texts, and raise an error if there are others."""
    invalid = []
    for source, target in entries:
        if isinstance(source, str) and isinstance(target, str):
            yield source, target
        else:
            invalid.append(str(source)[:100])
    _check_targets(invalid)


#: Functions that return the redirects in a configuration file, by its name.
READERS: dict[str, Callable[[str], Iterator[tuple[str, str]]]] = {
    "mkdocs.yml": _mkdocs,
    ".gitbook.yaml": _gitbook,
    **dict.fromkeys(("docusaurus.config.js", "docusaurus.config.ts", "docusaurus.config.mjs"), _script),
    **dict.fromkeys(("next.config.js", "next.config.mjs", "next.config.ts"), _script),
    "conf.py": _sphinx,
    "_redirects": _host,
    "netlify.toml": _toml,
    "book.toml": _toml,
    "vercel.json": _json,
    "docs.json": _json,
    "mint.json": _json,
}
