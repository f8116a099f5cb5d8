"""Files of a data set as its authors publish them: plain, gzipped, or in archives, which are never unpacked.

Names inside an archive are untrusted: no path is made from them, and an archive with a name that leads outside is
refused.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from graphrerank.data.readers.fetch import HUB, Downloader, check_file, download
from graphrerank.data.readers.records import MAX_LINE_BYTES, Record, bad_line
from graphrerank.files import hash_files
from graphrerank.passwords import without_passwords

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_CHECKSUM = re.compile(r"(.+)#(md5|sha1|sha256|sha512)=([0-9a-fA-F]+)")
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError)


class RawFile:
    """One file: ``name`` is its path within the given location, ``label`` names it in messages."""

    def __init__(self, name: str, label: str, opener: Callable[[], Any]) -> None:
        self.name, self.label = name, label
        self._opener = opener

    @property
    def stem(self) -> str:
        """The file's name without folders and suffixes."""
        return PurePosixPath(self.name.removesuffix(".gz")).stem

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the content, decompressed if its name ends with ``.gz``; damage is a ValueError with the label."""
        try:
            with self._opener() as raw:
                if self.name.endswith(".gz"):
                    with gzip.open(raw) as stream:
                        yield stream
                else:
                    yield raw
        except _DAMAGED as error:
            raise ValueError(f"{self.label}: damaged or cut off ({error!r})") from error
        except RuntimeError as error:  # an encrypted member
            raise ValueError(f"{self.label}: cannot be read ({error})") from error

    def read(self) -> bytes:
        """Read all bytes."""
        with self.open() as stream:
            content: bytes = stream.read()
        return content

    def text(self) -> str:
        """Read UTF-8 text."""
        try:
            return self.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.label}: needed UTF-8, found {error.object[error.start : error.end]!r}") from error

    def json(self) -> Any:
        """Read one JSON value."""
        try:
            return json.loads(self.text())
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{self.label}: not valid JSON: {error}") from error

    def records(self, *keys: str) -> Iterator[tuple[str, Record]]:
        """Read objects that have these keys, of a JSON list or of JSONL, each with its place for messages."""
        with self.open() as stream:
            first = next((byte for byte in iter(partial(stream.read, 1), b"") if not byte.isspace()), b"")
        entries = enumerate(self.json()) if first == b"[" else self._json_lines()
        for number, record in entries:
            place = f"{self.label}, {'entry' if first == b'[' else 'line'} {number}"
            if not isinstance(record, dict) or (missing := [key for key in keys if key not in record]):
                shown = f"one without {missing[0]!r}" if isinstance(record, dict) else repr(record)[:100]
                raise ValueError(f"{place}: needed an object with {', '.join(keys)}, found {shown}")
            yield place, record

    def _json_lines(self) -> Iterator[tuple[int, Any]]:
        for number, line in self.lines():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise bad_line(Path(self.label), number, needed=f"JSON ({error})", found=line) from error

    def lines(self) -> Iterator[tuple[int, str]]:
        """Read lines of UTF-8 with numbers from 1; blank ones are left out."""
        number = 0
        with self.open() as stream:
            try:
                for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
                    if len(raw) > MAX_LINE_BYTES:
                        raise ValueError(f"{self.label}, line {number}: needed at most {MAX_LINE_BYTES:,} bytes")
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                    if line.strip(" "):
                        yield number, line
            except UnicodeDecodeError as error:
                raise bad_line(Path(self.label), number + 1, needed="UTF-8", found=error.object[:20]) from error

    def rows(self, *columns: str, delimiter: str = ",") -> Iterator[tuple[str, dict[str, str]]]:
        """Read a table with a header that has these columns, each row with its place for messages."""
        try:
            reader = csv.DictReader(io.StringIO(self.text(), newline=""), delimiter=delimiter)
            if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
                raise ValueError(f"{self.label}: needed the columns {columns}, found no {missing[0]!r}")
            for row in reader:
                if any(row[column] is None for column in columns):
                    raise bad_line(Path(self.label), reader.line_num, needed=f"columns {columns}", found=row)
                yield f"{self.label}, line {reader.line_num}", row
        except csv.Error as error:
            raise ValueError(f"{self.label}: not a table: {error}") from error


class RawFiles:
    """All files of some locations.

    Args:
        locations: Files, folders and archives (``.zip``, ``.tar``, ``.tar.gz``), as paths or as URLs (``https://``, or
            ``hf://datasets/<owner>/<name>@<revision>/<file>``), each perhaps with its checksum behind:
            ``https://host/spider.zip#sha256=...``.
        downloads: Folder that keeps downloaded files.
        downloader: Downloads a location to a path.

    Raises:
        ValueError: If a location does not exist or cannot be downloaded, has another checksum, or is an archive that is
            damaged or holds a name that leads outside.
    """

    def __init__(self, locations: Sequence[str], *, downloads: Path, downloader: Downloader = download) -> None:
        self._used: dict[str, tuple[int, str]] = {}
        self._files: list[RawFile] = []
        for location in locations:
            self._files += self._open_location(location, downloads, downloader)

    def matching(self, *patterns: str, required: bool = False) -> list[RawFile]:
        """List the files whose path ends as one of the patterns (``*`` matches anything but a slash), in order."""
        found = [
            file
            for file in self._files
            if any(PurePosixPath(file.name.removesuffix(".gz")).match(pattern) for pattern in patterns)
        ]
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
        return [{"name": name, "bytes": size, "sha256": sha} for name, (size, sha) in sorted(self._used.items())]

    def _refuse(self, patterns: Sequence[str], found: Sequence[RawFile]) -> NoReturn:
        there = [file.label for file in found or self._files]
        raise ValueError(
            f"`from` must hold exactly one file {' or '.join(patterns)}, found {len(found)} "
            f"{'of them' if found else 'among'} {there[:10]}"
        )

    def _open_location(self, location: str, downloads: Path, downloader: Downloader) -> list[RawFile]:
        plain, checksum = split_checksum(location)
        shown, is_url = without_passwords(plain), "://" in plain
        path = _downloaded(plain, shown, downloads, downloader, checksum) if is_url else Path(plain)
        if path.is_dir() and checksum is None:
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return [
                raw for file in files for raw in self._open_file(file, file.relative_to(path).as_posix(), str(file))
            ]
        if not path.is_file():
            raise ValueError(f"{shown}: no such file or folder")
        if checksum is not None and not is_url:
            check_file(path, checksum, shown)
        return self._open_file(path, path.name, shown)

    def _open_file(self, path: Path, name: str, shown: str) -> list[RawFile]:
        if not path.name.lower().endswith(ARCHIVES):
            return [RawFile(name, shown, partial(self._opened, path, partial(path.open, "rb")))]
        try:
            with _archive(path) as (members, _):
                names = {member.removeprefix("./"): member for member in members if _is_content(member, shown)}
        except (*_DAMAGED, OSError) as error:
            raise ValueError(f"{shown}: damaged or cut off archive ({error!r})") from error
        return [
            RawFile(plain, f"{shown}: {plain}", partial(self._opened, path, partial(_member, path, member)))
            for plain, member in sorted(names.items(), key=lambda entry: entry[1])
        ]

    def _opened(self, path: Path, opener: Callable[[], Any]) -> Any:
        if path.name not in self._used:
            self._used[path.name] = (path.stat().st_size, hash_files([path]))
        return opener()


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
        raise ValueError(f"{shown}: needed a path, or a URL that begins with https:// or {HUB}")
    name = re.sub(r"[^\w.-]", "_", location.split("?")[0].rstrip("/").rsplit("/", 1)[1]).lstrip(".") or "file"
    folder = downloads / hashlib.sha256(location.encode()).hexdigest()[:16]
    target = folder / name
    try:
        if not target.is_file():
            print(f"downloading {shown}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            downloader(location, target)
        if checksum is not None:
            check_file(target, checksum, shown)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):  # another checksum
            target.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"{shown}: could not be downloaded: {without_passwords(str(error))}") from error
    return target


def _is_content(name: str, shown: str) -> bool:
    """Return whether a member of an archive is more than macOS's metadata; a ValueError if its name leads outside."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in parts:
        raise ValueError(f"{shown}: needed an archive of relative paths, found {name[:200]!r}, which leads outside")
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
