"""Links of documents to the passages that they mean."""

import re
from collections.abc import Iterable, Sequence
from posixpath import dirname, join, normpath, splitext
from urllib.parse import unquote

from graphrerank.data.documents.document import Chunk

_FOREIGN = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_FIRST_PAGES = ("index", "readme", "_index")  # of a folder


def linked_passages(passages: Sequence[Chunk]) -> list[tuple[str, str]]:
    """List the different pairs of passages of which one links to the other, in order.

    A target is the first passage of the section that it names, or else of its document. Paths are relative to the
    document or, where they begin with ``/``, to the folder; the suffix may be missing, and a folder is its ``index`` or
    ``README``. ``[[NAME]]`` is the document of that path, else that file name, in the same folder if there are several,
    else that title.
    """
    places = _Places(passages)
    found = {
        (passage.id, target): None
        for passage in passages
        for link in passage.links
        if (target := places.target(passage.document, link)) not in (None, passage.id)
    }
    return [(source, target) for source, target in found if target is not None]


class _Places:
    def __init__(self, passages: Iterable[Chunk]) -> None:
        self.first: dict[str, str] = {}
        self.of_section: dict[tuple[str, str], str] = {}
        self.by_path: dict[str, str] = {}  # document by its path without suffix, and by its folder's
        self.by_name: dict[str, list[str]] = {}  # documents by file name, else by title
        titles: dict[str, list[str]] = {}
        for passage in passages:
            document = passage.document
            self.of_section.setdefault((document, _anchor(passage.heading)), passage.id)
            if document in self.first:
                continue
            self.first[document] = passage.id
            bare = splitext(document)[0]
            self.by_path.setdefault(bare, document)
            folder, _, stem = bare.rpartition("/")
            if stem.lower() in _FIRST_PAGES:
                self.by_path.setdefault(folder or ".", document)
            self.by_name.setdefault(_name(stem), []).append(document)
            titles.setdefault(_name(passage.title), []).append(document)
        for name, documents in titles.items():
            self.by_name.setdefault(name, documents)

    def target(self, own: str, link: str) -> str | None:
        is_wiki = link.startswith("[[")
        if not is_wiki and _FOREIGN.match(link):
            return None
        written = link[2:-2] if is_wiki else unquote(link.replace("\\", "/"))
        path, _, anchor = written.partition("#")
        path = path.strip() if is_wiki else path.partition("?")[0].strip()
        document = own if not path else self._page(own, path) if is_wiki else self._document(own, path)
        if document is None:
            return None
        first = self.first.get(document)
        return self.of_section.get((document, _anchor(unquote(anchor))), first) if anchor else first

    def _document(self, own: str, path: str) -> str | None:
        place = normpath(path.lstrip("/") if path.startswith("/") else join(dirname(own), path))
        return place if place in self.first else self.by_path.get(place)

    def _page(self, own: str, name: str) -> str | None:
        if (document := self._document("", name) or self._document(own, name)) is not None:
            return document
        listed = self.by_name.get(_name(splitext(name)[0] if name.lower().endswith(".md") else name), [])
        return next((each for each in listed if dirname(each) == dirname(own)), listed[0] if listed else None)


def _name(text: str) -> str:
    return " ".join(text.replace("_", " ").lower().split())


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.strip().lower().replace(" ", "-"))
