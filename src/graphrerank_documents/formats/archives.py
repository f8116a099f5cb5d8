"""Open untrusted ZIP archives, the container of office documents and e-books."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from graphrerank_documents.document import UnreadableError

_MAX_FILES, _MAX_BYTES = 10_000, 100_000_000  # maximum number of files, and of bytes after decompression
_MAX_RATIO, _SMALL = 200, 5_000_000  # maximum compression ratio, and the decompressed size below which any is accepted
_OLD = b"\xd0\xcf\x11\xe0"  # signature of older formats and encrypted documents, which are not ZIP archives


@contextmanager
def unpacking(content: bytes, kind: str) -> Iterator[ZipFile]:
    """Return a context manager that opens an archive within size limits.

    Args:
        content: Bytes of the archive.
        kind: Name of the format for error messages, such as ``DOCX``.

    Yields:
        Open archive.

    Raises:
        UnreadableError: If the archive is invalid, encrypted or too large, or if the body of the ``with`` statement
            raises an exception other than MemoryError.
    """
    if content.startswith(_OLD):
        raise UnreadableError(f"encrypted, or in an older format than {kind}")
    try:
        with ZipFile(BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > _MAX_BYTES or (size > _SMALL and size > _MAX_RATIO * len(content)):
                raise UnreadableError(f"too large: {len(content):,} bytes become {size:,} when unpacked")
            if len(archive.infolist()) > _MAX_FILES:
                raise UnreadableError(f"contains more than {_MAX_FILES:,} files")
            if any(entry.flag_bits & 1 for entry in archive.infolist()):
                raise UnreadableError("encrypted")
            yield archive
    except (UnreadableError, MemoryError):
        raise
    except BadZipFile as error:
        raise UnreadableError(f"not {kind}: not a valid ZIP archive") from error
    except Exception as error:  # parsing libraries raise many kinds of errors for a damaged file
        raise UnreadableError(f"cannot be read as {kind}") from error
