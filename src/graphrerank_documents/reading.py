"""Parse files in processes with time and memory limits, so that no file can stop the command."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from graphrerank.installation.extras import MissingExtraError
from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.imports.manifest import PackageManifest, read_package_manifest
from graphrerank_documents.limited_processes import MEMORY, Handler, LimitedProcesses, ProcessReply, Task
from graphrerank_documents.readers import reader_of

#: Time limit for parsing one file: a constant, and an addition per megabyte.
SECONDS, SECONDS_PER_MB = 30.0, 3.0
#: Start of the reason why the settings of a package manifest are ignored.
DAMAGED_MANIFEST = "damaged package manifest, imports are resolved without it"
_FOLDER_READER = "graphrerank_documents.reading:folder_reader"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """File and the documents parsed from it.

    Attributes:
        path: Path relative to the source.
        sha256: SHA-256 hash of the content, or empty if the file could not be opened.
        documents: Documents in the file.
        reason: Reason why the file was skipped, or empty if it was parsed.
        read_as: Suffix of the format in which the file was parsed if it is not that of its name, such as ``.rst``.
        manifest: Settings for the resolution of imports if the file is a package manifest, even if it was skipped.
        damage: What is wrong with the package manifest in the file, as a reason for the report. Documents have their
            own reasons.
    """

    path: str
    sha256: str
    documents: tuple[Document, ...] = ()
    reason: str = ""
    manifest: PackageManifest | None = None
    read_as: str = ""
    damage: tuple[str, ...] = ()

    @property
    def record(self) -> bytes:
        """JSON of the file, to be decoded by :meth:`from_record`. Unpaired surrogates are replaced."""
        try:
            return _ADAPTER.dump_json(self)
        except PydanticSerializationError:
            text = json.dumps(asdict(self), ensure_ascii=False)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

    @classmethod
    def from_record(cls, record: bytes | str) -> "ReadFile":
        """Return the file encoded by :attr:`record`.

        Args:
            record: JSON object.

        Returns:
            File with its documents.

        Raises:
            ValueError: If ``record`` is not such a JSON object.
        """
        return _ADAPTER.validate_json(record)


_ADAPTER = TypeAdapter(ReadFile)


def read_file(source: Path, path: str, read_as: str = "") -> ReadFile:
    """Parse a file. If that fails, the result has the reason and no documents.

    Args:
        source: Folder of documents.
        path: Path of the file, relative to ``source``.
        read_as: Suffix of the format. Defaults to that of the path.

    Returns:
        File with its documents, or with the reason why it was skipped.
    """
    try:
        content = (source / path).read_bytes()
    except OSError as error:
        return ReadFile(path, "", reason=error.strerror or "cannot be opened")
    return read_content(content, path, read_as)


def read_content(content: bytes, path: str, read_as: str = "") -> ReadFile:
    """Parse the content of a file. If that fails, the result has the reason and no documents.

    Args:
        content: Bytes of the file.
        path: Path of the file, relative to the source.
        read_as: Suffix of the format, such as ``.rst``. Defaults to that of the path.

    Returns:
        File with its documents, or with the reason why it was skipped.
    """
    sha256, manifest, damage = hashlib.sha256(content).hexdigest(), None, tuple[str, ...]()
    try:
        manifest = read_package_manifest(content, path)
    except UnreadableError as error:
        damage = (f"{DAMAGED_MANIFEST}: {error}",)
    try:
        documents = tuple(reader_of(f"a{read_as}" if read_as else path)(content, path))
    except (UnreadableError, MissingExtraError) as error:
        reason = str(error)
    except MemoryError:
        reason = f"needs more than {MEMORY // 1_000_000:,} MB of memory"
    except Exception as error:  # parsing libraries raise many kinds of errors for a damaged file
        reason = f"cannot be parsed ({type(error).__name__})"
    else:
        return ReadFile(path, sha256, documents, manifest=manifest, read_as=read_as, damage=damage)
    return ReadFile(path, sha256, reason=reason, manifest=manifest, read_as=read_as, damage=damage)


def read_files(source: Path, paths: Iterable[str], *, workers: int, read_as: str = "") -> Iterator[ReadFile]:
    """Parse files in parallel processes and yield the results in order.

    A file is skipped if it exceeds the time limit of :func:`seconds_for` or the memory limit of a process, or if its
    process crashes. A new process then parses the remaining files.

    Args:
        source: Folder of documents.
        paths: Paths of the files, relative to ``source``.
        workers: Number of parser processes.
        read_as: Suffix of the format of all files. Defaults to those of the paths.

    Yields:
        Each file with its documents, or with the reason why it was skipped.
    """
    names: list[str] = []

    def tasks() -> Iterator[Task]:
        for path in paths:
            names.append(path)
            size = 0
            with suppress(OSError):  # a missing file is reported by the result
                size = (source / path).stat().st_size
            yield Task(path, seconds_for(size))

    with LimitedProcesses(_FOLDER_READER, [str(source), read_as], workers=workers) as processes:
        for number, reply in enumerate(processes.call(tasks())):
            yield file_of_reply(reply, names[number])


def seconds_for(size: int) -> float:
    """Return the time limit in seconds for parsing a file.

    Args:
        size: Size of the file in bytes.
    """
    return SECONDS + SECONDS_PER_MB * size / 1e6


def file_of_reply(reply: ProcessReply, path: str) -> ReadFile:
    """Return the file that a process parsed, or one with the reason why the process failed.

    Args:
        reply: Reply of the process: a record of the file, or a failure.
        path: Path of the file.
    """
    return ReadFile(path, "", reason=reply.failure) if reply.failure else ReadFile.from_record(reply.content)


def folder_reader(settings: Sequence[str]) -> Handler:
    """Return the function with which a process of :func:`read_files` parses files.

    Args:
        settings: Folder of documents, and the suffix of the format of all files, or an empty string.

    Returns:
        Function that takes the path of a file relative to ``source`` and returns its record.
    """
    folder, read_as = Path(settings[0]), settings[1]
    return lambda path: read_file(folder, path, read_as).record
