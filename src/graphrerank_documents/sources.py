"""Sources of documents, such as a folder, or the tree of a git commit that is not checked out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphrerank.data.folder_layout import ACCOUNT, CORPUS
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.reading import ReadFile
from graphrerank_documents.redirects import Redirect
from graphrerank_documents.site import Site

#: Maximum size of a file in bytes. Larger files are skipped and reported.
MAX_BYTES = 50_000_000
#: Reasons to skip a file or folder.
HIDDEN, DATASET_FOLDER = "hidden", "a data set folder"
_CORPUS_MANIFEST = "corpus.json"  # file of a prepared corpus folder
#: End of the reason to skip a file whose format is unknown.
UNKNOWN_FORMAT = "unknown format"


@dataclass(frozen=True)
class LeftOut:
    """Files and folders of a source that are not chosen to be read, for one reason.

    Attributes:
        names: Paths of the files and folders. The path of a folder ends with ``/``.
        num_files: Number of files, including those in the folders, which are counted up to a limit.
    """

    names: Sequence[str]
    num_files: int


@dataclass(frozen=True)
class FileList:
    """Files of a source, as paths relative to the source.

    Attributes:
        names: Files to parse, in the order of their documents.
        others: Files that exist but are not parsed. Links may point to them.
        unread: Skipped files and folders, by reason.
        left_out: Files and folders that are not chosen to be read, by reason.
        redirects: Symbolic links to files of the source, which are not parsed. Links to them lead to those files.
    """

    names: Sequence[str]
    others: Sequence[str] = ()
    unread: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    redirects: Sequence[Redirect] = ()


class DocumentSource(ABC):
    """Base class of document sources.

    The content is untrusted, so :meth:`read` must parse it in processes with time and memory limits.
    """

    @abstractmethod
    def list_files(self, out: Path) -> FileList:
        """Return the files of the source.

        Args:
            out: Data set folder to write. Files in it are excluded.
        """

    @abstractmethod
    def read(self, names: Sequence[str], *, workers: int, read_as: str = "") -> Iterator[ReadFile]:
        """Parse files in parallel processes and yield the results in the order of ``names``.

        Args:
            names: Paths of the files, relative to the source.
            workers: Number of parser processes.
            read_as: Suffix of the format of all files, such as ``.rst``. Defaults to those of the names.

        Returns:
            Iterator over the parsed files.
        """

    @abstractmethod
    def has(self, file: ReadFile) -> bool:
        """Return whether the content of a file is the same as when it was parsed.

        Args:
            file: File parsed by an earlier run.
        """

    @abstractmethod
    def site(self) -> Site:
        """Return the site on which the documents are published, based on the site configurations."""


def is_dataset_folder(has: Callable[[str], bool]) -> bool:
    """Return whether a folder is a data set folder rather than a folder of documents.

    Args:
        has: Function that returns whether the folder contains a file or folder with a name.
    """
    if has(ACCOUNT):  # websites have files of this name too
        return has(CORPUS) or has(_CORPUS_MANIFEST)
    return has(CORPUS) and (has("queries.jsonl") or has("qrels"))


def unread_reason(name: str, size: int, *, is_hidden_read: bool = False) -> str:
    """Return the reason to skip a file, based on its path and size.

    Args:
        name: Path of the file, relative to the source.
        size: Size of the file in bytes.
        is_hidden_read: Whether hidden files are to be parsed.

    Returns:
        Reason, or an empty string if the file is to be parsed.
    """
    file = name.rpartition("/")[2]
    if file.startswith(".") and not is_hidden_read:
        return HIDDEN
    if not suffix_of(file):
        return f"{Path(file).suffix.lower() or 'no suffix'}: {UNKNOWN_FORMAT}"
    if size > MAX_BYTES:
        return f"larger than {MAX_BYTES // 1_000_000} MB"
    is_id = name == name.lstrip() and not set(name) & set("\t\r\n") and listed_name(name) == name
    return "" if is_id else "name starts with white space, or contains a tab, a line break or invalid UTF-8"


def listed_name(name: str) -> str:
    """Return a path with ``?`` in place of bytes that are not valid UTF-8.

    Args:
        name: Path of a file.
    """
    return name.encode("utf-8", "replace").decode()
