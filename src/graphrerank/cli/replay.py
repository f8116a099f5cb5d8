"""The overrides of a capsule, which may be a stranger's, before Hydra acts on them.

A capsule's overrides choose files of our own ``conf`` and set known keys to plain values. They add nothing, delete
nothing, name no class and no package, and no path but those that the user has named.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.compose import CONF_ONLY, check_strangers_settings, is_free_text
from graphrerank.cli.places import Places

OPEN = "settings."  # of the pipelines, a mapping to which keys are added
KEY = re.compile(r"[a-z]\w*(\.[a-zA-Z0-9][\w-]*)*", re.ASCII)
OWN = ("hydra", "verify", "report", "logger", "models")  # settings of the command that verifies, not of the run


def compose_again(overrides: Sequence[str], own: Sequence[str], places: Places) -> DictConfig:
    """Compose the configuration of an earlier ``evaluate.py`` with more overrides.

    Args:
        overrides: The capsule's.
        own: The command's, which follow and may be anything.
        places: What the user has named.

    Returns:
        The configuration, Hydra's own part included.

    Raises:
        ValueError: If an override of the capsule is more than a choice or a plain value.
    """
    set_here = {override.lstrip("+~").partition("=")[0] for override in own}
    kept = [override for override in map(_parse, overrides) if override.key_or_group not in set_here]
    for override in kept:
        _check(override, places)
    texts = [str(override.input_line) for override in kept]
    choices = [str(override.input_line) for override in kept if _options(override.key_or_group)]
    try:
        again = compose("evaluate", overrides=[*texts, *own], return_hydra_config=True)
        usual = compose("evaluate", overrides=[*choices, *own], return_hydra_config=True)
    except HydraException as error:
        raise ValueError(f"a capsule's overrides must fit conf: {error}") from error
    if _targets(again) != _targets(usual):
        raise ValueError("a capsule's overrides must not change which classes are built; set them yourself")
    return again


def _parse(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ValueError(f"a capsule's overrides must be key=value, got {text[:200]!r}") from error


def _check(override: Override, places: Places) -> None:
    text, key = str(override.input_line), override.key_or_group
    parts = key.split(".")
    options, package = _options(key), override.package
    added = override.type == OverrideType.ADD and key.startswith(OPEN)
    if not (override.type == OverrideType.CHANGE or added) or not KEY.fullmatch(key):
        raise ValueError(f"a capsule's overrides must set known keys, without + and ~, got {text[:200]!r}")
    if package is not None and not (options and KEY.fullmatch(package) and package.split(".")[0] not in OWN):
        raise ValueError(f"a capsule's overrides must choose files of conf at known places, got {text[:200]!r}")
    if parts[0] in OWN or parts[-1] in CONF_ONLY:
        raise ValueError(f"a capsule's overrides must not set `{key}`, got {text[:200]!r}")
    if "${" in text or override.is_sweep_override():
        raise ValueError(f"a capsule's overrides must be plain, without interpolations and sweeps, got {text[:200]!r}")
    setting = override.value()
    if options:
        if setting is not None and setting not in options:
            raise ValueError(f"a capsule's `{key}` must be one of {options}, got {text[:200]!r}")
        return
    if _has_mapping(setting) and not is_free_text(key):
        raise ValueError(f"a capsule's `{key}` must be a plain value, got {text[:200]!r}")
    check_strangers_settings(key, setting, None, places)


def _options(group: str) -> list[str]:
    """List the files of ``conf/<group>``; none where it is no group."""
    loader = GlobalHydra.instance().config_loader()
    return loader.get_group_options(group, config_name="evaluate") if group in loader.list_groups("") else []


def _has_mapping(setting: Any) -> bool:
    if isinstance(setting, list):
        return any(_has_mapping(entry) for entry in setting)
    return isinstance(setting, Mapping)


def _targets(cfg: DictConfig) -> dict[str, Any]:
    """List everything in a configuration that Hydra would call or change a call by, by its place."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", OmegaConf.to_container(cfg, resolve=False))]
    while pending:
        place, content = pending.pop()
        if isinstance(content, Mapping):
            pending += [(f"{place}.{key}", entry) for key, entry in content.items() if key != "hydra" or place]
            found |= {f"{place}.{key}": entry for key, entry in content.items() if str(key).startswith("_")}
        elif isinstance(content, list):
            pending += [(f"{place}.{number}", entry) for number, entry in enumerate(content)]
    return found
