"""Where the settings lie, and the choices of which one file holds several."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphrerank.installation.plugins import settings_folders

CONF = "conf"
# by group: the files in `conf` and folders of extensions with choices by name, the settings of all of them, and those
# settings that are the choice's name
CHOICES: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "data": ("data/shared/public.yaml", {"defaults": ["shared/named@_here_", "_self_"]}, ("source", "name")),
    "encoder": ("encoder/shared/families.yaml", {"defaults": ["sentence_transformer", "_self_"]}, ()),
    "prompt": ("prompts/*.yaml", {"_target_": "graphrerank.language_models.prompt.Prompt"}, ("name",)),
}


def conf_folder() -> Path:
    """Return the folder of settings: in the wheel inside the package, in a checkout at its top."""
    package = Path(__file__).parents[1]
    return next(folder for folder in (package / CONF, package.parents[1] / CONF) if folder.is_dir())


@cache
def listed_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return the settings of the choices of a group that one file holds, by name; of data sets with their ``home``."""
    import yaml

    found: dict[str, dict[str, Any]] = {}
    for folder in (conf_folder(), *settings_folders()):
        for path in sorted(folder.glob(CHOICES[group][0])):
            found |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def register_choices() -> None:
    """Let Hydra compose these choices, as if each had a file in ``conf/<group>``."""
    from hydra.core.config_store import ConfigStore

    for group, (_, common, named) in CHOICES.items():
        for name, entry in listed_choices(group).items():
            settings = {key: setting for key, setting in entry.items() if key != "home"}
            ConfigStore.instance().store(name, {**common, **dict.fromkeys(named, name), **settings}, group=group)
