"""Read the documents in ZIP archives, such as exports of wikis and chats. Nothing is unpacked to the disk."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from graphrerank.installation.extras import MissingExtraError
from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.archives import unpacking
from graphrerank_documents.readers import reader_of, suffix_of
from graphrerank_documents.selection import BUILT_FOLDERS, INSTALLED_FOLDERS, usual_file_reason

#: Maximum number of files to read in an archive. The others are counted.
MAX_FILES = 2000
#: Maximum size of a file in an archive in bytes.
MAX_BYTES = 20_000_000
#: Start of the reason why a file in an archive is not read.
IN_ARCHIVE = "in a ZIP archive"
_NESTED = (".zip",)
_UNSAFE = re.compile(r"[\x00-\x1f\\]|^/|^[A-Za-z]:|(?:^|/)\.\.(?:/|$)")
_LEFT_OUT = INSTALLED_FOLDERS | BUILT_FOLDERS | {"__MACOSX", "venv"}
_SKIPPED = "files in ZIP archives that are hidden, installed, built or generated"
_UNKNOWN = "files in ZIP archives in unknown formats"
_REPLACED = "files in ZIP archives that later ones of the same name replace"
_TOO_MANY = f"files in ZIP archives with more than {MAX_FILES:,} documents"


def read_zip(content: bytes, name: str) -> list[Document]:
    """Parse the files of an archive whose formats are supported.

    Hidden, installed, built and generated files, and those in unknown formats, are counted. Archives in archives,
    unsafe paths and damaged files are named in the report. See
    :func:`~graphrerank_documents.formats.archives.unpacking` for the limits that archive bombs exceed.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        Documents of the files. Their names consist of the path of the archive, ``#`` and the path in it.

    Raises:
        UnreadableError: If ``content`` is not a ZIP archive, or is encrypted or too large.
    """
    dropped = Counter[str]()
    documents: list[Document] = []
    with unpacking(content, "ZIP") as archive:
        read = 0
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            if archive.NameToInfo[entry.filename] is not entry:
                dropped[_REPLACED] += 1
            elif kind := _omission(entry.filename):
                dropped[kind] += 1
            elif read >= MAX_FILES:
                dropped[_TOO_MANY] += 1
            else:
                read += 1
                documents += _documents(archive, entry, name)
    documents = documents or [Document(name, PurePosixPath(name).stem, ())]
    first = Counter(documents[0].dropped)
    first.update(dropped)
    return [replace(documents[0], dropped=dict(first)), *documents[1:]]


def _omission(path: str) -> str:
    """Return the kind under which a file is counted instead of read, or an empty string."""
    *folders, file = path.split("/")
    if file.startswith(".") or any(
        folder in _LEFT_OUT or folder.startswith(".") for folder in folders if folder != ".."
    ):
        return _SKIPPED
    if usual_file_reason(file):
        return _SKIPPED
    return "" if suffix_of(file) else _UNKNOWN


def _documents(archive: ZipFile, entry: ZipInfo, name: str) -> Iterator[Document]:
    """Yield the documents of a file, or an empty one with the reason why it cannot be read."""
    path = entry.filename
    try:
        if _UNSAFE.search(path):
            raise UnreadableError("unsafe path")
        if suffix_of(path) in _NESTED:
            raise UnreadableError("another archive")
        if entry.file_size > MAX_BYTES:
            raise UnreadableError(f"larger than {MAX_BYTES // 1_000_000} MB")
        found = reader_of(path)(archive.read(entry), path)
    except (UnreadableError, MissingExtraError) as error:
        reason = str(error)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, OSError):
        reason = "damaged, or compressed by an unknown method"
    except MemoryError:
        raise
    except Exception as error:  # parsing libraries raise many kinds of errors for a damaged file
        reason = f"cannot be parsed ({type(error).__name__})"
    else:
        yield from (replace(document, name=f"{name}#{document.name}") for document in found)
        return
    shown = re.sub(r"[\x00-\x1f]", "?", path)
    yield Document(f"{name}#{shown}", PurePosixPath(path).stem, (), damage=(f"{IN_ARCHIVE}: {reason}",))
