"""Addresses of the sites that folders of documents are published at."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CONFIGS = {  # of sites: the settings that make their address
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
_NAMING = ("writerside.cfg", ".obsidian")  # of tools whose links name a page by its file alone, wherever it is
_SETTING = re.compile(r"""^[ \t]*["']?([\w-]+)["']?[ \t]*[:=][ \t]*["']?((?:https?:/)?/[^"'\s,#]*)""", re.MULTILINE)
_MAX_CONFIG, _MAX_FOLDERS, _MAX_DEPTH = 1_000_000, 1000, 3  # bytes of a configuration; folders where one may be


@dataclass(frozen=True)
class Site:
    """Where the folder's pages stand on their site, as its configuration says (`baseurl`, `site_url`, `baseURL`)."""

    bases: tuple[str, ...] = ()  # addresses or paths that precede those of the folder: "https://docs.example.org/en/"
    roots: tuple[str, ...] = ()  # folders that have a configuration: "docs"; "" for the folder of documents itself
    by_name: bool = False  # whether links name pages by their files' names, without folders


def find_site(source: Path) -> Site:
    """Return what configurations in a folder, in its subfolders or in the two folders above it say.

    They are read as text, and never run.
    """
    source = source.absolute()
    bases: dict[str, None] = {}
    roots: list[str] = []
    folders = (*_near_folders(source), *source.parents[:2])
    for folder in folders:
        for path in (folder / name for name in _CONFIGS):
            if path.is_file() and not path.is_symlink():
                bases |= dict.fromkeys(_bases(path))
                if folder.is_relative_to(source):
                    roots.append(folder.relative_to(source).as_posix().removeprefix("."))
    return Site(
        (*bases, f"/{source.name}/"),
        tuple(dict.fromkeys(roots)),
        any((folder / name).exists() for folder in folders for name in _NAMING),
    )


def _near_folders(source: Path) -> Iterator[Path]:
    for count, (folder, names, _) in enumerate(os.walk(source), 1):
        yield Path(folder)
        is_near = count < _MAX_FOLDERS and len(Path(folder).relative_to(source).parts) < _MAX_DEPTH
        names[:] = sorted(name for name in names if is_near and name != "node_modules" and not name.startswith("."))


def _bases(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_CONFIG).decode("utf-8", "replace")
    except OSError:
        return []
    settings: dict[str, str] = {}
    for name, value in _SETTING.findall(text):
        settings.setdefault(name.lower(), value)
    address = ""
    for value in (settings.get(name, "") for name in _CONFIGS[path.name]):
        address = value if "://" in value else f"{address.rstrip('/')}/{value.strip('/')}" if value else address
    return [f"{address.rstrip('/')}/"] if address.strip("/") else []
