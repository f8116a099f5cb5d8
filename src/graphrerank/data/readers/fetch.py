"""Downloads with checksums: a file is the expected one, or it is not there."""

import hashlib
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Downloader = Callable[[str, Path], None]
HUB = "hf://datasets/"  # hf://datasets/<owner>/<name>@<revision>/<file>
TIMEOUT_SECONDS = 60


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
    """Download one file; an OSError if the location cannot be reached."""
    if location.startswith(HUB):
        _download_from_hub(location, target)
        return
    request = urllib.request.Request(location, headers={"User-Agent": "graphrerank"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, target.open("wb") as stream:
        shutil.copyfileobj(response, stream, 1 << 20)


def fetch(file: RemoteFile, folder: Path, *, downloader: Downloader = download) -> Path:
    """Download a file into a folder and check it; a file with another checksum is deleted, and a ValueError."""
    target = folder / file.name
    downloader(file.location, target)
    algorithm, expected = file.checksum.split(":")
    with target.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if digest != expected:
        target.unlink()
        raise ValueError(f"{file.location}: needed a file with {algorithm} {expected}, found {digest}")
    return target


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
