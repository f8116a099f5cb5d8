"""Dataclasses, help texts and checks of the settings of all commands."""

import re
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict

from graphrerank.config.command_settings import (
    SUFFIX,
    check_command_settings,
    check_known,
    group_names,
    help_lines,
    setting_names,
    store_settings,
    suggestion,
)
from graphrerank.config.compose import missing_file_message, register_settings
from graphrerank.installation.conf_folder import CHOICES, conf_folder, listed_choices
from graphrerank.installation.plugins import settings_folders
from graphrerank.utils.checks import UserError

SETTINGS = {  # dataclass of the settings of each command, imported when the command is used
    "train": "graphrerank.config.settings.train.TrainSettings",
    "evaluate": "graphrerank.config.settings.evaluate.EvaluateSettings",
    "export": "graphrerank.config.settings.export.ExportSettings",
    "calibrate": "graphrerank.config.settings.calibrate.CalibrateSettings",
    "learn": "graphrerank.config.settings.learn.LearnSettings",
    "doctor": "graphrerank.config.settings.doctor.DoctorSettings",
    "judge": "graphrerank.config.settings.judge.JudgeSettings",
    "serve": "graphrerank.serving.settings.ServeSettings",
    "prepare": "graphrerank.config.settings.prepare.PrepareSettings",
}
NOT_IN_HELP = rf"- override |{SUFFIX}\b|# Defaults of the settings"  # lines of a file of `conf` to leave out
SHARED = "shared"  # key of the components that files of `conf/pipeline` refer to


def settings_class(name: str) -> type[Any]:
    """Return the dataclass of a command's settings.

    Args:
        name: Name of the command's file in ``conf``.
    """
    module, _, class_name = SETTINGS[name].rpartition(".")
    settings: type[Any] = getattr(import_module(module), class_name)
    return settings


def register(*names: str) -> None:
    """Register the settings folders of plugins and the defaults of commands with Hydra.

    Args:
        *names: Names of the commands' files in ``conf``. If empty, all commands are registered.
    """
    register_settings()
    for name in names or SETTINGS:
        store_settings(name, settings_class(name))


def command_help(name: str, *, command: str | None = None, heading: str = "") -> str:
    """Return the help text of a command: examples, groups with their choices, and settings with descriptions.

    Args:
        name: Name of the command's file in ``conf``.
        command: Name of the command, whose examples are shown. If None, ``name`` is used.
        heading: First lines of the text: the usage of the command, and what it does.

    Returns:
        Text, as ``graphrerank COMMAND --help`` prints it.
    """
    folders = [conf_folder(), *settings_folders()]
    path = folders[0] / f"{name}.yaml"
    text = path.read_text(encoding="utf-8").split("\nhydra:\n")[0]
    lines = [line for line in text.splitlines() if not re.search(NOT_IN_HELP, line)]
    head = "\n".join(lines).split("\n\n")[0].splitlines()  # examples and groups, before the overridden settings
    groups = [line.replace("  - ", "  ", 1) for line in head if line.startswith("  ") and line != "  - _self_"]
    choices = {
        group: sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
        for group in re.findall(r"^  (\w+):", "\n".join(groups), flags=re.MULTILINE)
    }
    for group in CHOICES.keys() & choices.keys():
        choices[group] = sorted([*choices[group], *listed_choices(group)])
    listed = [f"  {group}: {', '.join(names)}" for group, names in choices.items()]
    advice = "GROUP=CHOICE selects a file of conf/GROUP. --cfg job --package GROUP prints its settings. The choices:"
    examples = _examples(head, command or name)
    own_settings = [f"  {line}" for line in help_lines(settings_class(name), overrides=_own_settings(name))]
    sections = [
        heading.splitlines(),
        ["Examples:", *examples] if examples else [],
        ["Groups, with the choice that is the default:", *groups],
        [advice, *listed],
        ["Settings (NAME=VALUE), with their defaults:", *own_settings],
        ["--hydra-help describes Hydra's flags."],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _examples(head: Sequence[str], command: str) -> list[str]:
    """Return the examples of a command from the comments at the head of a file of ``conf``."""
    lines: list[str] = []
    is_of_command = False
    for line in head:
        if not line.startswith("# "):
            break
        if line.startswith("# graphrerank "):
            is_of_command = line.split()[2] == command
        lines += [f"  {line[2:]}"] if is_of_command else []
    return lines


def composition_error(error: BaseException, name: str) -> UserError | None:
    """Return an error of one line for an unknown setting or an unknown file of a group.

    Args:
        error: Error of Hydra's composition.
        name: The command's file of ``conf``.

    Returns:
        The error, with ``error`` as its cause. None for any other error.
    """
    if isinstance(error, MissingConfigException):
        refused = UserError(missing_file_message(error))
    else:
        message = f"{error}\n{error.__cause__}"
        unknown = re.search(r"Key '[^']+' is not in struct\s+full_key: (\S+)", message)
        unknown = unknown or re.match(r"Could not override '([\w.]+)'\. No match in the defaults list", message)
        if unknown is None:
            return None
        group, is_nested, _ = unknown[1].rpartition(".")
        if unknown[1] in group_names(_content(name)):
            refused = UserError(unset_group_message(unknown[1], name))
            refused.__cause__ = error
            return refused
        names = [*setting_names(settings_class(name)), *group_names(_content(name))]
        if is_nested:
            names = [setting for setting in names if setting.startswith(f"{group}.")]
        flags = f"--cfg job --package {group}" if is_nested else "--help"
        advice = suggestion(unknown[1], names) or f". graphrerank {name} {flags} lists the settings"
        refused = UserError(f"unknown setting `{unknown[1]}`{advice}")
    refused.__cause__ = error
    return refused


def unset_group_message(group: str, name: str) -> str:
    """Return the message about settings of a group, such as ``data.edges=auto``, for which no file is selected.

    Args:
        group: Name of the group.
        name: The command's file of ``conf``.

    Example:
        >>> unset_group_message("retriever", "evaluate")
        '`retriever.KEY=...` changes the selected retriever, got none. Add retriever=NAME'
    """
    message = f"`{group}.KEY=...` changes the selected {group}, got none. Add {group}="
    if group != "data":
        return f"{message}NAME"
    message += "folder data.path=DIR"
    has_edges = "edges" in (field.name for field in fields(settings_class(name)))
    return f"{message}, or use edges=auto for the edges of all data sets in `datasets`" if has_edges else message


def _content(name: str) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{name}.yaml"))
    assert isinstance(content, dict)
    return {str(key): entry for key, entry in content.items()}


def _own_settings(name: str) -> dict[str, Any]:
    """Return the settings in a command's file of ``conf``."""
    return {key: setting for key, setting in _content(name).items() if key not in ("defaults", "hydra")}


def check_settings(cfg: DictConfig, name: str) -> None:
    """Check the names and types of a command's settings, and set groups without a choice to null.

    Settings inside a group of ``conf`` are checked later, by the class that is built from them.

    Args:
        cfg: Composed configuration. Missing groups are added.
        name: Name of the command's file in ``conf``.

    Raises:
        ValueError: If a setting is unknown or has a wrong type. The message names the setting.
    """
    groups, described = group_names(_content(name)), settings_class(name)
    names = {*_own_settings(name), *(field.name for field in fields(described))}
    check_known([str(key) for key in cfg], [*names, *groups, SHARED])
    with open_dict(cfg):
        for group in groups:
            cfg.setdefault(group, None)
    check_command_settings(cfg, described)
