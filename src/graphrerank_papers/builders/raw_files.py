"""Files of a data set as its authors publish them: plain, gzipped, or in archives.

Archives are never unpacked. No path is made from a name inside, and one with a name that leads outside is refused.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from graphrerank.data.readers.fetch import HUB, Downloader, check_download, download
from graphrerank.data.readers.records import MAX_LINE_BYTES, Record
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files
from graphrerank.utils.redaction import without_passwords
from graphrerank.utils.safe_loading import check_values, shown_name

MAX_EXPANDED, EXPANSION = 1 << 28, 32  # bytes, and times the size on disk: 3 MB of gzip may hold 3 GB
MAX_VALUES = 1 << 22
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_CHECKSUM = re.compile(r"(.+)#(md5|sha1|sha256|sha512)=([0-9a-fA-F]+)")
_DAMAGED = (EOFError, RuntimeError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError)
_OF_ANOTHER_FORM = (AttributeError, LookupError, TypeError, ValueError, csv.Error)


@dataclass(frozen=True)
class RawFile:
    """One file; the generators set :attr:`RawFiles.place`, for messages."""

    files: "RawFiles" = field(repr=False)
    name: str  # its path within the given location
    label: str  # its name in messages
    path: Path  # of the file or archive on disk
    opener: Callable[[], Any]

    @property
    def stem(self) -> str:
        """The file's name without folders and suffixes."""
        return PurePosixPath(self.name.removesuffix(".gz")).stem

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the content, decompressed if its name ends with ``.gz``."""
        self.files.place = self.label
        if self.path.name not in self.files.used:
            self.files.used[self.path.name] = (self.path.stat().st_size, hash_files([self.path]))
        with self.opener() as raw, gzip.open(raw) if self.name.endswith(".gz") else nullcontext(raw) as stream:
            yield stream

    def read(self) -> bytes:
        """Read all bytes: at most 256 MiB, or 32 times what lies on the disk."""
        size = self.path.stat().st_size
        most = max(MAX_EXPANDED, EXPANSION * size)
        with self.open() as stream:
            content: bytes = stream.read(most + 1)
        if len(content) > most:
            raise ValueError(f"needed at most {most:,} bytes in {size:,} compressed ones, found more")
        return content

    def json(self) -> Any:
        """Read one JSON value, of at most 4,194,304 values, or one for 8 bytes on the disk."""
        content = self.read()
        check_values(content, max(MAX_VALUES, self.path.stat().st_size // 8), self.label)
        return json.loads(content.decode("utf-8-sig"))

    def records(self) -> Iterator[Record]:
        """Read the objects of a JSON list, or of JSONL."""
        with self.open() as stream:
            first = next((byte for byte in iter(partial(stream.read, 1), b"") if not byte.isspace()), b"")
        if first != b"[":
            for line in self.lines():
                check_values(line.encode(), MAX_VALUES, self.files.place)
                yield json.loads(line)
            return
        for number, record in enumerate(self.json()):
            self.files.place = f"{self.label}, entry {number}"
            yield record

    def entries(self) -> Iterator[tuple[str, Record]]:
        """Read the entries of a JSON object."""
        for key, record in self.json().items():
            self.files.place = f"{self.label}, entry {key!r}"
            yield key, record

    def lines(self) -> Iterator[str]:
        """Read lines of UTF-8; blank ones are left out."""
        with self.open() as stream:
            for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
                self.files.place = f"{self.label}, line {number}"
                if len(raw) > MAX_LINE_BYTES:
                    raise ValueError(f"needed at most {MAX_LINE_BYTES:,} bytes")
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip(" "):
                    yield line

    def rows(self, *, delimiter: str = ",") -> Iterator[dict[str, str]]:
        """Read a table with a header."""
        reader = csv.DictReader(io.StringIO(self.read().decode("utf-8-sig"), newline=""), delimiter=delimiter)
        for row in reader:
            self.files.place = f"{self.label}, line {reader.line_num}"
            yield row


class RawFiles:
    """All files of some locations.

    Locations are files, folders and archives (``.zip``, ``.tar``, ``.tar.gz``), as paths or as URLs (``https://``, or
    ``hf://datasets/<owner>/<name>@<revision>/<file>``), each perhaps with its checksum behind:
    ``https://host/spider.zip#sha256=...``. The folder ``downloads`` keeps downloaded files. A location that cannot be
    read, or has another checksum, is a ``UserError``.
    """

    def __init__(self, locations: Sequence[str], *, downloads: Path, downloader: Downloader = download) -> None:
        self.place = ""  # file, and line or entry, that was read last
        self.used: dict[str, tuple[int, str]] = {}  # size and SHA-256 of what was read, by name
        self._files: list[RawFile] = []
        for location in locations:
            self._files += self._open_location(location, downloads, downloader)

    @contextmanager
    def parsing(self, form: str) -> Iterator[None]:
        """Turn errors of a block that reads the files into a ``UserError`` with the place and the form."""
        try:
            yield
        except UserError:
            raise
        except _DAMAGED as error:
            raise UserError(f"{self.place}: damaged, cut off or encrypted ({error!r})") from error
        except _OF_ANOTHER_FORM as error:
            reason = error if isinstance(error, ValueError) else repr(error)
            raise UserError(f"{self.place}: not in the format of {form}: {reason}") from error

    def matching(self, *patterns: str, required: bool = False) -> list[RawFile]:
        """List the files whose path ends as one of the patterns (``*`` matches anything but a slash), in order."""
        names = [(PurePosixPath(file.name.removesuffix(".gz")), file) for file in self._files]
        found = [file for name, file in names if any(map(name.match, patterns))]
        if required and not found:
            self._refuse(patterns, found)
        return found

    def one(self, *patterns: str) -> RawFile:
        """Return the only such file; a ValueError if there is none, or several."""
        found = self.matching(*patterns)
        if len(found) != 1:
            self._refuse(patterns, found)
        return found[0]

    def sources(self) -> list[dict[str, Any]]:
        """List name, size in bytes and SHA-256 of the files and archives that were read."""
        return [{"name": name, "bytes": size, "sha256": sha} for name, (size, sha) in sorted(self.used.items())]

    def _refuse(self, patterns: Sequence[str], found: Sequence[RawFile]) -> NoReturn:
        there = [file.label for file in found or self._files][:10]
        counted = f"{len(found)} {'of them' if found else 'among'} {there}"
        raise UserError(f"`from` must hold exactly one file {' or '.join(patterns)}, found {counted}")

    def _open_location(self, location: str, downloads: Path, downloader: Downloader) -> list[RawFile]:
        plain, checksum = split_checksum(location)
        shown, is_url = without_passwords(plain), "://" in plain
        path = _downloaded(plain, shown, downloads, downloader, checksum) if is_url else Path(plain)
        if path.is_dir() and checksum is None:
            paths = sorted(file for file in path.rglob("*") if file.is_file())
            opened = (self._open_file(file, file.relative_to(path).as_posix(), str(file)) for file in paths)
            return [*chain.from_iterable(opened)]
        if not path.is_file():
            raise UserError(f"{shown}: no such file or folder")
        if checksum is not None and not is_url:
            check_download(path, checksum, shown)
        return self._open_file(path, path.name, shown)

    def _open_file(self, path: Path, name: str, shown: str) -> list[RawFile]:
        if not path.name.lower().endswith(ARCHIVES):
            return [RawFile(self, name, shown_name(shown), path, partial(path.open, "rb"))]
        self.place = shown_name(shown)
        with self.parsing("an archive"), _archive(path) as (members, _):
            names = {member.removeprefix("./"): member for member in members if _is_content(member, shown)}
        return [
            RawFile(self, plain, f"{shown}: {shown_name(plain)}", path, partial(_member, path, member))
            for plain, member in sorted(names.items(), key=lambda entry: entry[1])
        ]


def split_checksum(location: str) -> tuple[str, str | None]:
    """Split a location from the checksum behind it.

    Example:
        >>> split_checksum("data/dev.zip#md5=0cc175b9")
        ('data/dev.zip', 'md5:0cc175b9')
    """
    parts = _CHECKSUM.fullmatch(location)
    return (parts[1], f"{parts[2]}:{parts[3].lower()}") if parts else (location, None)


def _downloaded(location: str, shown: str, downloads: Path, downloader: Downloader, checksum: str | None) -> Path:
    if not location.startswith(("https://", "http://", HUB)):
        raise UserError(f"{shown}: needed a path, or a URL that begins with https:// or {HUB}")
    name = re.sub(r"[^\w.-]", "_", location.split("?")[0].rstrip("/").rsplit("/", 1)[1]).lstrip(".") or "file"
    target = downloads / hashlib.sha256(location.encode()).hexdigest()[:16] / name
    try:
        if not target.is_file():
            print(f"downloading {shown}", flush=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            downloader(location, target)
        if checksum is not None:
            check_download(target, checksum, shown)
    except (OSError, ValueError) as error:
        shutil.rmtree(target.parent)
        raise UserError(f"{shown}: could not be downloaded: {without_passwords(str(error))}") from error
    return target


def _is_content(name: str, shown: str) -> bool:
    """Return whether a member of an archive is more than macOS's metadata; an error if its name leads outside."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in parts:
        raise UserError(f"{shown}: needed an archive of relative paths, found {name[:200]!r}, which leads outside")
    return "__MACOSX" not in parts and not parts[-1].startswith("._")


@contextmanager
def _archive(path: Path) -> Iterator[tuple[Mapping[str, Any], Callable[[Any], Any]]]:
    """Open an archive: its files by name, and the function that opens one."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            yield {member.filename: member for member in archive.infolist() if not member.is_dir()}, archive.open
    else:
        with tarfile.open(path) as tar:
            yield {member.name: member for member in tar if member.isfile()}, tar.extractfile


@contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    with _archive(path) as (members, opener), opener(members[name]) as stream:
        yield stream
