"""Reload the content of a folder when it changes, without interrupting the service."""

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
    """Content of a folder, or of the target of a link, that is reloaded when the folder changes.

    A thread polls the folder every ``look_seconds``. If the folder has changed and then stays unchanged until the next
    poll, it is loaded and replaces the previous content. If loading fails, the previous content stays in use. A corpus
    folder opens quickly and changes only with its manifest, so :attr:`current` always returns its latest state.

    Args:
        folder: Folder or link to a folder.
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
        """Version and content that are served now."""
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
        """Load the folder if its version is new. A version that fails to load is not tried again."""
        if version in (self._tried, ""):
            return
        self._tried = version
        try:
            content = self._load(self._folder)
        except Exception as error:
            log(
                f"{self._name} could not be loaded, the previous one stays in use",
                level=logging.ERROR,
                error=error,
                index=version,
            )
            return
        self._current = (version, content)
        log(f"{self._name} loaded", index=version)


def folder_version(folder: Path) -> str:
    """Return a hash of the paths, sizes and modification times of a folder's files, or an empty string without files.

    Args:
        folder: Folder. For a corpus folder, only the manifest is hashed.
    """
    root = folder.resolve()
    try:
        files = [root / CORPUS_MANIFEST] if is_corpus_folder(root) else root.rglob("*")
        stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    except FileNotFoundError:  # a file was deleted in the meantime
        return ""
    return hashlib.sha256(repr((root, sorted(stamps))).encode()).hexdigest()[:16] if stamps else ""
