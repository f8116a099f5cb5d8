"""Files read in processes with limits of time and memory: no file ends the command."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from time import monotonic

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from graphrerank.data.documents.document import Document, UnreadableError
from graphrerank.data.documents.readers import reader_of
from graphrerank.extras import MissingExtraError

SECONDS, SECONDS_PER_MB = 30.0, 3.0  # that a file may take
MEMORY = 900_000_000  # bytes of a process that reads
_CHILD = "from graphrerank.data.documents.reading import serve; serve()"


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
    """
    waiting = enumerate(paths)
    done: dict[int, ReadFile] = {}
    processes: list[_Process] = []
    number = 0
    try:
        while True:
            while len(processes) < workers and (file := next(waiting, None)):
                processes.append(_Process(source))
                processes[-1].give(*file)
            if not processes:
                return
            ready = wait([process.pipe for process in processes], min(map(_Process.seconds_left, processes)))
            for process in [each for each in processes if each.pipe in ready or not each.seconds_left()]:
                done[process.number] = process.take()
                if process.is_alive and (file := next(waiting, None)):
                    process.give(*file)
                else:
                    process.end()
                    processes.remove(process)
            while number in done:
                yield done.pop(number)
                number += 1
    finally:
        for process in processes:
            process.end()


class _Process:
    """A process that reads files one after the other."""

    def __init__(self, source: Path) -> None:
        self._source, self.number, self._path, self._deadline = source, 0, "", 0.0
        self.pipe, child = Pipe()
        paths = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(child.fileno()), str(source)], pass_fds=[child.fileno()], env=environment
        )
        child.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def give(self, number: int, path: str) -> None:
        """Send the path of a file to read."""
        self.number, self._path, size = number, path, 0
        with suppress(OSError):  # there is no file, or the process has ended: the result says so
            self.pipe.send(path)
            size = (self._source / path).stat().st_size
        self._deadline = monotonic() + SECONDS + SECONDS_PER_MB * size / 1e6

    def take(self) -> ReadFile:
        """Return the file that was read, or could not be."""
        if not self.pipe.poll():
            self.end()
            return ReadFile(self._path, "", reason="takes too long to read")
        try:
            return ReadFile.from_record(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.end()
            return ReadFile(self._path, "", reason="ended the process that read it")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()


def serve() -> None:
    """Read the files that the parent process names, until it ends this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe, source = Connection(int(sys.argv[1])), Path(sys.argv[2])
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send_bytes(read_file(source, pipe.recv()).record)
