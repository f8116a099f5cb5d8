"""Titles of the notes of a vault, in which the name of a file is the title of its note."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from graphrerank_documents.document import MAX_NAME, PAGE, PATH, Document
from graphrerank_documents.pages import path_of_document

_NOTES = (".md", ".markdown")
_MIN_LINKS = 10  # minimum number of wiki links from which a vault is recognised
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def is_vault(documents: Sequence[Document]) -> bool:
    """Return whether notes link to each other mostly by wiki links, as in a vault without its settings.

    Args:
        documents: All documents of a folder.
    """
    kinds = Counter[str]()
    for document in documents:
        if PurePosixPath(document.name).suffix.lower() in _NOTES:
            links = (link for section in document.sections for block in section.blocks for link in block.links)
            kinds.update(link.kind for link in links if link.kind != PATH or not _OUTSIDE.match(link.target))
    return kinds[PAGE] >= _MIN_LINKS and 2 * kinds[PAGE] > kinds.total()


def vault_note(document: Document, *, is_named_by_heading: bool = True) -> Document:
    """Return a note with the name of its file in its title. Other documents are unchanged.

    A title in the text or the properties follows the name, and links may use it as before.

    Args:
        document: Document of a vault.
        is_named_by_heading: Whether wiki links may use a heading that is the title of a note. In Obsidian they may not:
            a link to ``Quotes`` never leads to the note whose first heading is "Quotes".

    Returns:
        Note with a title such as ``name`` or ``name > title``.

    Example:
        >>> vault_note(Document("notes/Ada Lovelace.md", "Life", ())).title
        'Ada Lovelace > Life'
    """
    path = PurePosixPath(document.name)
    if path.suffix.lower() not in _NOTES or path_of_document(document.name) != document.name:
        return document
    name, title = path.stem, document.title
    if title in (name, path.parent.name):  # the name of its folder is the title of an index page elsewhere
        return replace(document, title=name)
    if title.casefold() == name.casefold():
        return document
    is_heading = any(section.heading == title for section in document.sections)
    aliases = (title,) if is_named_by_heading or not is_heading else ()
    return replace(document, title=f"{name} > {title}"[:MAX_NAME], aliases=(*document.aliases, *aliases))
