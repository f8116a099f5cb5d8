"""Files read in processes with limits of time and memory: no file ends the command."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from graphrerank.installation.extras import MissingExtraError
from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.limited_processes import MEMORY, Handler, LimitedProcesses, ProcessReply, Task
from graphrerank_documents.readers import reader_of

SECONDS, SECONDS_PER_MB = 30.0, 3.0  # that a file may take
_FOLDER_READER = "graphrerank_documents.reading:folder_reader"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file and the documents that were read from it."""

    path: str  # within the folder
    sha256: str  # of its content; empty if it could not be opened
    documents: tuple[Document, ...] = ()
    reason: str = ""  # why it was not read

    @property
    def record(self) -> bytes:
        """The file as JSON, which :meth:`from_record` reads; halves of characters are replaced."""
        try:
            return _ADAPTER.dump_json(self)
        except PydanticSerializationError:
            text = json.dumps(asdict(self), ensure_ascii=False)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

    @classmethod
    def from_record(cls, record: bytes | str) -> "ReadFile":
        """Read what :attr:`record` wrote; a ValueError if it is something else."""
        return _ADAPTER.validate_json(record)


_ADAPTER = TypeAdapter(ReadFile)


def read_file(source: Path, path: str) -> ReadFile:
    """Read a file of a folder; every reason not to is in the result."""
    try:
        content = (source / path).read_bytes()
    except OSError as error:
        return ReadFile(path, "", reason=error.strerror or "cannot be opened")
    return read_content(content, path)


def read_content(content: bytes, path: str) -> ReadFile:
    """Read the content of a file; every reason not to is in the result."""
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        documents = tuple(reader_of(path)(content, path))
    except (UnreadableError, MissingExtraError) as error:
        return ReadFile(path, sha256, reason=str(error))
    except MemoryError:
        return ReadFile(path, sha256, reason=f"needs more than {MEMORY // 1_000_000:,} MB of memory")
    except Exception as error:  # libraries that stumble over a damaged file have many ways
        return ReadFile(path, sha256, reason=f"cannot be parsed ({type(error).__name__})")
    return ReadFile(path, sha256, documents)


def read_files(source: Path, paths: Iterable[str], *, workers: int) -> Iterator[ReadFile]:
    """Read files by several processes and yield them in order.

    A file that takes more than 30 seconds and 3 for each MB, or more memory than a process may have, or that ends its
    process, is not read; a new process reads the others.

    Args:
        source: The folder of the files.
        paths: Their paths within the folder.
        workers: Number of processes.

    Yields:
        Each file, with its documents or the reason why it was not read.
    """
    names: list[str] = []

    def tasks() -> Iterator[Task]:
        for path in paths:
            names.append(path)
            size = 0
            with suppress(OSError):  # there is no file: the result says so
                size = (source / path).stat().st_size
            yield Task(path, seconds_for(size))

    with LimitedProcesses(_FOLDER_READER, str(source), workers=workers) as processes:
        for number, reply in enumerate(processes.call(tasks())):
            yield file_of_reply(reply, names[number])


def seconds_for(size: int) -> float:
    """Return the seconds that a file of so many bytes may take."""
    return SECONDS + SECONDS_PER_MB * size / 1e6


def file_of_reply(reply: ProcessReply, path: str) -> ReadFile:
    """Return the file that a process read, or one with the reason why it could not."""
    return ReadFile(path, "", reason=reply.failure) if reply.failure else ReadFile.from_record(reply.content)


def folder_reader(source: str) -> Handler:
    """Return the function that reads a file of a folder; processes of :func:`read_files` call it."""
    folder = Path(source)
    return lambda path: read_file(folder, path).record
