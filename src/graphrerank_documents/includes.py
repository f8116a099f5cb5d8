"""Find the files of a folder that documents include."""

from collections.abc import Collection, Iterator, Sequence
from posixpath import dirname, join, normpath

from graphrerank_documents.document import Document
from graphrerank_documents.pages import path_of_document

_MAX_FOLDERS = 6  # maximum number of parent folders of a file relative to which its includes are resolved


def included_paths(document: Document, names: Collection[str]) -> Iterator[str]:
    """Yield the files that a document includes, by paths from its folder or a folder above it.

    Args:
        document: Document with its includes as written. A leading ``/`` stands for a folder above the document.
        names: Paths of the files in the folder. Other files are never included.

    Example:
        >>> page = Document("docs/a/index.rst", "A", (), includes=("x.txt", "/y.inc", "../../z.txt", "/etc/passwd"))
        >>> list(included_paths(page, {"docs/a/x.txt", "docs/y.inc", "z.txt"}))
        ['docs/a/x.txt', 'docs/y.inc', 'z.txt']
    """
    folders = [dirname(document.name)]
    while folders[-1] and len(folders) < _MAX_FOLDERS:
        folders.append(dirname(folders[-1]))
    for path in document.includes:
        paths = (normpath(join(folder, path.lstrip("/"))) for folder in folders)
        yield from [each for each in paths if each in names][:1]


def includers_of(documents: Sequence[Document]) -> dict[int, list[int]]:
    """Return the numbers of the documents that include each document.

    Args:
        documents: All documents. A document number is an index in this sequence.
    """
    numbers: dict[str, int] = {}
    for number, document in enumerate(documents):
        numbers.setdefault(path_of_document(document.name), number)
    includers: dict[int, list[int]] = {}
    for number, document in enumerate(documents):
        for path in included_paths(document, numbers) if document.includes else ():
            includers.setdefault(numbers[path], []).append(number)
    return includers
