"""Find documents in a folder by path, by URL and by page name."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from posixpath import dirname
from unicodedata import normalize

from graphrerank_documents.document import Document
from graphrerank_documents.paths import MAX_DEPTH, ancestors, path_below
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.site import Site

#: Results in place of a document number: a file or folder that is not a document; a path outside the folder; no match.
FILE, OUTSIDE, NOWHERE = -1, -2, -3
_FAMILIES = (
    "md markdown mdx mkd qmd rmd",
    "rst rest",
    "adoc asciidoc asc",
    "org",
    "ipynb",
    "txt text",
    "html htm xhtml",
)
_FAMILY = {f".{suffix}": [f".{each}" for each in family.split()] for family in _FAMILIES for suffix in family.split()}
_FIRST_PAGES = {"_index": 1, "index": 2, "readme": 3}  # index pages of a folder, in order of preference
_DATE = re.compile(r"(?:^|.*/)(\d{4})([-/])(\d\d)\2(\d\d)\2([^/]+)")  # date of a Jekyll post in its path or URL
_DECORATION = re.compile(  # dates, numbers and languages in path components, which URLs omit
    r"(?:^|(?<=/))(?:\d{4}-\d\d-\d\d-|\d+\s*[-_.]+\s*(?=[^-_.\s\d/])|_+)(?=[^/])|\.[a-z]{2}(?:-[A-Za-z]{2,4})?$"
)
_NOTE_ID = re.compile(r"\d{8}T\d{6}(?=\D)|\d{12,14}(?=\D)")  # id at the start of a file name (Denote, Zettelkasten)
_TOPS = ("", "docs", "content", "source", "src", "src/pages", "pages", "static", "public")  # URLs omit these folders


class _PagePaths(defaultdict[str, dict[str, int]]):
    """First document number for each path without suffix and each suffix."""

    def look_up(self, suffix: str, path: str) -> int | None:
        """Return the document number of a path, or None.

        A path with a source suffix matches documents of that format only. Otherwise a document with ``suffix`` is
        preferred.
        """
        bare, written = _split(path)
        found = self.get(bare) or (self.get(dirname(bare)) if _rank(path) else None) or {}
        wanted = _FAMILY[written] if written not in ("", *_FAMILY[".html"]) else (suffix, *found)
        return next((found[each] for each in wanted if each in found), None)


class Pages:
    """Index of documents and other files by path. A look-up takes constant time.

    Args:
        documents: All documents. A document number is an index in this sequence.
        site: Site on which the documents are published.
        files: Paths of all files in the folder, including files that were not parsed.
    """

    def __init__(self, documents: Sequence[Document], site: Site, files: Collection[str]) -> None:
        self._own = [normalize("NFC", document.name) for document in documents]
        self.files = {normalize("NFC", name) for name in files} | {*map(path_of_document, self._own)}
        folders = {folder for name in self.files for folder in ancestors(dirname(name))}
        self._folders = dict.fromkeys(folders, FILE)
        self._keys, self._loose, self._aliases, self._folded = (_PagePaths(dict) for _ in range(4))
        self._known = (self._keys, self._loose, self._aliases)
        self._roots = site.roots
        paths = ((base.partition("//")[2] or base).partition("/")[2] for base in site.bases)
        self._prefixes = [f"{path.rstrip('/')}/" for path in dict.fromkeys(paths) if path]
        self._cache: dict[tuple[str, str], int] = {}
        self.names: dict[str, int] = {}
        for number, name in enumerate(self._own):
            self.names.setdefault(name, number)
        for number in sorted(range(len(documents)), key=lambda number: _rank(self._own[number])):
            self._add(number, documents[number].aliases)
        self._exact = dict.fromkeys(self.files, FILE) | self.names
        self._last = {_last(path) for known in (self._exact, self._folders, *self._known) for path in known}

    def _add(self, number: int, aliases: Collection[str]) -> None:
        file = path_of_document(self._own[number])
        self.names.setdefault(file, number)
        bare, suffix = _split(file)
        paths = [bare, dirname(bare)] if _rank(file) else [bare]
        for path in paths:
            loose = _DECORATION.sub("", path) if suffix else path
            for known, key in (
                (self._keys, path),
                (self._loose, loose),
                (self._folded, path.casefold()),
                (self._folded, loose.casefold()),
            ):
                known[key].setdefault(suffix, number)
        if date := _DATE.fullmatch(bare):
            self._loose["/".join(date.group(1, 3, 4, 5))].setdefault(suffix, number)
        for alias in aliases:
            path = _split(normalize("NFC", re.split("[?#]", alias)[0]))[0]
            for top in ancestors(dirname(file)) if path.startswith("/") else [dirname(file)]:
                self._aliases[path_below(top, path.strip("/"))].setdefault(suffix, number)

    def find(self, own: int, path: str) -> int:
        """Return the document that a path points to.

        Args:
            own: Number of the document that contains the path.
            path: Path relative to that document or, with a leading ``/``, to the site.

        Returns:
            Document number, :data:`FILE`, :data:`OUTSIDE` or :data:`NOWHERE`.
        """
        name = self._own[own]
        file, _, inner = name.partition("#") if name not in self.files else (name, "", "")
        if inner and (number := self.names.get(f"{file}#{path_below(dirname(inner), path)}")) is not None:
            return number  # page in the same e-book or archive
        if (file, path) not in self._cache:
            self._cache[file, path] = self._search(file, normalize("NFC", path))
        return self._cache[file, path]

    def _search(self, file: str, path: str) -> int:
        paths = [*(self._absolute(file, path) if path.startswith("/") else self._relative(file, path))]
        nowhere = OUTSIDE if f"{paths[0]}/".startswith("../") else NOWHERE
        if (last := _last(path)) not in self._last and last not in ("", ".", "..", *_FIRST_PAGES):
            return nowhere
        if date := _DATE.fullmatch(_split(path)[0]):
            paths.append("/".join(date.group(1, 3, 4, 5)))
        suffix = _split(file)[1]
        looks: list[Callable[[str], int | None]] = [
            self._exact.get,
            *(partial(known.look_up, suffix) for known in self._known),
            self._folders.get,
            lambda path: self._folded.look_up(suffix, path.casefold()),
        ]
        found = (look(path) for look in looks for path in paths)
        return next((number for number in found if number is not None), nowhere)

    def _absolute(self, file: str, path: str) -> Iterator[str]:
        """Yield the candidate paths in the folder for an absolute path of the site."""
        above = ancestors(dirname(file))
        near = sorted((root for root in self._roots if root in above), key=len, reverse=True)
        path = path_below("", path)
        rests = [path, *(f"{path}/"[len(prefix) : -1] for prefix in self._prefixes if f"{path}/".startswith(prefix))]
        for folder in _TOPS:
            for top in dict.fromkeys((*near, *above, *self._roots)):
                yield from ("/".join(filter(None, (top, folder, rest))) for rest in rests)

    def _relative(self, file: str, path: str) -> Iterator[str]:
        yield path_below(dirname(file), path)
        bare, suffix = _split(file)
        if suffix:
            yield path_below(bare, path)  # the URL of the page may end with a slash
        if "/" in path.rstrip("/") and not path.startswith("."):
            yield from (path_below(root, path) for root in self._roots if not root or file.startswith(f"{root}/"))


class PageNames:
    """Index of documents by page name, for links as in wikis.

    Args:
        documents: All documents. A document number is an index in this sequence.
        pages: Index of the documents by path.
    """

    def __init__(self, documents: Sequence[Document], pages: Pages) -> None:
        self._folders = [dirname(document.name) for document in documents]
        # Keys are (level, folder, name). Names of level 0 are ends of paths, of level 1 titles and aliases, and of
        # level 2 case-folded names of both kinds. Names of level 3 are those of files that are not
        # documents. The folder None matches names from any folder.
        self._known: dict[tuple[int, str | None, str], int] = {}
        for number in sorted(range(len(documents)), key=lambda number: documents[number].name.count("/")):
            document, own = documents[number], normalize("NFC", documents[number].name)
            is_file = path_of_document(own) == own  # a record of a file is found by its title only
            paths = _tails(_split(own)[0]) if is_file else ()
            names = [(0, name) for name in paths]
            names += [(1, _spaced(name)) for name in (document.title, *document.aliases)]
            names += [(1, found[0])] if is_file and (found := _NOTE_ID.match(own.rpartition("/")[2])) else []
            for level, name in names + [(2, _plain(name)) for _, name in names]:
                for folder in (self._folders[number], None) if is_file else (None,):
                    self._known.setdefault((level, folder, name), number)
        for file in pages.files - pages.names.keys():
            for name in _tails(file):
                self._known.setdefault((3, None, name), FILE)

    def find(self, own: int, name: str) -> int:
        """Return the document with a page name.

        Documents in the same folder are preferred, then documents with short paths.

        Args:
            own: Number of the document that contains the name.
            name: Path, name, title or alias of a page.

        Returns:
            Document number, :data:`FILE` or :data:`NOWHERE`.
        """
        path = name = _spaced(name)
        if name.startswith("."):
            path = path_below(self._folders[own], name)
        elif name.startswith("/"):
            path = name.strip("/")
        bare = _split(path)[0]
        keys = ((0, path), (0, bare), (1, name), (2, _plain(path)), (2, _plain(bare)), (3, path), (3, bare))
        found = (self._known.get((level, folder, key)) for level, key in keys for folder in (self._folders[own], None))
        return next((number for number in found if number is not None), NOWHERE)


def path_of_document(name: str) -> str:
    """Return the path of the file that contains a document.

    Args:
        name: Name of a document. If a file has several documents, their names consist of its path, ``#`` and an id.

    Returns:
        Path of the file.

    Example:
        >>> path_of_document("rows.csv#7"), path_of_document("C#.md")
        ('rows.csv', 'C#.md')
    """
    file, mark, _ = normalize("NFC", name).partition("#")
    return file if mark and suffix_of(file) else normalize("NFC", name)


def _split(path: str) -> tuple[str, str]:
    """Divide a path into its stem and the suffix of a page format. Other suffixes remain part of the stem."""
    bare, dot, suffix = path.rpartition(".")
    is_page = bool(bare) and "/" not in suffix and not bare.endswith("/") and f".{suffix.lower()}" in _FAMILY
    return (bare, dot + suffix.lower()) if is_page else (path, "")


def _last(path: str) -> str:
    return _split(path.rstrip("/"))[0].rpartition("/")[2].casefold()


def _rank(path: str) -> int:
    return _FIRST_PAGES.get(_last(path), 0)


def _tails(path: str) -> list[str]:
    parts = path.split("/")[-MAX_DEPTH:]
    return ["/".join(parts[start:]) for start in range(len(parts))]


def _spaced(name: str) -> str:
    return " ".join(normalize("NFC", name).split())


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.casefold())
