"""The folders, files and addresses that the user has named on this machine, and no file of a stranger's can add.

A checkpoint of one's own may have been trained with a folder: an encoder's, a data set's. Its manifest names it, so
that ``evaluate.py checkpoint=RUN`` finds it again. A stranger's manifest could name one too, which is why a path in a
file counts only if a command of this machine's user has named it before: each command remembers its own in the cache.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphrerank.caching import short_hash
from graphrerank.files import write_text
from graphrerank.passwords import without_passwords

DATASET = "{dataset}"  # in the path of a run file


class Places:
    """Paths and addresses by the user's own commands.

    Args:
        cache: The cache folder, which must be the user's alone to write.
    """

    def __init__(self, cache: str | Path) -> None:
        self._folder = Path(cache) / "places"

    def remember(self, settings: DictConfig) -> None:
        """Remember every path and address in a command's settings that leads somewhere.

        A cache that cannot be written remembers nothing; :meth:`check` then asks for the path once more.
        """
        for text in set(_texts(OmegaConf.to_container(settings, resolve=False))):
            if _is_place(text):
                self.add(text)

    def add(self, text: str) -> None:
        """Remember a path or an address, as :meth:`remember`."""
        if not self.knows(text):
            with suppress(OSError):
                write_text(self._file(text), _whole(text) + "\n")

    def knows(self, text: str) -> bool:
        """Return whether a command of the user's has named a path or an address."""
        return self._file(text).is_file()

    def check(self, key: str, text: str) -> None:
        """Refuse a path or an address in a file if the user has never named it.

        Args:
            key: Its setting, for the message.
            text: What the file says.

        Raises:
            ValueError: If the user has not; says how to.
        """
        if leads_elsewhere(text) and not self.knows(text):
            raise ValueError(
                f"`{key}` of a file names {text[:200]!r}, which no command of yours has named on this machine; if you "
                f"trust it, name it yourself: {key}={text[:200]!r}"
            )

    def _file(self, text: str) -> Path:
        return self._folder / f"{short_hash(_whole(text))}.txt"


def leads_elsewhere(text: str) -> bool:
    """Return whether a text is an address, has a separator of paths, or is the name of a file here.

    Example:
        >>> [leads_elsewhere(text) for text in ("attack", "a/b", "..", "sqlite://", "train[:90%]")]
        [False, True, True, True, False]
    """
    return "/" in text or "\\" in text or text.startswith((".", "~")) or "\0" in text or _exists(text)


def _is_place(text: str) -> bool:
    return "${" not in text and without_passwords(text) == text and ("://" in text or DATASET in text or _exists(text))


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _whole(text: str) -> str:
    return text if "://" in text else os.path.normpath(Path(text).absolute())


def _texts(content: Any) -> list[str]:
    if isinstance(content, Mapping):
        return [text for entry in content.values() for text in _texts(entry)]
    if isinstance(content, list):
        return [text for entry in content for text in _texts(entry)]
    return [content] if isinstance(content, str) else []
