"""Where the settings lie, and the choices of which one file holds several."""

from functools import cache
from pathlib import Path
from typing import Any

CONF = "conf"
# by group: the file in `conf/<group>/shared` with choices by name, what each changes, and settings that are its name
CHOICES = {
    "data": ("public.yaml", "shared/named@_here_", ("source", "name")),
    "encoder": ("families.yaml", "sentence_transformer", ()),
}


def conf_folder() -> Path:
    """Return the folder of settings: in the wheel beside this file, in a checkout at its top."""
    package = Path(__file__).parent
    return next(folder for folder in (package / CONF, package.parents[1] / CONF) if folder.is_dir())


@cache
def listed_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return the settings of the choices of a group that one file holds, by name; of data sets with their ``home``."""
    import yaml

    path = conf_folder() / group / "shared" / CHOICES[group][0]
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def register_choices() -> None:
    """Let Hydra compose these choices, as if each had a file in ``conf/<group>``."""
    from hydra.core.config_store import ConfigStore

    for group, (_, base, named) in CHOICES.items():
        for name, entry in listed_choices(group).items():
            settings = {key: setting for key, setting in entry.items() if key != "home"}
            node = {"defaults": [base, "_self_"], **dict.fromkeys(named, name), **settings}
            ConfigStore.instance().store(name, node, group=group)
