"""Public data sets by name, read from their folder or fetched from their public home.

Two homes offer files that convert without judgement calls: BEIR's archives, which are data set folders, and the
benchmark files of HippoRAG 2 (title, text and supporting passages). BEIR publishes the checksums of its archives; those
of HippoRAG 2 are of the hub's files at the pinned revision. For the others, ``graphrerank build`` makes the folder from
files that users fetch themselves. ``conf/data/shared/public.yaml`` lists all of them.
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
    """Origin of a named data set."""

    page: str  # its web page
    files: Mapping[str, str] = field(default_factory=dict)  # locations to checksums; empty if users have to fetch them
    build: str | None = None  # the builder that turns them into a data set folder; None if there are none


HOMES: Mapping[str, Home] = {
    name: Home(**entry["home"]) for name, entry in listed_choices("data").items() if "home" in entry
}


def load_named(
    source: str, *, datasets: str | Path, name: str | None = None, downloader: Downloader = download, **options: Any
) -> Dataset:
    """Read a public data set, one of :data:`HOMES`, from ``<datasets>/<source>``; if it is missing, fetch it first.

    The short name is ``source`` when None; ``options`` are those of
    :meth:`~graphrerank.data.dataset.Dataset.from_folder`. A ValueError if the folder is missing and cannot be fetched.
    """
    if source not in HOMES:
        raise UserError(f"`source` must be one of {sorted(HOMES)}, got {source!r}; data=folder reads any folder")
    folder = Path(datasets) / source
    if not folder.is_dir():
        _fetch_folder(source, folder, downloader)
    return Dataset.from_folder(folder, name=name or source, **options)


def _fetch_folder(source: str, folder: Path, downloader: Downloader) -> None:
    home = HOMES[source]
    remedy = (
        f"put {NEEDED_FILES} into {folder}, or set paths.datasets to the folder that holds {source}/; see {home.page}"
    )
    if home.build is None:
        raise UserError(f"data set {source!r} is not in {folder} and has no home to fetch it from: {remedy}")
    locations = ", ".join(home.files)
    LOGGER.info("fetching %s from %s", source, locations)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder.parent, source) as temporary:
            built = temporary / source
            fetched = [str(fetch(*file, temporary, downloader=downloader)) for file in home.files.items()]
            find_builder(home.build)(fetched, built, downloads=temporary)
            built.rename(folder)
    except (OSError, ValueError) as error:
        if folder.is_dir():  # another process was faster
            return
        raise UserError(
            f"data set {source!r} is not in {folder} and could not be fetched from {locations}: {error}; {remedy}"
        ) from error
