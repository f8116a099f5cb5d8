"""Faster composition of settings: some hundred tests compose with Hydra, each time from the same few files."""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hydra._internal import defaults_list
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

LOAD, CREATE_MAP = OmegaConf.load, defaults_list._create_interpolation_map


@contextmanager
def composes_faster() -> Iterator[None]:
    """Let Hydra parse each file of settings once per process and version of the file, and copy less.

    Compositions are the same, as ``tests/cli/test_composition.py`` shows, and take half of the time.
    """
    pickled: dict[tuple[object, ...], bytes] = {}

    def load_once(file: Any) -> Any:
        if isinstance(file, str | Path):
            state = Path(file).stat()
        elif hasattr(file, "fileno"):
            state = os.fstat(file.fileno())
        else:
            return LOAD(file)
        key = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)
        if key not in pickled:
            pickled[key] = pickle.dumps(LOAD(file))
        return pickle.loads(pickled[key])

    def create_map_if_needed(overrides: Any, defaults: Any, self_added: bool) -> DictConfig:
        is_read = any(default.is_interpolation() for default in defaults)
        return CREATE_MAP(overrides, defaults, self_added) if is_read else OmegaConf.create()

    with (
        patch.object(OmegaConf, "load", load_once),
        patch.object(defaults_list, "_create_interpolation_map", create_map_if_needed),
        # each composition copies the repository of settings, and with it the whole store, whose `load` copies again
        patch.object(ConfigStore, "__deepcopy__", lambda self, memo: self, create=True),
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def _composes_faster() -> Iterator[None]:
    with composes_faster():
        yield
