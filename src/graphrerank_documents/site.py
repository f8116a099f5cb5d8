"""Addresses of the sites that folders of documents are published at."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

CONFIGS = {  # of sites: the settings that make their address
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
NAMING = ("writerside.cfg", ".obsidian")  # of tools whose links name a page by its file alone, wherever it is
_SETTING = re.compile(r"""^[ \t]*["']?([\w-]+)["']?[ \t]*[:=][ \t]*["']?((?:https?:/)?/[^"'\s,#]*)""", re.MULTILINE)
MAX_CONFIG, _MAX_FOLDERS, _MAX_DEPTH = 1_000_000, 1000, 3  # bytes of a configuration; folders where one may be


@dataclass(frozen=True)
class Site:
    """Where the folder's pages stand on their site, as its configuration says (`baseurl`, `site_url`, `baseURL`)."""

    bases: tuple[str, ...] = ()  # addresses or paths that precede those of the folder: "https://docs.example.org/en/"
    roots: tuple[str, ...] = ()  # folders that have a configuration: "docs"; "" for the folder of documents itself
    by_name: bool = False  # whether links name pages by their files' names, without folders


class SiteConfig(NamedTuple):
    """A configuration of a site.

    Attributes:
        folder: Its folder within the folder of documents: ``docs``, empty for that folder itself, None for one outside.
        name: The name of the file, one of :data:`CONFIGS`.
        content: The first :data:`MAX_CONFIG` bytes of it.
    """

    folder: str | None
    name: str
    content: bytes


def find_site(source: Path) -> Site:
    """Return what configurations in a folder, in its subfolders or in the two folders above it say.

    They are read as text, and never run.
    """
    source = source.absolute()
    configs: list[SiteConfig] = []
    folders = (*_near_folders(source), *source.parents[:2])
    for folder in folders:
        within = folder.relative_to(source).as_posix() if folder.is_relative_to(source) else None
        for path in (folder / name for name in CONFIGS):
            if path.is_file() and not path.is_symlink():
                configs.append(SiteConfig("" if within == "." else within, path.name, _start_of(path)))
    return site_of(configs, source.name, by_name=any((folder / name).exists() for folder in folders for name in NAMING))


def site_of(configs: Sequence[SiteConfig], name: str = "", *, by_name: bool = False) -> Site:
    """Return what the configurations of a folder of documents say.

    Args:
        configs: The configurations, the most important first.
        name: The name of the folder, with which paths of links may begin; empty for a folder without a name.
        by_name: Whether links name pages by their files' names, as in folders that hold one of :data:`NAMING`.

    Returns:
        The addresses at which the folder may be published.
    """
    bases = dict.fromkeys(base for config in configs for base in _bases(config))
    roots = dict.fromkeys(config.folder for config in configs if config.folder is not None)
    return Site((*bases, *[f"/{name}/"] * bool(name)), tuple(roots), by_name)


def is_near(folder: PurePosixPath) -> bool:
    """Return whether a folder, by its path within the folder of documents, is one where a configuration may be."""
    return len(folder.parts) <= _MAX_DEPTH and not any(map(_is_skipped, folder.parts))


def _is_skipped(name: str) -> bool:
    return name == "node_modules" or name.startswith(".")


def _near_folders(source: Path) -> Iterator[Path]:
    for count, (folder, names, _) in enumerate(os.walk(source), 1):
        yield Path(folder)
        goes_on = count < _MAX_FOLDERS and len(Path(folder).relative_to(source).parts) < _MAX_DEPTH
        names[:] = sorted(name for name in names if goes_on and not _is_skipped(name))


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG)
    except OSError:
        return b""


def _bases(config: SiteConfig) -> list[str]:
    settings: dict[str, str] = {}
    for name, value in _SETTING.findall(config.content.decode("utf-8", "replace")):
        settings.setdefault(name.lower(), value)
    address = ""
    for value in (settings.get(name, "") for name in CONFIGS[config.name]):
        address = value if "://" in value else f"{address.rstrip('/')}/{value.strip('/')}" if value else address
    return [f"{address.rstrip('/')}/"] if address.strip("/") else []
