"""Find the URL at which a folder of documents is published, from the configuration of its site generator."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import join
from typing import NamedTuple

from graphrerank_documents.redirects import DAMAGED_CONFIG, MAX_REDIRECTS, READERS, Redirect, redirects_of

#: Configuration files of site generators, and the settings from which the URL of the site is built.
CONFIGS = {
    "_config.yml": ("url", "baseurl"),
    "mkdocs.yml": ("site_url",),
    "hugo.toml": ("baseurl",),
    "hugo.yaml": ("baseurl",),
    "config.toml": ("baseurl", "base_url"),
    "docusaurus.config.js": ("url", "baseurl"),
    "docusaurus.config.ts": ("url", "baseurl"),
    "book.toml": ("site-url",),
    "conf.py": ("html_baseurl",),
}
#: Names of all configuration files to read: those with the URL of a site, and those with redirects.
CONFIG_NAMES = (*CONFIGS, *(name for name in READERS if name not in CONFIGS))
#: Configuration files of tools whose links contain the file name of a page without its folder.
VAULT = ".obsidian"
NAMING = ("writerside.cfg", VAULT)
_SETTING = re.compile(r"""^[ \t]*["']?([\w-]+)["']?[ \t]*[:=][ \t]*["']?((?:https?:/)?/[^"'\s,#]*)""", re.MULTILINE)
#: Maximum number of bytes to read from a configuration file.
MAX_CONFIG = 1_000_000
_MAX_FOLDERS, _MAX_DEPTH = 1000, 3  # limits of the search for configuration files: number and depth of folders


@dataclass(frozen=True)
class Site:
    """Location of the documents on their site, from settings such as ``baseurl``, ``site_url`` and ``baseURL``.

    Attributes:
        bases: URLs or paths that correspond to the folder, such as ``https://docs.example.org/en/``.
        roots: Folders that contain a configuration, such as ``docs``. Empty for the folder of documents itself.
        by_name: Whether links contain the file name of a page without its folder.
        is_vault: Whether the folder is a vault of Obsidian, in which the name of a note's file is its title.
        redirects: Redirects of pages that moved.
        damaged: Paths of damaged configurations, by what is wrong with them.
    """

    bases: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    by_name: bool = False
    is_vault: bool = False
    redirects: tuple[Redirect, ...] = ()
    damaged: Mapping[str, Sequence[str]] = field(default_factory=dict)


class SiteConfig(NamedTuple):
    """Configuration file of a site generator.

    Attributes:
        folder: Path of the folder that contains the file, relative to the folder of documents, such as ``docs``. Empty
            for the folder of documents itself, and None for a folder outside it.
        name: File name, one of :data:`CONFIG_NAMES`.
        content: First :data:`MAX_CONFIG` bytes of the file.
        failure: Reason why the file could not be opened, or empty.
    """

    folder: str | None
    name: str
    content: bytes
    failure: str = ""


def find_site(source: Path) -> Site:
    """Return the site of a folder, from configurations in the folder, its subfolders and the two folders above it.

    Configuration files are parsed as text and never executed.

    Args:
        source: Folder of documents.

    Returns:
        Location of the documents on their site.
    """
    source = source.absolute()
    configs: list[SiteConfig] = []
    folders = [folder for folder in (*_near_folders(source), *source.parents[:2]) if os.access(folder, os.X_OK)]
    for folder in folders:
        within = folder.relative_to(source).as_posix() if folder.is_relative_to(source) else None
        for path in (folder / name for name in CONFIG_NAMES):
            if path.is_file() and not path.is_symlink():
                configs.append(SiteConfig("" if within == "." else within, path.name, *_start_of(path)))
    naming = {name for folder in folders for name in NAMING if (folder / name).exists()}
    return site_of(configs, source.name, naming=naming)


def site_of(configs: Sequence[SiteConfig], name: str = "", *, naming: Collection[str] = ()) -> Site:
    """Return the site described by configuration files.

    Args:
        configs: Configuration files, in order of precedence.
        name: Name of the folder of documents, which may be the first component of a link's path. Empty if the folder
            has no name.
        naming: Those of :data:`NAMING` that are in the folder.

    Returns:
        Location of the documents on their site.
    """
    bases = dict.fromkeys(base for config in configs for base in _bases(config))
    roots = dict.fromkeys(config.folder for config in configs if config.folder is not None and config.name in CONFIGS)
    damaged: dict[str, list[str]] = {}
    redirects: list[Redirect] = []
    for config in configs:
        if config.folder is not None and config.name in READERS:
            size = f"larger than {MAX_CONFIG // 1_000_000} MB" if len(config.content) >= MAX_CONFIG else ""
            failure = config.failure or size  # then the end of the file is missing
            redirects += redirects_of(config.name, config.content, config.folder, {} if failure else damaged)
            if failure:
                damaged.setdefault(f"{DAMAGED_CONFIG}: {failure}", []).append(join(config.folder, config.name))
    return Site(
        (*bases, *[f"/{name}/"] * bool(name)),
        tuple(roots),
        bool(naming),
        VAULT in naming,
        tuple(redirects[:MAX_REDIRECTS]),
        damaged,
    )


def is_near(folder: PurePosixPath) -> bool:
    """Return whether a folder is searched for configuration files.

    Args:
        folder: Path relative to the folder of documents.
    """
    return len(folder.parts) <= _MAX_DEPTH and not any(map(_is_skipped, folder.parts))


def _is_skipped(name: str) -> bool:
    return name == "node_modules" or name.startswith(".")


def _near_folders(source: Path) -> Iterator[Path]:
    for count, (folder, names, _) in enumerate(os.walk(source), 1):
        yield Path(folder)
        goes_on = count < _MAX_FOLDERS and len(Path(folder).relative_to(source).parts) < _MAX_DEPTH
        names[:] = sorted(name for name in names if goes_on and not _is_skipped(name))


def _start_of(path: Path) -> tuple[bytes, str]:
    """Return the first bytes of a file, and the reason why it could not be opened."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG), ""
    except OSError as error:
        return b"", error.strerror or "cannot be opened"


def _bases(config: SiteConfig) -> list[str]:
    settings: dict[str, str] = {}
    for name, value in _SETTING.findall(config.content.decode("utf-8", "replace")):
        settings.setdefault(name.lower(), value)
    address = ""
    for value in (settings.get(name, "") for name in CONFIGS.get(config.name, ())):
        address = value if "://" in value else f"{address.rstrip('/')}/{value.strip('/')}" if value else address
    return [f"{address.rstrip('/')}/"] if address.strip("/") else []
