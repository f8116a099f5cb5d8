"""ZIP archives of untrusted files, of which office documents and books consist."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from graphrerank_documents.document import UnreadableError

_MAX_FILES, _MAX_BYTES = 10_000, 100_000_000  # of an archive, when it is unpacked
_MAX_RATIO, _SMALL = 200, 5_000_000  # of the bytes unpacked to the packed ones; of what may have a greater ratio
_OLD = b"\xd0\xcf\x11\xe0"  # a container that is no ZIP archive, of older formats and encrypted documents


@contextmanager
def unpacking(content: bytes, kind: str) -> Iterator[ZipFile]:
    """Open an archive if what is in it is not too large; any failure in the block is an UnreadableError."""
    if content.startswith(_OLD):
        raise UnreadableError(f"encrypted, or of a format before {kind}")
    try:
        with ZipFile(BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > _MAX_BYTES or (size > _SMALL and size > _MAX_RATIO * len(content)):
                raise UnreadableError(f"{size:,} bytes of {len(content):,} when unpacked")
            if len(archive.infolist()) > _MAX_FILES:
                raise UnreadableError(f"more than {_MAX_FILES:,} files in it")
            if any(entry.flag_bits & 1 for entry in archive.infolist()):
                raise UnreadableError("encrypted")
            yield archive
    except (UnreadableError, MemoryError):
        raise
    except BadZipFile as error:
        raise UnreadableError(f"not {kind}: no ZIP archive, or a broken one") from error
    except Exception as error:  # parsers of untrusted files fail in many ways
        raise UnreadableError(f"cannot be read as {kind}") from error
