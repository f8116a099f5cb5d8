"""Faster composition of settings: some hundred tests compose with Hydra, each time from the same few files."""

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import omegaconf.base
import pytest
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Box

from graphrerank.cli import schema

LOAD, LOAD_CONFIG, CREATE_MAP = OmegaConf.load, ConfigRepository.load_config, defaults_list._create_interpolation_map
EMBED, PARSE, STORE_SETTINGS = ConfigLoaderImpl._embed_result_config, omegaconf.base.parse, schema.store_settings
RE_PARENT = Box._re_parent
#: What :func:`composes_faster` replaces: an object, the name of an attribute and its value without the replacement.
REPLACED: list[tuple[Any, str, Any]] = [
    (OmegaConf, "load", LOAD),
    (ConfigRepository, "load_config", LOAD_CONFIG),
    (ConfigLoaderImpl, "_embed_result_config", staticmethod(EMBED)),
    (ConfigStore, "load", ConfigStore.load),
    (defaults_list, "_create_interpolation_map", CREATE_MAP),
    (omegaconf.base, "parse", PARSE),
    (Box, "_re_parent", RE_PARENT),
    (schema, "store_settings", STORE_SETTINGS),
]


def file_version(state: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file and its content from others."""
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size


class Pickles:
    """Settings of files as pickles, which are much faster to copy than OmegaConf's objects."""

    def __init__(self) -> None:
        self._pickles: dict[tuple[Any, ...], bytes] = {}

    def load(self, file: Any) -> Any:
        """Load settings as ``OmegaConf.load`` does, but parse each version of a file only once."""
        if isinstance(file, str | Path):
            state = Path(file).stat()
        elif hasattr(file, "fileno"):
            state = os.fstat(file.fileno())
        else:
            return LOAD(file)
        key = file_version(state)
        if key not in self._pickles:
            self._pickles[key] = pickle.dumps(LOAD(file))
        return pickle.loads(self._pickles[key])

    def load_config(self, repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        """Load settings with their header and their defaults list as Hydra does, but read each version only once."""
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return LOAD_CONFIG(repository, config_path)
        state = Path(source.path, source._normalize_file_name(config_path)).stat()
        key = (config_path, source.path, source.provider, *file_version(state))
        if key not in self._pickles:
            self._pickles[key] = pickle.dumps(LOAD_CONFIG(repository, config_path))
        result: ConfigResult = pickle.loads(self._pickles[key])
        return result

    def embed(self, result: ConfigResult, package_override: str | None) -> ConfigResult:
        """Put settings into their package as Hydra does, but only once for the same settings."""
        package = result.header["package"] if package_override is None else package_override
        if not package:
            return EMBED(result, package_override)
        key = (package, pickle.dumps(result.config))
        if key not in self._pickles:
            self._pickles[key] = pickle.dumps(EMBED(result, package_override).config)
        embedded = copy(result)
        embedded.config = pickle.loads(self._pickles[key])
        return embedded


def load_from_store(store: ConfigStore, config_path: str) -> ConfigNode:
    """Return a copy of stored settings as ``ConfigStore.load`` does."""
    stored = copy(store._load(config_path))
    stored.node = pickle.loads(pickle.dumps(stored.node))
    return stored


def create_map_if_needed(overrides: Any, defaults: Any, self_added: bool) -> DictConfig:
    """Create the map of choices only if a defaults list has interpolations, which read it."""
    is_read = any(default.is_interpolation() for default in defaults)
    return CREATE_MAP(overrides, defaults, self_added) if is_read else OmegaConf.create()


def re_parent(box: Box) -> None:
    """Make a mapping or list the parent of its nodes, and so on, and forget the flags that they inherited."""
    content = box.__dict__["_content"]
    if type(box) is DictConfig and isinstance(content, dict):
        nodes = content.values()
    elif type(box) is ListConfig and isinstance(content, list):
        nodes = content
    else:
        RE_PARENT(box)
        return
    for node in nodes:
        if node is not None:
            state = node.__dict__
            state["_parent"], state["_flags_cache"] = box, None
            if isinstance(node, Box):
                re_parent(node)


class StoredSettings:
    """The defaults of commands in Hydra's store, which stay there and are built once."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[type[Any], Any]] = {}

    def store(self, command: str, settings_class: type[Any]) -> None:
        """Register the defaults of a dataclass as ``store_settings`` does, unless the store has them."""
        repository, name = ConfigStore.instance().repo, f"{command}_settings.yaml"
        stored_class, node = self._stored.get(command, (None, None))
        if stored_class is not settings_class or repository.get(name) is not node:
            STORE_SETTINGS(command, settings_class)
            self._stored[command] = (settings_class, repository[name])


@contextmanager
def composes_faster() -> Iterator[None]:
    """Let Hydra read each file of settings once per process and version of the file, and copy and parse less.

    Compositions are the same, as ``tests/cli/test_composition.py`` shows, and take about 60% of the time.
    """
    pickles = Pickles()
    patches = [
        patch.object(OmegaConf, "load", pickles.load),
        patch.object(ConfigRepository, "load_config", lambda self, config_path: pickles.load_config(self, config_path)),
        patch.object(ConfigLoaderImpl, "_embed_result_config", staticmethod(pickles.embed)),
        patch.object(ConfigStore, "load", load_from_store),
        patch.object(defaults_list, "_create_interpolation_map", create_map_if_needed),
        # each composition copies the repository of settings, and with it the whole store, whose `load` copies again
        patch.object(ConfigStore, "__deepcopy__", lambda self, memo: self, create=True),
        patch.object(omegaconf.base, "parse", lru_cache(maxsize=10_000)(PARSE)),  # trees that nothing changes
        patch.object(Box, "_re_parent", re_parent),
        patch.object(schema, "store_settings", StoredSettings().store),
    ]
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


@pytest.fixture(scope="session", autouse=True)
def _composes_faster() -> Iterator[None]:
    with composes_faster():
        yield
