"""Downloads with checksums: a file is the expected one, or it is not there."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """Download one file; after a lost connection it is continued, if the server still has the same version.

    Raises:
        OSError: If the location cannot be reached, or the file comes shorter than announced.
    """
    if location.startswith(HUB):
        _download_from_hub(location, target)
        return
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(b"")
    version: str | None = None
    try:
        tries = 0
        while True:
            before = part.stat().st_size
            try:
                version, total = _continue(location, part, version)
                if total in (None, part.stat().st_size):
                    part.replace(target)
                    return
                found = f"found {part.stat().st_size:,}: the file is cut off"
                problem = OSError(f"needed {total:,} bytes, as the server announced, {found}")
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise
                problem = error
            except (OSError, http.client.HTTPException) as error:
                problem = error if isinstance(error, OSError) else OSError(repr(error))
            tries = 0 if part.stat().st_size > before else tries + 1
            if tries == MAX_TRIES:
                raise problem
            time.sleep(PAUSE_SECONDS * 2 ** (tries - 1) if tries else 0)
    finally:
        part.unlink(missing_ok=True)


def _continue(location: str, part: Path, version: str | None) -> tuple[str | None, int | None]:
    """Request the missing bytes and append them; return the file's version and its length, if the server says them."""
    size = part.stat().st_size
    headers = {"User-Agent": "graphrerank", "Accept-Encoding": "identity"}
    if size and version:
        headers |= {"Range": f"bytes={size}-", "If-Range": version}
    with urllib.request.urlopen(urllib.request.Request(location, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        continued = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {size}-")
        tag, length = response.headers.get("ETag"), response.headers.get("Content-Length")
        version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
        total = None if length is None else int(length) + (size if continued else 0)
        with part.open("ab" if continued else "wb") as stream:
            while block := response.read(_BLOCK):
                stream.write(block)
    return version, total


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


def _download_from_hub(location: str, target: Path) -> None:
    from huggingface_hub import hf_hub_download  # heavy: only when something must be fetched

    owner, repository, filename = location.removeprefix(HUB).split("/", 2)
    name, _, revision = repository.partition("@")
    folder = target.parent
    try:
        file = hf_hub_download(
            f"{owner}/{name}", filename, repo_type="dataset", revision=revision or None, local_dir=folder
        )
    except Exception as error:  # the hub's HTTP client, and with it the errors, changes between its versions
        raise OSError(f"{type(error).__name__}: {error}") from error
    Path(file).replace(target)
