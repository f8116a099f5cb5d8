"""Downloads with checksums: a file is the expected one, or it is not there."""

import hashlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path

__getattr__ = moved_names(__name__)

Downloader = Callable[[str, Path], None]
HUB = "hf://datasets/"  # hf://datasets/<owner>/<name>@<revision>/<file>
TIMEOUT_SECONDS = 60
MAX_TRIES = 5
PAUSE_SECONDS = 1.0  # after the first try; doubled each time


def download(location: str, target: Path) -> None:
    """Download one file, in up to five tries; an OSError if there is none, or it comes shorter than announced."""
    if location.startswith(HUB):
        _download_from_hub(location, target)
        return
    request = urllib.request.Request(location, headers={"User-Agent": "graphrerank"})
    for attempt in range(MAX_TRIES):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, atomic_path(target) as part:
                with part.open("wb") as stream:
                    shutil.copyfileobj(response, stream)
                length, found = response.headers.get("Content-Length"), part.stat().st_size
                if length is not None and found != int(length):
                    needed = f"needed {int(length):,} bytes, as the server announced"
                    raise OSError(f"{needed}, found {found:,}: the file is cut off")
            return
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == MAX_TRIES - 1:
                raise error if isinstance(error, OSError) else OSError(repr(error)) from error
            time.sleep(PAUSE_SECONDS * 2**attempt)


def fetch(location: str, checksum: str, folder: Path, *, downloader: Downloader = download) -> Path:
    """Download a file into a folder and check it; a file with another checksum is deleted, and a ValueError."""
    target = folder / location.rsplit("/", 1)[1]
    downloader(location, target)
    try:
        check_download(target, checksum, location)
    except ValueError:
        target.unlink()
        raise
    return target


def check_download(path: Path, checksum: str, label: str) -> None:
    """Compare a file with ``<algorithm>:<hexadecimal digest>``; a ValueError that names ``label`` if it differs."""
    algorithm, expected = checksum.split(":")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if digest != expected:
        raise UserError(f"{label}: needed a file with {algorithm} {expected}, found {digest}")


def _download_from_hub(location: str, target: Path) -> None:
    from huggingface_hub import hf_hub_download  # heavy: only when something must be fetched

    owner, repository, filename = location.removeprefix(HUB).split("/", 2)
    name, _, revision = repository.partition("@")
    place: dict[str, Any] = {"repo_type": "dataset", "revision": revision or None, "local_dir": target.parent}
    try:
        file = hf_hub_download(f"{owner}/{name}", filename, **place)
    except Exception as error:  # the hub's HTTP client, and with it the errors, changes between its versions
        raise OSError(f"{type(error).__name__}: {error}") from error
    Path(file).replace(target)
