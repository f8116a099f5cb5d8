"""Stages of a build: each is made once, and lies on disk under a name that says what it was made of."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from graphrerank.files import load_tensors, save_tensors, write_text

Made = tuple[Mapping[str, Tensor], Any]  # arrays, and what goes into JSON


class Stages:
    """A folder of stages.

    A stage is two files, ``<name>-<key>.safetensors`` and ``.json``, the first of them written last: a stage whose
    arrays are there is whole, wherever a build was stopped. The key is a hash of all that the stage depends on; what
    another setting, another corpus or another encoder makes lies beside it.

    Args:
        folder: Where the files lie.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def key(self, name: str, *depends: Any) -> str:
        """Name what a stage depends on: keys of other stages, fingerprints and settings."""
        return f"{name}-{hashlib.sha256(repr((name, *depends)).encode()).hexdigest()[:24]}"

    def get(self, key: str, tensors: tuple[str, ...], make: Callable[[], Made]) -> tuple[dict[str, Tensor], Any]:
        """Read a stage, or make it and write it.

        Args:
            key: As :meth:`key` gives it.
            tensors: Names of its arrays.
            make: Makes arrays and JSON content.

        Raises:
            ValueError: If a file is damaged, naming it.
        """
        arrays = self.folder / f"{key}.safetensors"
        if not arrays.is_file():
            made, content = make()
            write_text(arrays.with_suffix(".json"), json.dumps(content, ensure_ascii=False) + "\n")
            save_tensors(arrays, made)
        return self.read(key, tensors)

    def read(self, key: str, tensors: tuple[str, ...]) -> tuple[dict[str, Tensor], Any]:
        """Read a stage.

        Raises:
            ValueError: If it is not there, or a file is damaged.
        """
        arrays = self.folder / f"{key}.safetensors"
        if not arrays.is_file():
            raise ValueError(f"{arrays}: no such file; build the index again")
        content = arrays.with_suffix(".json")
        try:
            return load_tensors(arrays, tensors), json.loads(content.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{content}: damaged index ({error}); delete {arrays.name} and build again") from error
