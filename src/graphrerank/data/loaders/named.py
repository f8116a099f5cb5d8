"""Public data sets by name, loaded from their folder or downloaded from their public source.

Two sources offer files that can be converted automatically: BEIR's archives, which are data set folders, and the
benchmark files of HippoRAG 2 (title, text and supporting passages). BEIR publishes the checksums of its archives. The
checksums of HippoRAG 2 are those of the files on the hub at the pinned revision. For the other data sets, users
download the files, and ``graphrerank build`` creates the folder. ``conf/data/shared/public.yaml`` lists all data sets.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import Dataset
from graphrerank.data.folder import NEEDED_FILES
from graphrerank.data.readers.fetch import Downloader, download, fetch
from graphrerank.installation.conf_folder import listed_choices
from graphrerank.installation.plugins import find_builder
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import temporary_folder

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Home:
    """Source of a named data set.

    Attributes:
        page: Web page of the data set.
        files: Checksums by download location. Empty if users have to download the files.
        build: Name of the builder that converts the files to a data set folder. None if there are no files.
    """

    page: str
    files: Mapping[str, str] = field(default_factory=dict)
    build: str | None = None


HOMES: Mapping[str, Home] = {
    name: Home(**entry["home"]) for name, entry in listed_choices("data").items() if "home" in entry
}


def load_named(
    source: str, *, datasets: str | Path, name: str | None = None, downloader: Downloader = download, **options: Any
) -> Dataset:
    """Load a public data set from ``<datasets>/<source>``, and download it first if it is missing.

    Args:
        source: Name of the data set, a key of :data:`HOMES`.
        datasets: Folder of the data set folders.
        name: Short name of the data set. If None, ``source``.
        downloader: Function that downloads a location to a path.
        **options: Arguments of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.

    Returns:
        The data set.

    Raises:
        UserError: If the name is unknown, or if the folder is missing and cannot be downloaded.
    """
    if source not in HOMES:
        raise UserError(f"`source` must be one of {sorted(HOMES)}, got {source!r}; use data=folder for other folders")
    folder = Path(datasets) / source
    if not folder.is_dir():
        _fetch_folder(source, folder, downloader)
    return Dataset.from_folder(folder, name=name or source, **options)


def _fetch_folder(source: str, folder: Path, downloader: Downloader) -> None:
    home = HOMES[source]
    remedy = (
        f"put {NEEDED_FILES} into {folder}, or set paths.datasets to the folder that contains {source}/; "
        f"see {home.page}"
    )
    if home.build is None:
        raise UserError(f"data set {source!r} is not in {folder} and cannot be downloaded automatically; {remedy}")
    locations = ", ".join(home.files)
    LOGGER.info("downloading %s from %s", source, locations)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder.parent, source) as temporary:
            built = temporary / source
            fetched = [str(fetch(*file, temporary, downloader=downloader)) for file in home.files.items()]
            find_builder(home.build)(fetched, built, downloads=temporary)
            built.rename(folder)
    except (OSError, ValueError) as error:
        if folder.is_dir():  # Another process has downloaded it meanwhile.
            return
        raise UserError(
            f"data set {source!r} is not in {folder} and could not be downloaded from {locations}: {error}; {remedy}"
        ) from error
