"""Composing parts of ``conf``, and removing this machine's paths and settings from a configuration."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from graphrerank.cli.places import Places
from graphrerank.data.corpus_folder.opening import is_corpus_folder
from graphrerank.extensions import settings_folders
from graphrerank.models.manifest import GroupEntry, RerankerManifest
from graphrerank.passwords import without_passwords
from graphrerank.untrusted import check_hub_model

MACHINE_KEYS = ("device", "datasets", "cache")  # settings that name a device or folder of this machine
CONF_ONLY = ("package", "folder", "sha256")  # what is imported, which conf alone may say
FREE_TEXTS = ("prompt", "query_prompt", "id", "splits", "corpus_where", "descriptions")  # no paths, whatever they hold
PROMPT_TEXTS = ("name", "user", "system", "abstention", "form")  # within a prompt of a language model, as well


def is_free_text(key: str) -> bool:
    """Return whether a setting is a text, or a mapping of texts, that names no path.

    Example:
        >>> [is_free_text(key) for key in ("encoder.prompt", "answers.writer.prompt.user", "system")]
        [True, True, False]
    """
    *outer, name = key.split(".")
    in_prompt = name in PROMPT_TEXTS and bool({"prompt", "prompts"} & set(outer[-2:]))
    return name in FREE_TEXTS or in_prompt


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

    Targets and packages always come from ``conf``, never from the manifest, which may be a stranger's; so do the
    folders of data sets and caches and the device, which are this machine's. Models are the hub's. Another path counts
    only if the user has named it (:class:`~graphrerank.cli.places.Places`).

    Raises:
        ValueError: If the choice or an argument is unknown, or an argument refers to something outside the manifest.
    """
    arguments = _without_machine_keys(_without_hydra_keys(dict(entry.arguments)))
    if "${" in (written := json.dumps(arguments)):
        raise ValueError(f"the manifest's arguments of {group} must be plain, got {written[:200]}")
    usual = compose_group(cfg, group, str(entry.choice))
    check_strangers_settings(group, arguments, usual, Places(cfg.paths.cache))
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


def check_strangers_settings(key: str, settings: Any, usual: Any, places: Places) -> None:
    """Refuse settings in a file that name a package, a model that is not the hub's, or a path the user has not named.

    Args:
        key: Where they stand in the configuration.
        settings: Plain settings, or one of them.
        usual: What ``conf`` says in their place, which always passes; None where it says nothing.
        places: What the user has named.

    Raises:
        ValueError: Naming the setting.
    """
    if settings == (OmegaConf.to_container(usual) if OmegaConf.is_config(usual) else usual):
        return
    name = key.rpartition(".")[2]
    if name in CONF_ONLY:
        raise ValueError(f"`{key}` of a file must be what conf says, {usual!r}, got {str(settings)[:200]!r}")
    if isinstance(settings, Mapping):
        for part, entry in settings.items():
            inner = usual.get(part) if OmegaConf.is_dict(usual) else None
            if not is_free_text(key):
                check_strangers_settings(f"{key}.{part}", entry, inner, places)
    elif isinstance(settings, list):
        for entry in settings:
            check_strangers_settings(key, entry, None, places)
    elif isinstance(settings, str) and not is_free_text(key):
        if name == "model" and not places.knows(settings):
            check_hub_model(**{key: settings})
        elif name != "model":
            places.check(key, settings)


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


def dotted_settings(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """List nested settings by their whole keys."""
    for key, setting in settings.items():
        if isinstance(setting, Mapping) and "_target_" not in setting:
            yield from dotted_settings(setting, f"{before}{key}.")
        else:
            yield f"{before}{key}", setting


def plain_arguments(node: DictConfig) -> dict[str, Any]:
    """Return a group's resolved settings without Hydra's own keys (``_target_`` and the like), nested ones too."""
    content = OmegaConf.to_container(node, resolve=True)
    assert isinstance(content, dict)
    arguments: dict[str, Any] = _shown(_without_hydra_keys(content))
    return arguments


def portable_arguments(node: DictConfig) -> dict[str, Any]:
    """Return a group's resolved settings as :func:`plain_arguments`, without those of this machine."""
    arguments: dict[str, Any] = _without_machine_keys(plain_arguments(node))
    return arguments


def portable_config(cfg: DictConfig) -> dict[str, Any]:
    """Return a command's configuration as written, without the folders of this machine."""
    content = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(content, dict)
    return {str(key): _shown(entry) for key, entry in content.items() if key not in ("paths", "ckpt_path")}


def without_paths(override: str) -> str:
    """Hide the folders of this machine, and passwords.

    Example:
        >>> without_paths("paths.datasets=/home/me/data")
        'paths.datasets=DIR'
    """
    key = override.split("=", 1)[0]
    return f"{key}=DIR" if key.startswith("paths.") else without_passwords(override)


def _shown(content: Any) -> Any:
    """Hide passwords at any depth."""
    if isinstance(content, Mapping):
        return {key: _shown(entry) for key, entry in content.items()}
    if isinstance(content, list):
        return [_shown(entry) for entry in content]
    return without_passwords(content) if isinstance(content, str) else content


def _without_hydra_keys(content: Any) -> Any:
    """Leave out the keys that Hydra acts on, at any depth, also within lists."""
    if isinstance(content, Mapping):
        return {key: _without_hydra_keys(entry) for key, entry in content.items() if not str(key).startswith("_")}
    return [_without_hydra_keys(entry) for entry in content] if isinstance(content, list) else content


def _without_machine_keys(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _without_machine_keys(entry) for key, entry in content.items() if key not in MACHINE_KEYS}
    return [_without_machine_keys(entry) for entry in content] if isinstance(content, list) else content
