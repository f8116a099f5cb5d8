"""Finds the documents of a folder by paths, addresses and names of pages."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from posixpath import dirname, join, normpath
from unicodedata import normalize

from graphrerank.data.documents.document import Document
from graphrerank.data.documents.readers import suffix_of
from graphrerank.data.documents.site import Site

FILE, OUTSIDE, NOWHERE = -1, -2, -3  # instead of a document's number: another file or folder; not in the folder
_FAMILIES = (
    "md markdown mdx mkd qmd rmd",
    "rst rest",
    "adoc asciidoc asc",
    "org",
    "ipynb",
    "txt text",
    "html htm xhtml",
)
_FAMILY = {f".{suffix}": family.split() for family in _FAMILIES for suffix in family.split()}
_PUBLISHED = ("html", "htm", "xhtml")
_FIRST_PAGES = ("_index", "index", "readme")  # of a folder, in order of preference
_DATED = re.compile(r"(\d{4})-(\d\d)-(\d\d)-(.+)")  # a post of Jekyll or Docusaurus
_DATE = re.compile(r"(?:^|/)(\d{4}/\d\d/\d\d/[^/]+)$")  # its address
_PREFIX = re.compile(r"^(?:\d{4}-\d\d-\d\d-|\d+\s*[-_.]+\s*(?=[^-_.\s\d])|_+)(?=.)")  # of names, not of addresses
_LANGUAGE = re.compile(r"\.[a-z]{2}(?:-[A-Za-z]{2,4})?$")
_TOPS = ("docs", "content", "source", "src", "src/pages", "pages", "static", "public")  # which an address leaves out
_MAX_DEPTH = 12  # folders of a path, from the top, that may be the top of a site; names of a wiki's path
_MAX_ROOTS = 8  # other folders of sites


class Pages:
    """Finds documents and other files by their paths; a look-up takes constant time."""

    def __init__(self, documents: Sequence[Document], site: Site, files: Collection[str]) -> None:
        self.files = {normalize("NFC", name) for name in files} | {file_of(document.name) for document in documents}
        self.folders = {folder for name in self.files for folder in _ancestors(dirname(name))}
        self.names: dict[str, int] = {}
        self._own = [normalize("NFC", document.name) for document in documents]
        self._keys: dict[tuple[str, str], int] = {}  # paths without suffix, with the suffix and with ""
        self._loose: dict[tuple[str, str], int] = {}  # without numbers, dates and languages
        self._aliases: dict[tuple[str, str], int] = {}
        self._folded: dict[tuple[str, str], int] = {}
        self._last = {_last(name) for name in self.files | self.folders}  # parts of paths that something has
        self._site = site
        paths = ((base.partition("//")[2] or base).partition("/")[2] for base in site.bases)
        self._prefixes = [f"{path.rstrip('/')}/" for path in dict.fromkeys(paths) if path]
        self._cache: dict[tuple[str, str], int] = {}
        for number, name in enumerate(self._own):
            self.names.setdefault(name, number)
        for number in sorted(range(len(documents)), key=lambda number: _rank(self._own[number])):
            self._add(number, documents[number].aliases)

    def find(self, own: int, path: str) -> int:
        """Return the number of the document at a path as document ``own`` writes it, FILE, OUTSIDE or NOWHERE."""
        name = self._own[own]
        file, _, inner = name.partition("#") if name not in self.files else (name, "", "")
        if inner and (number := self.names.get(f"{file}#{_joined(dirname(inner), path)}")) is not None:
            return number  # of a book or another archive
        place = dirname(file) + "/*" + suffix_of(file) if path.startswith("/") else file
        if (found := self._cache.get((place, path))) is None:
            found = self._cache[place, path] = self._search(file, path)
        return found

    def _search(self, file: str, path: str) -> int:
        path, suffix = normalize("NFC", path), _split(file)[1]
        paths = list(self._absolute(file, path, ("",)) if path.startswith("/") else self._relative(file, path))
        nowhere = OUTSIDE if _is_outside(paths[0]) else NOWHERE
        if (last := _last(path)) not in self._last and last not in ("", ".", "..", *_FIRST_PAGES):
            return nowhere
        paths = [each for each in paths if not _is_outside(each)]
        levels = (self._exact, self._key, self._prefixed, self._alias, self._folder)
        found = self._first(paths, suffix, levels)
        if found is None and path.startswith("/"):
            more = list(self._absolute(file, path, _TOPS))
            paths += more
            found = self._first(more, suffix, levels)
        found = self._first(paths, suffix, (self._case,)) if found is None else found
        return nowhere if found is None else found

    @staticmethod
    def _first(paths: Sequence[str], suffix: str, levels: Sequence[Callable[[str, str], int | None]]) -> int | None:
        found = (level(path, suffix) for level in levels for path in paths)
        return next((number for number in found if number is not None), None)

    def _absolute(self, file: str, path: str, inner: Sequence[str]) -> Iterator[str]:
        """Yield what a path of a site may be in the folder: from its configuration's folder on, or from any above."""
        above = _ancestors(dirname(file))
        near = sorted((root for root in self._site.roots if root in above), key=len, reverse=True)
        tops = dict.fromkeys((*near, *above, *self._site.roots[:_MAX_ROOTS]))
        path = _joined("", path)
        rests = [path, *(f"{path}/"[len(prefix) : -1] for prefix in self._prefixes if f"{path}/".startswith(prefix))]
        for top in tops:
            yield from ("/".join(filter(None, (top, folder, rest))) for rest in rests for folder in inner)

    def _relative(self, file: str, path: str) -> Iterator[str]:
        folder, bare = dirname(file), _split(file)[0]
        yield _joined(folder, path)
        if bare != file:
            yield _joined(bare, path)  # of the page's address, which ends with a slash
        if "/" in path.rstrip("/") and not path.startswith("."):
            yield from (
                _joined(root, path) for root in self._site.roots if not root or f"{file}/".startswith(f"{root}/")
            )

    def _exact(self, path: str, _: str) -> int | None:
        return self.names.get(path, FILE if path in self.files else None)

    def _key(self, path: str, suffix: str) -> int | None:
        return _look_up(self._keys, path, suffix)

    def _prefixed(self, path: str, suffix: str) -> int | None:
        dated = _DATE.search(_split(path)[0])
        found = _look_up(self._loose, path, suffix)
        return found if found is not None or not dated else self._loose.get((f"//{dated[1]}", ""))

    def _alias(self, path: str, _: str) -> int | None:
        return next((self._aliases[key] for key in ((path, ""), (_split(path)[0], "")) if key in self._aliases), None)

    def _folder(self, path: str, _: str) -> int | None:
        return FILE if path in self.folders else None

    def _case(self, path: str, suffix: str) -> int | None:
        return self._folded.get((path.casefold(), "*"), _look_up(self._folded, path.casefold(), suffix))

    def _add(self, number: int, aliases: Collection[str]) -> None:
        name = self._own[number]
        file = file_of(name)
        self.names.setdefault(file, number)
        self._folded.setdefault((file.casefold(), "*"), number)
        bare, suffix = _split(file)
        for alias in aliases:
            self._add_alias(number, alias)
        if bare == file:
            return
        folder, _, stem = bare.rpartition("/")
        keys = [bare, folder] if stem.casefold() in _FIRST_PAGES else [bare]
        loose = [key for key in map(_without_prefixes, keys) if key not in keys]
        self._last.update(map(_last, loose))
        for known, listed in ((self._keys, keys), (self._loose, loose)):
            for key in listed:
                known.setdefault((key, suffix), number)
                known.setdefault((key, ""), number)
                self._folded.setdefault((key.casefold(), suffix), number)
                self._folded.setdefault((key.casefold(), ""), number)
        if dated := _DATED.fullmatch(stem):
            self._loose.setdefault(("//" + "/".join(dated.groups()), ""), number)
            self._last.add(_last(dated[4]))

    def _add_alias(self, number: int, alias: str) -> None:
        folder = dirname(self._own[number])
        path = _split(normalize("NFC", re.split("[?#]", alias)[0]))[0]
        self._last.add(_last(path))
        for top in _ancestors(folder) if path.startswith("/") else [folder]:
            self._aliases.setdefault((_joined(top, path.strip("/")), ""), number)


class PageNames:
    """Finds documents by names of pages, as wikis do."""

    def __init__(self, documents: Sequence[Document], pages: Pages) -> None:
        self._folders = [dirname(document.name) for document in documents]
        self._files = pages.files
        self._ways: tuple[dict[str, list[int]], ...] = tuple(defaultdict(list) for _ in range(3))  # name, title, folded
        self._nearest: dict[tuple[int, str, str], int] = {}  # by the way, the folder and the name
        self._is_file: set[str] = set()
        ranked = sorted(range(len(documents)), key=lambda number: documents[number].name.count("/"))
        for number in ranked:
            bare, suffix = _split(documents[number].name)
            for name in _tails(normalize("NFC", bare if suffix else documents[number].name)):
                self._add(0, name, number)
            for name in (documents[number].title, *documents[number].aliases):
                self._add(1, " ".join(normalize("NFC", name).split()), number)
        for name in pages.files - pages.names.keys():
            self._is_file.update(_tails(name))

    def _add(self, way: int, name: str, number: int) -> None:
        for which, key in ((way, name), (2, _plain(name))):
            self._ways[which][key].append(number)
            self._nearest.setdefault((which, self._folders[number], key), number)

    def find(self, own: int, name: str) -> int:
        """Return the document of a name: in the same folder, else with the shortest path; FILE or NOWHERE."""
        name = " ".join(normalize("NFC", name).split())
        path = name.strip("/") if name.startswith("/") else normpath(name) if name.startswith(".") else name
        path = _joined(self._folders[own], name) if name.startswith(".") else path
        for which, key in ((0, path), (0, _split(path)[0]), (1, name), (2, _plain(path)), (2, _plain(_split(path)[0]))):
            numbers = self._ways[which].get(key)
            if numbers:
                return self._nearest.get((which, self._folders[own], key), numbers[0])
            if path in self._is_file:
                return FILE
        return NOWHERE


def file_of(name: str) -> str:
    """Return the path of a document's file: its name, or what stands before the `#` of one of several.

    Example:
        >>> file_of("mail.mbox#a@b"), file_of("C#.md")
        ('mail.mbox', 'C#.md')
    """
    file, mark, _ = normalize("NFC", name).partition("#")
    return file if mark and suffix_of(file) else normalize("NFC", name)


def _split(path: str) -> tuple[str, str]:
    """Return a path without the suffix of a page, and the suffix."""
    bare, dot, suffix = path.rpartition(".")
    is_page = bool(bare) and "/" not in suffix and not bare.endswith("/") and f".{suffix.lower()}" in _FAMILY
    return (bare, dot + suffix.lower()) if is_page else (path, "")


def _last(path: str) -> str:
    return _split(path.rstrip("/"))[0].rpartition("/")[2].casefold()


def _is_outside(path: str) -> bool:
    return path == ".." or path.startswith("../")


def _joined(folder: str, path: str) -> str:
    joined = normpath(join(folder, path.lstrip("/")))
    return "" if joined == "." else joined


def _ancestors(folder: str) -> list[str]:
    """Return the folders from the top to a folder, itself included.

    Example:
        >>> _ancestors("a/b")
        ['', 'a', 'a/b']
    """
    parts = folder.split("/")[:_MAX_DEPTH] if folder else []
    return ["/".join(parts[:end]) for end in range(len(parts) + 1)]


def _tails(path: str) -> list[str]:
    parts = path.split("/")[-_MAX_DEPTH:]
    return ["/".join(parts[start:]) for start in range(len(parts))]


def _rank(name: str) -> int:
    stem = _split(name)[0].rpartition("/")[2].casefold()
    return 1 + _FIRST_PAGES.index(stem) if stem in _FIRST_PAGES else 0


def _look_up(known: dict[tuple[str, str], int], path: str, suffix: str) -> int | None:
    """Find a page by its path: with its suffix, with that of a published page, without one, or as its folder."""
    bare, written = _split(path)
    keys = [bare] if written else [path]
    folder, _, stem = bare.rpartition("/")
    if stem.casefold() in _FIRST_PAGES:
        keys.append(folder)
    is_any = not written or written[1:] in _PUBLISHED
    suffixes = (suffix, "") if is_any else [f".{each}" for each in _FAMILY[written]]
    return next((known[key, each] for key in keys for each in suffixes if (key, each) in known), None)


def _without_prefixes(bare: str) -> str:
    return _LANGUAGE.sub("", "/".join(_PREFIX.sub("", part) for part in bare.split("/")))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.casefold())
