"""Where documents come from: a folder, or the tree of a commit whose files are not written to disk."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphrerank.data.folder_layout import ACCOUNT, CORPUS
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.reading import ReadFile
from graphrerank_documents.site import Site

MAX_BYTES = 50_000_000  # of a file; larger ones are listed, not read
HIDDEN, DATASET_FOLDER = "hidden", "a data set folder"  # why files are not read


@dataclass(frozen=True)
class FileList:
    """The files of a source, by their paths within it.

    Attributes:
        names: Files to read, in the order in which their documents are numbered.
        others: Files that are there and are not read, to which links may point.
        unread: Files and folders that are not read, by the reason.
    """

    names: Sequence[str]
    others: Sequence[str] = ()
    unread: Mapping[str, Sequence[str]] = field(default_factory=dict)


class DocumentSource(ABC):
    """Files that are documents. Their content is not trusted: :meth:`read` parses it in limited processes."""

    @abstractmethod
    def list_files(self, out: Path) -> FileList:
        """Return the files, without those in ``out``, the folder that will be written."""

    @abstractmethod
    def read(self, names: Sequence[str], *, workers: int) -> Iterator[ReadFile]:
        """Read files in several processes and yield them in order."""

    @abstractmethod
    def has(self, file: ReadFile) -> bool:
        """Return whether a file that was read before still has the same content."""

    @abstractmethod
    def site(self) -> Site:
        """Return where the documents are published, as their configurations say."""


def is_dataset_folder(has: Callable[[str], bool]) -> bool:
    """Return whether a folder, of which ``has`` says what is in it, is a data set folder and no folder of documents."""
    return has(ACCOUNT) or (has(CORPUS) and (has("queries.jsonl") or has("qrels")))


def unread_reason(name: str, size: int) -> str:
    """Return why a file is not read, judged by its path within the source and its size; empty if it is read."""
    file = name.rpartition("/")[2]
    if file.startswith("."):
        return HIDDEN
    if not suffix_of(file):
        return f"{Path(file).suffix.lower() or 'no suffix'}: no known format"
    if size > MAX_BYTES:
        return f"larger than {MAX_BYTES // 1_000_000} MB"
    is_id = name == name.lstrip() and not set(name) & set("\t\r\n") and listed_name(name) == name
    return "" if is_id else "a name that begins with a blank, or with tabs, line breaks or bytes that are not UTF-8"


def listed_name(name: str) -> str:
    """Return a path for a list of files, with ``?`` for bytes that are not UTF-8."""
    return name.encode("utf-8", "replace").decode()
