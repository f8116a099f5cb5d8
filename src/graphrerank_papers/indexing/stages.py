"""Stages of an index build, stored on disk under a hash of everything they depend on."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from graphrerank.files import check_writable, load_tensors, save_tensors, write_text

StageData = tuple[Mapping[str, Tensor], Any]  # arrays, and content stored as JSON


class Stages:
    """A folder of stages, each computed once.

    A stage is two files, ``<name>-<key>.json`` and ``<name>-<key>.safetensors``. The arrays are written last, so their
    presence marks a complete stage even after an interrupted build. The key hashes all that the stage depends on:
    results for other settings, corpora and encoders are stored side by side.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def key(self, name: str, *dependencies: Any) -> str:
        """Return the file name of a stage, given keys of earlier stages, fingerprints and settings."""
        return f"{name}-{hashlib.sha256(repr((name, *dependencies)).encode()).hexdigest()[:24]}"

    def get(self, key: str, tensors: tuple[str, ...], make: Callable[[], StageData]) -> tuple[dict[str, Tensor], Any]:
        """Read a stage by its key and the names of its arrays; compute and write it first if it is missing."""
        arrays = self.folder / f"{key}.safetensors"
        content = arrays.with_suffix(".json")
        if not arrays.is_file():
            check_writable(self.folder)
            data, strings = make()
            write_text(content, json.dumps(strings, ensure_ascii=False) + "\n")
            save_tensors(arrays, data)
        try:
            return load_tensors(arrays, tensors), json.loads(content.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{content}: damaged index ({error}); delete {arrays.name} and build again") from error
