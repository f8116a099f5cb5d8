"""Where the settings lie, and the settings of public data sets, which one file holds."""

from functools import cache
from pathlib import Path
from typing import Any

CONF = "conf"
PUBLIC = Path("data", "shared", "public.yaml")


def conf_folder() -> Path:
    """Return the folder of settings: in the wheel beside this file, in a checkout at its top."""
    package = Path(__file__).parent
    return next(folder for folder in (package / CONF, package.parents[1] / CONF) if folder.is_dir())


@cache
def public_datasets() -> dict[str, dict[str, Any]]:
    """Return the settings of public data sets, and their ``home``, by name."""
    import yaml

    found: dict[str, dict[str, Any]] = yaml.safe_load((conf_folder() / PUBLIC).read_text(encoding="utf-8"))
    return found


@cache
def register_public_datasets() -> None:
    """Let Hydra compose ``data=NAME`` for each public data set, as if it had a file in ``conf/data``."""
    from hydra.core.config_store import ConfigStore

    for name, entry in public_datasets().items():
        settings = {key: setting for key, setting in entry.items() if key != "home"}
        node = {"defaults": ["shared/named@_here_", "_self_"], "source": name, "name": name, **settings}
        ConfigStore.instance().store(name, node, group="data")
