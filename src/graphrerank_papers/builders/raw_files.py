"""Read the files of a data set as its authors publish them: plain, gzipped, or in archives.

Archives are never unpacked to disk, no path is derived from a member's name, and archives with a member whose name
points outside the archive are rejected.
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

# A file may expand to the larger of 256 MiB and 32 times its size on disk. Without a limit, 3 MB of gzip may expand to
# 3 GB.
MAX_EXPANDED, EXPANSION = 1 << 28, 32
MAX_VALUES = 1 << 22
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_CHECKSUM = re.compile(r"(.+)#(md5|sha1|sha256|sha512)=([0-9a-fA-F]+)")
_DAMAGED = (EOFError, RuntimeError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError)
_OF_ANOTHER_FORM = (AttributeError, LookupError, TypeError, ValueError, csv.Error)


@dataclass(frozen=True)
class RawFile:
    """One file of a data set, plain, gzipped or in an archive.

    While a file is read, the methods update :attr:`RawFiles.place`, which error messages name.

    Attributes:
        files: Collection that the file belongs to.
        name: Path of the file within its location.
        label: Name of the file in messages.
        path: Path on disk of the file, or of the archive that contains it.
        opener: Function that opens the raw content as a context manager.
    """

    files: "RawFiles" = field(repr=False)
    name: str
    label: str
    path: Path
    opener: Callable[[], Any]

    @property
    def stem(self) -> str:
        """Name of the file without folders and suffixes."""
        return PurePosixPath(self.name.removesuffix(".gz")).stem

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the content, decompressed if the name ends with ``.gz``.

        Yields:
            Binary stream.
        """
        self.files.place = self.label
        if self.path.name not in self.files.used:
            self.files.used[self.path.name] = (self.path.stat().st_size, hash_files([self.path]))
        with self.opener() as raw, gzip.open(raw) if self.name.endswith(".gz") else nullcontext(raw) as stream:
            yield stream

    def read(self) -> bytes:
        """Read all bytes.

        Returns:
            Decompressed content.

        Raises:
            ValueError: If the content exceeds both 256 MiB and 32 times its size on disk.
        """
        size = self.path.stat().st_size
        most = max(MAX_EXPANDED, EXPANSION * size)
        with self.open() as stream:
            content: bytes = stream.read(most + 1)
        if len(content) > most:
            raise ValueError(f"{size:,} compressed bytes must expand to at most {most:,} bytes, got more")
        return content

    def json(self) -> Any:
        """Read the file as one JSON document.

        Returns:
            Parsed document.

        Raises:
            ValueError: If the document contains more than 4,194,304 values and more than one value per 8 bytes on disk,
                or is not JSON.
        """
        content = self.read()
        check_values(content, max(MAX_VALUES, self.path.stat().st_size // 8), self.label)
        return json.loads(content.decode("utf-8-sig"))

    def records(self) -> Iterator[Record]:
        """Read the objects of a JSON list or of a JSONL file.

        Yields:
            Objects in order.

        Raises:
            ValueError: If the file is too large or not JSON.
        """
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
        """Read the entries of a JSON object.

        Yields:
            Key and value of each entry.

        Raises:
            ValueError: If the file is too large or not JSON.
        """
        for key, record in self.json().items():
            self.files.place = f"{self.label}, entry {key!r}"
            yield key, record

    def lines(self) -> Iterator[str]:
        """Read the lines of a UTF-8 text file. Blank lines are skipped.

        Yields:
            Lines without line breaks.

        Raises:
            ValueError: If a line is too long.
        """
        with self.open() as stream:
            for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
                self.files.place = f"{self.label}, line {number}"
                if len(raw) > MAX_LINE_BYTES:
                    raise ValueError(f"a line must have at most {MAX_LINE_BYTES:,} bytes, got more")
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip(" "):
                    yield line

    def rows(self, *, delimiter: str = ",") -> Iterator[dict[str, str]]:
        """Read a table with a header line.

        Args:
            delimiter: Character between two columns.

        Yields:
            Cells of each row, keyed by column name.

        Raises:
            ValueError: If the file is too large.
        """
        reader = csv.DictReader(io.StringIO(self.read().decode("utf-8-sig"), newline=""), delimiter=delimiter)
        for row in reader:
            self.files.place = f"{self.label}, line {reader.line_num}"
            yield row


class RawFiles:
    """Collection of all files at the given locations.

    A location is a file, a folder or an archive (``.zip``, ``.tar``, ``.tar.gz``, ``.tgz``). It is a path or a URL
    (``https://...``, or ``hf://datasets/<owner>/<name>@<revision>/<file>``), optionally followed by a checksum:
    ``https://host/spider.zip#sha256=...``.

    Attributes:
        place: File, and line or entry, that was read last.
        used: Size in bytes and SHA-256 of each file or archive that was read, by name.
    """

    def __init__(self, locations: Sequence[str], *, downloads: Path, downloader: Downloader = download) -> None:
        """List the files at the locations, after downloading those at URLs.

        Args:
            locations: Paths and URLs.
            downloads: Folder in which downloaded files are stored and found again.
            downloader: Function that downloads a URL to a path.

        Raises:
            UserError: If a location cannot be read, or its checksum differs.
        """
        self.place = ""
        self.used: dict[str, tuple[int, str]] = {}
        self._files: list[RawFile] = []
        for location in locations:
            self._files += self._open_location(location, downloads, downloader)

    @contextmanager
    def parsing(self, form: str) -> Iterator[None]:
        """Convert the errors of a block that reads the files into a ``UserError`` that names the place.

        Args:
            form: Name of the expected format, for messages.

        Yields:
            Nothing.

        Raises:
            UserError: If the block raises an error that means a damaged file or an unexpected format.
        """
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
        """List the files whose path ends with one of the patterns.

        Args:
            *patterns: Patterns of the last parts of a path, with or without folders. ``*`` matches any characters
                except a slash, and a suffix ``.gz`` of the file is ignored.
            required: Whether at least one file must match.

        Returns:
            Matching files in the order of the locations.

        Raises:
            UserError: If ``required`` and no file matches.
        """
        names = [(PurePosixPath(file.name.removesuffix(".gz")), file) for file in self._files]
        found = [file for name, file in names if any(map(name.match, patterns))]
        if required and not found:
            self._refuse(patterns, found)
        return found

    def one(self, *patterns: str) -> RawFile:
        """Return the only file that matches one of the patterns.

        Args:
            *patterns: Patterns as in :meth:`matching`.

        Raises:
            UserError: If no file or several files match.
        """
        found = self.matching(*patterns)
        if len(found) != 1:
            self._refuse(patterns, found)
        return found[0]

    def sources(self) -> list[dict[str, Any]]:
        """Return the name, the size in bytes and the SHA-256 of each file or archive that was read, sorted by name."""
        return [{"name": name, "bytes": size, "sha256": sha} for name, (size, sha) in sorted(self.used.items())]

    def _refuse(self, patterns: Sequence[str], found: Sequence[RawFile]) -> NoReturn:
        labels = [file.label for file in found or self._files][:10]
        matches = f"{len(found)} matches: {labels}" if found else f"no match among {labels}"
        raise UserError(f"`from` must contain exactly one file {' or '.join(patterns)}, got {matches}")

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
    """Split a location into the path or URL and the checksum that follows it.

    Args:
        location: Path or URL, optionally followed by ``#<algorithm>=<hexadecimal digest>``.

    Returns:
        Path or URL, and the checksum as ``<algorithm>:<digest>`` or None.

    Example:
        >>> split_checksum("data/dev.zip#md5=0cc175b9")
        ('data/dev.zip', 'md5:0cc175b9')
    """
    parts = _CHECKSUM.fullmatch(location)
    return (parts[1], f"{parts[2]}:{parts[3].lower()}") if parts else (location, None)


def _downloaded(location: str, shown: str, downloads: Path, downloader: Downloader, checksum: str | None) -> Path:
    if not location.startswith(("https://", "http://", HUB)):
        raise UserError(f"a location must be a path, or a URL that begins with https:// or {HUB}, got {shown}")
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
        raise UserError(f"{shown} could not be downloaded: {without_passwords(str(error))}") from error
    return target


def _is_content(name: str, shown: str) -> bool:
    """Return whether an archive member is more than macOS metadata. Raise if its name points outside the archive."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in parts:
        raise UserError(f"{shown}: paths in an archive must be relative and stay inside it, got {name[:200]!r}")
    return "__MACOSX" not in parts and not parts[-1].startswith("._")


@contextmanager
def _archive(path: Path) -> Iterator[tuple[Mapping[str, Any], Callable[[Any], Any]]]:
    """Open an archive and yield its members by name, and the function that opens a member."""
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
