"""Downloads with checksums: a file is the expected one, or it is not there.

A download that was cut is continued where it stopped, if the server says that the file is still the same (its ``ETag``
or date of change, with ``If-Range``); else it starts over.
"""

import hashlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.files import write_text

Downloader = Callable[[str, Path], None]
HUB = "hf://datasets/"  # hf://datasets/<owner>/<name>@<revision>/<file>
TIMEOUT_SECONDS = 60
MAX_TRIES = 5  # in a row that bring no byte
PAUSE_SECONDS = 1.0  # after a try that brought none; doubled each time
_BLOCK = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web."""

    location: str  # `https://...`, or `hf://datasets/<owner>/<name>@<revision>/<file>` on the Hugging Face hub
    checksum: str  # `<algorithm>:<hexadecimal digest>`, pinned by its publisher or by us

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.location.rsplit("/", 1)[1]


def download(location: str, target: Path) -> None:
    """Download one file; a part that an earlier call left in ``<target>.part`` is continued.

    A part stays only where the connection failed. What the server itself ends before its announced length is deleted.

    Raises:
        OSError: If the location cannot be reached, or the file comes shorter than announced.
    """
    if location.startswith(HUB):
        _download_from_hub(location, target)
        return
    part = _Part(target)
    problem: OSError | None = None
    tries = 0
    while tries < MAX_TRIES:
        before = part.size
        try:
            if _continue(location, part):
                part.path.replace(target)
                part.note.unlink(missing_ok=True)
                return
            problem = None
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 416:
                part.delete()
                raise
            problem = error
            if error.code == 416:  # the file is shorter than the part
                part.delete()
        except (OSError, http.client.HTTPException) as error:
            problem = error if isinstance(error, OSError) else OSError(repr(error))
        tries = 0 if part.size > before else tries + 1
        if tries and tries < MAX_TRIES:
            time.sleep(PAUSE_SECONDS * 2 ** (tries - 1))
    if problem is None:
        size, total = part.size, part.noted().get("total")
        part.delete()
        raise OSError(f"needed {total:,} bytes, as the server announced, found {size:,}: the file is cut off")
    raise problem


def fetch(file: RemoteFile, folder: Path, *, downloader: Downloader = download) -> Path:
    """Download a file into a folder and check it; a file with another checksum is deleted, and a ValueError."""
    target = folder / file.name
    downloader(file.location, target)
    try:
        check_file(target, file.checksum, file.location)
    except ValueError:
        target.unlink()
        raise
    return target


def check_file(path: Path, checksum: str, label: str) -> None:
    """Compare a file with ``<algorithm>:<hexadecimal digest>``; a ValueError that names ``label`` if it differs."""
    algorithm, expected = checksum.split(":")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if digest != expected:
        raise ValueError(f"{label}: needed a file with {algorithm} {expected}, found {digest}")


class _Part:
    """The first bytes of a file, and a note of which version of it they belong to."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self.note = target.with_name(f"{target.name}.part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def noted(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _continue(location: str, part: _Part) -> bool:
    """Ask for what is missing, and append it; return whether the file is whole."""
    headers = {"User-Agent": "graphrerank", "Accept-Encoding": "identity"}
    version, size = part.noted().get("version"), part.size
    if size and version:
        headers |= {"Range": f"bytes={size}-", "If-Range": version}
    request = urllib.request.Request(location, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        continued = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {size}-")
        length = response.headers.get("Content-Length")
        total = None if length is None else int(length) + (size if continued else 0)
        if not continued:
            write_text(part.note, json.dumps({"version": _version(response.headers), "total": total}))
            part.path.unlink(missing_ok=True)
        with part.path.open("ab") as stream:
            while block := response.read(_BLOCK):
                stream.write(block)
    return total is None or part.size == total


def _version(headers: Mapping[str, str]) -> str | None:
    """Return what ``If-Range`` may ask about: a strong ``ETag``, or else the date of the last change."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _download_from_hub(location: str, target: Path) -> None:
    from huggingface_hub import hf_hub_download  # heavy: only when something must be fetched

    owner, repository, filename = location.removeprefix(HUB).split("/", 2)
    name, _, revision = repository.partition("@")
    try:
        downloaded = hf_hub_download(
            f"{owner}/{name}", filename, repo_type="dataset", revision=revision or None, local_dir=target.parent
        )
    except Exception as error:  # the hub's HTTP client, and with it the errors, changes between its versions
        raise OSError(f"{type(error).__name__}: {error}") from error
    Path(downloaded).replace(target)
