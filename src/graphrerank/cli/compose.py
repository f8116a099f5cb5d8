"""Composing parts of ``conf``, and removing this machine's paths and settings from a configuration."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from graphrerank.data.corpus_folder.opening import is_corpus_folder
from graphrerank.extensions import settings_folders
from graphrerank.models.manifest import GroupEntry, RerankerManifest
from graphrerank.parts import check_plain, dotted_settings, portable_arguments, shown
from graphrerank.passwords import without_passwords

SCRIPTS = ("train", "evaluate", "serve")  # at the top of a checkout


def compose_group(cfg: DictConfig, group: str, choice: str, **arguments: Any) -> DictConfig:
    """Compose one file of ``conf/<group>`` with some other ``arguments``, and the folders and device of a command.

    Raises:
        ValueError: If ``choice`` is not a plain name, there is no such file, or an argument is unknown to it.
    """
    node: DictConfig = _composed(cfg, group, choice)[group]
    try:
        node.merge_with(arguments)
    except OmegaConfBaseException as error:
        raise ValueError(f"arguments do not fit conf/{group}/{choice}.yaml: {error}") from error
    OmegaConf.resolve(node)
    return node


def compose_pipeline(cfg: DictConfig, name: str, settings: Mapping[str, Any]) -> DictConfig:
    """Compose a file of ``conf/pipeline`` with settings of its own, and the folders and device of a command.

    Args:
        cfg: The command's.
        name: The file.
        settings: Nested, as their keys are below ``pipeline``; lists by their positions. Those below ``shared`` are of
            the parts that the file refers to.

    Raises:
        ValueError: As :func:`compose_group`.
    """
    composed = _composed(cfg, "pipeline", name)
    for key, setting in dotted_settings(settings):
        place = key if key.startswith("shared.") else f"pipeline.{key}"
        try:
            OmegaConf.update(composed, place, setting)
        except (OmegaConfBaseException, ValueError) as error:
            problem = str(error).partition("\n")[0]
            raise ValueError(f"`settings.{name}.{key}` does not fit conf/pipeline/{name}.yaml: {problem}") from error
    node: DictConfig = composed.pipeline
    OmegaConf.resolve(node)
    return node


def data_group(cfg: DictConfig, name: str, **arguments: Any) -> DictConfig:
    """Compose a data set by its name in ``conf/data``, or a folder of one by its path, as :func:`compose_group`."""
    if "/" in name or "\\" in name:
        if is_corpus_folder(name):
            return compose_group(cfg, "data", "corpus_folder", path=name, **arguments)
        return compose_group(cfg, "data", "folder", path=name, **arguments)
    return compose_group(cfg, "data", name, **arguments)


def group_from_manifest(cfg: DictConfig, group: str, entry: GroupEntry) -> DictConfig:
    """Compose a group of ``conf`` as a manifest's entry describes it: its choice, then its plain arguments.

    Classes and packages come from ``conf``, never from the manifest, and so do folders and the device.

    Raises:
        ValueError: If the choice or an argument is unknown, or an argument is a path, an address or a reference.
    """
    arguments = portable_arguments(entry.arguments)
    if "${" in (written := json.dumps(arguments)):
        raise ValueError(f"the manifest's arguments of {group} must be plain, got {written[:200]}")
    check_plain(group, arguments, compose_group(cfg, group, str(entry.choice)))
    return compose_group(cfg, group, str(entry.choice), **arguments)


def with_trained_splits(data: DictConfig, manifests: Sequence[RerankerManifest]) -> DictConfig:
    """Give a data set folder the splits that the first model trained on it had, where the command names none.

    Returns:
        A copy with ``splits``, or the same settings.
    """
    if data.get("path") is None or "splits" not in data or data.splits is not None:
        return data
    folder = Path(str(data.path)).resolve()
    for manifest in manifests:
        trained = manifest.data.arguments
        path, splits = trained.get("path"), trained.get("splits")
        if splits and isinstance(path, str) and Path(path).resolve() == folder:
            data = deepcopy(data)
            data.splits = splits
            break
    return data


def _composed(cfg: DictConfig, group: str, choice: str) -> DictConfig:
    """Compose the whole configuration around a file of ``conf/<group>``, to which no key can be added."""
    if not re.fullmatch(r"[\w-]+", choice):
        raise ValueError(f"`{group}` must name a file of conf/{group}, got {choice!r}")
    folders = (str(GlobalHydra.instance().config_loader().get_search_path()), *map(str, settings_folders()))
    try:
        composed = deepcopy(_composed_once(folders, group, choice))
    except MissingConfigException as error:
        raise ValueError(f"`{group}` must name a file of conf/{group}, got {choice!r}: {error}") from error
    composed.device, composed.paths = cfg.device, cfg.paths
    OmegaConf.set_struct(composed, True)
    return composed


@cache
def _composed_once(folders: tuple[str, ...], group: str, choice: str) -> DictConfig:
    """Compose from the files in ``folders``, which a process reads once: a copy costs far less than composing."""
    return compose("evaluate", overrides=[f"{group}={choice}", "checkpoint=none"])


def portable_config(cfg: DictConfig) -> dict[str, Any]:
    """Return a command's configuration as written, without the folders of this machine."""
    content = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(content, dict)
    return {str(key): shown(entry) for key, entry in content.items() if key not in ("paths", "ckpt_path")}


def without_paths(override: str) -> str:
    """Hide the folders of this machine, and passwords.

    Example:
        >>> without_paths("paths.datasets=/home/me/data")
        'paths.datasets=DIR'
    """
    key = override.split("=", 1)[0]
    return f"{key}=DIR" if key.startswith("paths.") else without_passwords(override)


def command_line() -> str:
    """Return the command that was given, without folders of this machine."""
    hydra = HydraConfig.get()
    name = str(hydra.job.name)
    program = ["python", f"{name}.py"] if name in SCRIPTS else ["graphrerank", name]
    return shlex.join([*program, *map(without_paths, hydra.overrides.task)])
