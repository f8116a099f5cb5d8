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
from itertools import chain, islice
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from time import monotonic

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from graphrerank.data.documents.document import Document, UnreadableError
from graphrerank.data.documents.readers import reader_of
from graphrerank.data.engines.local import Block
from graphrerank.extras import MissingExtraError

SECONDS, SECONDS_PER_MB = 30.0, 3.0  # that a file may take
MEMORY = 900_000_000  # bytes of a process that reads
FILES = 16  # given to a process at once
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


class FileReader:
    """Work of an engine: reads files of a folder that all workers see."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def __call__(self, block: Block) -> Block:
        """Return the files ``paths`` as ``files``, in JSON."""
        return {"files": [read_file(self.source, str(path)).record.decode() for path in block["paths"]]}


def read_files(source: Path, paths: Iterable[str], *, workers: int) -> Iterator[ReadFile]:
    """Read files by several processes and yield them in order.

    A file that takes more than 30 seconds and 3 for each MB, or more memory than a process may have, or that ends its
    process, is not read; a new process reads the others.
    """
    waiting: Iterator[tuple[int, str]] = enumerate(paths)
    done: dict[int, ReadFile] = {}
    processes: list[_Process] = []
    number = 0
    try:
        while True:
            while len(processes) < workers and (files := list(islice(waiting, FILES))):
                processes.append(_Process(source, files))
            if not processes:
                return
            ready = wait([process.pipe for process in processes], min(map(_Process.seconds_left, processes)))
            for process in [each for each in processes if each.pipe in ready or not each.seconds_left()]:
                place, done[place] = process.take()
                if not process.files and (files := list(islice(waiting, FILES))):
                    process.give(files)
                if not process.is_alive or not process.files:
                    process.end()
                    processes.remove(process)
                    waiting = chain(process.files, waiting)
            while number in done:
                yield done.pop(number)
                number += 1
    finally:
        for process in processes:
            process.end()


class _Process:
    """A process that reads files one after the other."""

    def __init__(self, source: Path, files: list[tuple[int, str]]) -> None:
        self._source, self.files, self._deadline = source, list[tuple[int, str]](), 0.0
        self.pipe, child = Pipe()
        paths = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(child.fileno())], pass_fds=[child.fileno()], env=environment
        )
        child.close()
        self.give(files)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def give(self, files: list[tuple[int, str]]) -> None:
        """Send files to read."""
        self.files = files
        with suppress(OSError):  # it has ended: the next result says so
            self.pipe.send((str(self._source), [path for _, path in files]))
        self._start_clock()

    def take(self) -> tuple[int, ReadFile]:
        """Return the number and the result of the file that was read, or could not be."""
        number, path = self.files.pop(0)
        if not self.pipe.poll():
            self.end()
            return number, ReadFile(path, "", reason="takes too long to read")
        try:
            file = ReadFile.from_record(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.end()
            return number, ReadFile(path, "", reason="ended the process that read it")
        self._start_clock()
        return number, file

    def _start_clock(self) -> None:
        size = 0
        if self.files:
            with suppress(OSError):
                size = (self._source / self.files[0][1]).stat().st_size
        self._deadline = monotonic() + SECONDS + SECONDS_PER_MB * size / 1e6

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()


def serve() -> None:
    """Read the files that the parent process names, until it ends this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            source, paths = pipe.recv()
            for path in paths:
                pipe.send_bytes(read_file(Path(source), path).record)
