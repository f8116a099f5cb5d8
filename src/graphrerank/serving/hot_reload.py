"""Folders whose content is replaced while it is served."""

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

from graphrerank.corpus_store.opening import CORPUS_MANIFEST, is_corpus_folder
from graphrerank.serving.json_log import log

T = TypeVar("T")


class WatchedFolder(Generic[T]):
    """Content that was loaded from a folder, or from the target of a link.

    A thread polls it every ``look_seconds``. When it has changed and then stayed unchanged from one poll to the next,
    it is loaded and replaces what was loaded before, which stays if it cannot be. Of a corpus folder, which changes
    with its manifest and opens at once, :attr:`current` is the newest state.

    Args:
        folder: Folder, or link to a folder, that is served.
        load: Function that loads the content of ``folder``.
        name: Name of the content in log lines.
        look_seconds: Time between two polls. If None, no thread polls the folder.
    """

    def __init__(self, folder: Path, load: Callable[[Path], T], name: str, *, look_seconds: float | None = 2.0) -> None:
        self._folder, self._load, self._name = folder, load, name
        self._tried = folder_version(folder)
        self._current = (self._tried, load(folder))
        if look_seconds is not None:
            Thread(target=self._watch, args=[look_seconds], daemon=True).start()

    @property
    def current(self) -> tuple[str, T]:
        """Return the content that is served now, with its version."""
        if is_corpus_folder(self._folder):
            self._load_version(folder_version(self._folder))
        return self._current

    def _watch(self, look_seconds: float) -> None:
        latest = self._tried
        while True:
            time.sleep(look_seconds)
            previous, latest = latest, folder_version(self._folder)
            if latest == previous and not is_corpus_folder(self._folder):
                self._load_version(latest)

    def _load_version(self, version: str) -> None:
        """Load the folder if its version is another one; once."""
        if version in (self._tried, ""):
            return
        self._tried = version
        try:
            content = self._load(self._folder)
        except Exception as error:
            log(f"{self._name} could not be loaded, the old one stays", level=logging.ERROR, error=error, index=version)
            return
        self._current = (version, content)
        log(f"{self._name} loaded", index=version)


def folder_version(folder: Path) -> str:
    """Hash paths, sizes and times of a folder's files, or of a corpus folder's manifest; empty if there are none."""
    root = folder.resolve()
    try:
        files = [root / CORPUS_MANIFEST] if is_corpus_folder(root) else root.rglob("*")
        stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    except FileNotFoundError:  # a file vanished meanwhile
        return ""
    return hashlib.sha256(repr((root, sorted(stamps))).encode()).hexdigest()[:16] if stamps else ""
