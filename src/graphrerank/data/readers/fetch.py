"""Downloads that are verified by checksums."""

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
HUB = "hf://datasets/"  # Prefix of locations such as hf://datasets/<owner>/<name>@<revision>/<file>.
TIMEOUT_SECONDS = 60
MAX_TRIES = 5
PAUSE_SECONDS = 1.0  # Pause after the first attempt, doubled after each further one.


def download(location: str, target: Path) -> None:
    """Download a file, with up to five attempts.

    Args:
        location: URL, or ``hf://datasets/<owner>/<name>@<revision>/<file>``.
        target: Path of the downloaded file.

    Raises:
        OSError: If all attempts fail, or if the file is shorter than announced.
    """
    if location.startswith(HUB):
        _download_from_hub(location, target)
        return
    request = urllib.request.Request(location, headers={"User-Agent": "graphrerank"})
    for attempt in range(MAX_TRIES):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, atomic_path(target) as temporary:
                with temporary.open("wb") as stream:
                    shutil.copyfileobj(response, stream)
                length, size = response.headers.get("Content-Length"), temporary.stat().st_size
                if length is not None and size != int(length):
                    raise OSError(
                        f"expected {int(length):,} bytes, as the server announced, got {size:,}; the file is truncated"
                    )
            return
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == MAX_TRIES - 1:
                raise error if isinstance(error, OSError) else OSError(repr(error)) from error
            time.sleep(PAUSE_SECONDS * 2**attempt)


def fetch(location: str, checksum: str, folder: Path, *, downloader: Downloader = download) -> Path:
    """Download a file into a folder and verify its checksum.

    Args:
        location: URL or hub location of the file (:func:`download`).
        checksum: ``<algorithm>:<hexadecimal digest>``.
        folder: Target folder.
        downloader: Function that downloads a location to a path.

    Returns:
        Path of the file.

    Raises:
        OSError: If the download fails.
        ValueError: If the checksum differs. The file is deleted.
    """
    target = folder / location.rsplit("/", 1)[1]
    downloader(location, target)
    try:
        check_download(target, checksum, location)
    except ValueError:
        target.unlink()
        raise
    return target


def check_download(path: Path, checksum: str, label: str) -> None:
    """Verify the checksum of a file.

    Args:
        path: Downloaded file.
        checksum: ``<algorithm>:<hexadecimal digest>``.
        label: Name of the file in error messages.

    Raises:
        ValueError: If the checksum differs.
    """
    algorithm, expected = checksum.split(":")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if digest != expected:
        raise UserError(f"{label}: expected a file with {algorithm} {expected}, got {digest}")


def _download_from_hub(location: str, target: Path) -> None:
    from huggingface_hub import hf_hub_download  # A slow import, needed only to download.

    owner, repository, filename = location.removeprefix(HUB).split("/", 2)
    name, _, revision = repository.partition("@")
    options: dict[str, Any] = {"repo_type": "dataset", "revision": revision or None, "local_dir": target.parent}
    try:
        file = hf_hub_download(f"{owner}/{name}", filename, **options)
    except Exception as error:  # The error classes depend on the version of the hub's HTTP client.
        raise OSError(f"{type(error).__name__}: {error}") from error
    Path(file).replace(target)
