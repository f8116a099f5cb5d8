"""Settings of commands: which dataclass describes them, their help, and their checks after composition."""

import re
from dataclasses import fields
from importlib import import_module
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from graphrerank.config.command_settings import (
    SUFFIX,
    check_command_settings,
    check_known,
    check_type,
    group_names,
    help_lines,
    setting_names,
    store_settings,
    suggestion,
)
from graphrerank.config.compose import register_settings
from graphrerank.installation.conf_folder import CHOICES, conf_folder, listed_choices
from graphrerank.installation.plugins import settings_folders

SETTINGS = {  # by file of conf: the dataclass of its settings, imported when the command is used
    "export": "graphrerank.config.settings.export.ExportSettings",
    "calibrate": "graphrerank.config.settings.calibrate.CalibrateSettings",
    "learn": "graphrerank.config.settings.learn.LearnSettings",
    "doctor": "graphrerank.config.settings.doctor.DoctorSettings",
    "serve": "graphrerank.serving.settings.ServeSettings",
    "prepare": "graphrerank.config.settings.prepare.PrepareSettings",
}
OPTIONAL: dict[str, Any] = {  # types of settings of files of conf that are null by default
    "num_queries": int | None,
    "operator.gcs.restart_prob": float | None,
    "operator.ppr.restart_prob": float | None,
    "train_only": list[str] | None,
}
NOT_IN_HELP = rf"- override |{SUFFIX}\b|# Defaults of the settings"  # lines of a file of conf
SHARED = "shared"  # components that files of conf/pipeline refer to


def settings_class(name: str) -> type[Any] | None:
    """Return the dataclass of a command's settings.

    Args:
        name: The command's file of ``conf``.

    Returns:
        The dataclass, or None if the file itself has the defaults.
    """
    if name not in SETTINGS:
        return None
    module, _, class_name = SETTINGS[name].rpartition(".")
    found: type[Any] = getattr(import_module(module), class_name)
    return found


def register(*names: str) -> None:
    """Tell Hydra the folders of extensions, the defaults of commands and their help, before it composes.

    Args:
        *names: Commands' files of ``conf`` that will be composed. If there is none, all of them.
    """
    OmegaConf.register_new_resolver("graphrerank_help", command_help, replace=True)
    register_settings()
    for name in names or SETTINGS:
        if (described := settings_class(name)) is not None:
            store_settings(name, described)


def command_help(name: str) -> str:
    """Return Hydra's template of ``--help``: examples, groups with their choices, and settings with descriptions.

    Args:
        name: The command's file of ``conf``.

    Returns:
        Text in which ``$`` is doubled, as Hydra needs it.
    """
    folders = [conf_folder(), *settings_folders()]
    path = folders[0] / f"{name}.yaml"
    text = path.read_text(encoding="utf-8").split("\nhydra:\n")[0]
    lines = [line for line in text.splitlines() if not re.search(NOT_IN_HELP, line)]
    described = settings_class(name)
    if described is not None:
        head = "\n".join(lines).split("\n\n")[0].splitlines()  # without the settings that the file overrides
        lines = [*head, "", *help_lines(described, overrides=_own_settings(name))]
    choices = {
        group: sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
        for group in re.findall(r"^  - (\w+):", "\n".join(lines), flags=re.MULTILINE)
    }
    for group in CHOICES.keys() & choices.keys():
        choices[group] = sorted([*choices[group], *listed_choices(group)])
    listed = [f"  {group}: {', '.join(names)}" for group, names in choices.items()]
    advice = "GROUP=CHOICE takes another file of conf/GROUP; --cfg job --package GROUP shows its settings:"
    return "\n".join([*lines, "", advice, *listed, "", "--hydra-help: Hydra's flags"]).replace("$", "$$")


def suggest_setting(error: BaseException, name: str) -> str:
    """Return a suggestion for the setting that Hydra does not know.

    Args:
        error: Error of Hydra's composition.
        name: The command's file of ``conf``.

    Returns:
        ``did you mean ...?``, or an empty text if no setting is similar.
    """
    unknown = re.search(r"Key '[^']+' is not in struct\s+full_key: (\S+)", f"{error}\n{error.__cause__}")
    if unknown is None:
        return ""
    described = settings_class(name)
    own = _own_settings(name) if described is None else setting_names(described)
    return suggestion(unknown[1], [*own, *group_names(_content(name))]).removeprefix(", ")


def _content(name: str) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{name}.yaml"))
    assert isinstance(content, dict)
    return {str(key): entry for key, entry in content.items()}


def _own_settings(name: str) -> dict[str, Any]:
    """Return the settings in a command's file of ``conf``."""
    return {key: setting for key, setting in _content(name).items() if key not in ("defaults", "hydra")}


def check_settings(cfg: DictConfig, name: str) -> None:
    """Refuse settings that a command does not have, or of another type; groups without a choice become null.

    Settings below a group of ``conf`` are checked by the class that they build.

    Args:
        cfg: Composed configuration, in which the groups are completed.
        name: The command's file of ``conf``.

    Raises:
        ValueError: If a setting is unknown or has another type. The message names it.
    """
    groups, own, described = group_names(_content(name)), _own_settings(name), settings_class(name)
    names = list(own) if described is None else [*own, *(field.name for field in fields(described))]
    check_known([str(key) for key in cfg], [*names, *groups, SHARED])
    with open_dict(cfg):
        for group in groups:
            cfg.setdefault(group, None)
    if described is not None:
        check_command_settings(cfg, described)
        return
    for key, setting in own.items():
        _check_as(cfg, key, setting, key)


def _check_as(node: DictConfig, key: str, usual: Any, path: str) -> None:
    """Check that a setting has the type of its default; those below a class to build are checked elsewhere."""
    is_built = isinstance(usual, dict) and "_target_" in usual
    if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key) or usual == "???" or is_built:
        return
    if path in OPTIONAL:
        check_type(node[key], OPTIONAL[path], path)
    elif isinstance(usual, dict) and usual and OmegaConf.is_dict(node[key]):
        for name, setting in usual.items():
            if name in node[key]:
                _check_as(node[key], str(name), setting, f"{path}.{name}")
    elif isinstance(usual, bool | int | float | list | dict) or (isinstance(usual, str) and "${" not in usual):
        wider: Any = {float: float | int, dict: dict | None, str: str | None}.get(type(usual), type(usual))
        check_type(node[key], wider, path)
