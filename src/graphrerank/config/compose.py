"""Composition of settings with Hydra, from the groups of ``conf`` and of installed plugins."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from graphrerank.installation.conf_folder import conf_folder, register_choices
from graphrerank.installation.plugins import settings_folders
from graphrerank.utils.checks import UserError, similar_name

ROOT = "part"  # file of `conf` that a component is composed with


def register_settings() -> None:
    """Register the settings folders of plugins, and the files that define several choices of a group, with Hydra."""
    OmegaConf.register_new_resolver(
        "graphrerank_extensions", lambda: [f"file://{folder}" for folder in settings_folders()], replace=True
    )
    register_choices()


@contextmanager
def hydra_session() -> Iterator[None]:
    """Initialise Hydra with the folder ``conf`` for a ``with`` block, unless a command has already initialised it.

    Yields:
        None.
    """
    register_settings()
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        yield


def compose_root(*overrides: str) -> DictConfig:
    """Compose ``conf/part.yaml`` with overrides that add groups.

    Compositions are cached per process, because copying a composition is much faster than composing.

    Args:
        *overrides: Overrides in Hydra's syntax, such as ``+encoder=minilm``.

    Returns:
        Copy of the composed configuration, which the caller may change.

    Raises:
        ValueError: If an override names a file that does not exist.
    """
    with hydra_session():
        folders = (str(GlobalHydra.instance().config_loader().get_search_path()), *map(str, settings_folders()))
        try:
            return deepcopy(_composed(folders, overrides))
        except MissingConfigException as error:
            raise UserError(missing_file_message(error)) from error
        except ConfigCompositionException as error:
            raise UserError(str(error).partition("\n")[0]) from error


def missing_file_message(error: MissingConfigException) -> str:
    """Return the message about a name for which a group has no file.

    Args:
        error: Error of Hydra's composition.

    Returns:
        Message with the most similar name, or with all names.
    """
    path = str(error.missing_cfg_file)
    group, _, name = path.partition("/") if path.startswith("data/") else path.rpartition("/")
    options = sorted(set(error.options or ()))
    if group == "data" and Path(name).is_dir():
        return (
            f"`data` must be the name of a file of conf/data, got the folder {name!r}. Use data=folder data.path={name}"
        )
    similar = similar_name(name, options)
    advice = f"The names are {', '.join(options)}." if similar is None else f"Did you mean {similar}?"
    if group == "data":
        advice += " For a data set folder, use data=folder data.path=DIR"
    return f"`{group}` must be the name of a file of conf/{group}, got {name!r}. {advice}"


@cache
def _composed(folders: tuple[str, ...], overrides: tuple[str, ...]) -> DictConfig:
    """Compose from the files in ``folders``, which are only an argument because they are part of the cache key."""
    return compose(ROOT, overrides=list(overrides))


def group_choices(group: str) -> list[str]:
    """Return the names of the files of ``conf/<group>``, including those of installed plugins.

    Args:
        group: Name of a group of ``conf``, such as ``encoder``.

    Returns:
        File names without ``.yaml``.
    """
    with hydra_session():
        return list(GlobalHydra.instance().config_loader().get_group_options(group, config_name=ROOT))


def change_settings(composed: DictConfig, group: str, name: str, changes: Mapping[str, Any]) -> None:
    """Change settings of a composed group in place.

    Args:
        composed: Configuration with the group's settings at ``composed[group]``.
        group: Name of the group.
        name: Name of the group's file, for messages.
        changes: New settings by key. Nested settings are mappings. In a pipeline, a key such as ``steps.0.top_k``
            changes one step of the list.

    Raises:
        ValueError: If a setting does not exist or has a wrong type.
    """
    try:
        if group == "pipeline":  # the steps are a list, and mappings cannot be merged into a list
            for key, setting in flatten_settings(changes):
                OmegaConf.update(composed, key if key.startswith("shared.") else f"{group}.{key}", setting)
        else:
            composed[group].merge_with(changes)
    except (OmegaConfBaseException, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise UserError(f"settings {changes} are invalid for conf/{group}/{name}.yaml: {problem}") from error


def check_complete(settings: DictConfig, group: str, name: str) -> None:
    """Raise an error if a setting of a group is still ``???``.

    Args:
        settings: Settings of the group.
        group: Name of the group, for messages.
        name: Name of the group's file, for messages.

    Raises:
        ValueError: If a setting has no value.
    """
    if missing := sorted(OmegaConf.missing_keys(settings)):
        key = re.sub(r"\[(\d+)\]", r".\1", missing[0]).removeprefix(f"{group}.")
        raise UserError(f"`{key}` must be set for {group}={name}")


def complete_settings(composed: DictConfig, group: str, name: str, changes: Mapping[str, Any]) -> DictConfig:
    """Change the settings of a composed group, check that no setting is missing, and resolve interpolations.

    Args:
        composed: Configuration with the group's settings at ``composed[group]``, which are changed in place.
        group: Name of the group.
        name: Name of the group's file, for messages.
        changes: New settings by key, in the form that :func:`change_settings` accepts.

    Returns:
        Settings of the group.

    Raises:
        ValueError: If a setting does not exist, or a required setting is missing.
    """
    change_settings(composed, group, name, changes)
    settings: DictConfig = composed[group]
    check_complete(settings, group, name)
    OmegaConf.resolve(settings)
    return settings


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings with dotted keys. Settings with a ``_target_`` are not flattened.

    Args:
        settings: Settings. Nested settings are mappings.
        prefix: Prefix of each key.

    Yields:
        Dotted key and setting.

    Example:
        >>> list(flatten_settings({"budget": 5, "shared": {"depth": 2}}))
        [('budget', 5), ('shared.depth', 2)]
    """
    for key, setting in settings.items():
        if isinstance(setting, Mapping) and "_target_" not in setting:
            yield from flatten_settings(setting, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", setting
