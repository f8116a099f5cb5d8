"""Folder of the settings, and settings files that define several choices of a group."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphrerank.installation.plugins import settings_folders

CONF = "conf"
# per group: glob pattern of the files with choices by name, settings common to all choices, and the settings whose
# value is the name of the choice
CHOICES: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "data": ("data/shared/public.yaml", {"defaults": ["shared/named@_here_", "_self_"]}, ("source", "name")),
    "encoder": ("encoder/shared/families.yaml", {"defaults": ["sentence_transformer", "_self_"]}, ()),
    "prompt": ("prompts/*.yaml", {"_target_": "graphrerank.language_models.prompt.Prompt"}, ("name",)),
}


def conf_folder() -> Path:
    """Return the folder of settings, which is inside the package in a wheel and at the top of a checkout."""
    package = Path(__file__).parents[1]
    return next(folder for folder in (package / CONF, package.parents[1] / CONF) if folder.is_dir())


@cache
def listed_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return the choices of a group that are defined together in one file.

    Args:
        group: Name of a group: ``data``, ``encoder`` or ``prompt``.

    Returns:
        Settings by name of the choice. Data sets also have their download location, as ``home``.
    """
    import yaml

    found: dict[str, dict[str, Any]] = {}
    for folder in (conf_folder(), *settings_folders()):
        for path in sorted(folder.glob(CHOICES[group][0])):
            found |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def register_choices() -> None:
    """Register the choices of :func:`listed_choices` with Hydra, as if each had its own file in ``conf/<group>``."""
    from hydra.core.config_store import ConfigStore

    for group, (_, common, named) in CHOICES.items():
        for name, entry in listed_choices(group).items():
            settings = {key: setting for key, setting in entry.items() if key != "home"}
            ConfigStore.instance().store(name, {**common, **dict.fromkeys(named, name), **settings}, group=group)
