"""Settings in manifests: which ones are written there, and which ones are accepted from a file of somebody else."""

import json
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from graphrerank.data.folder import AUTO
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact
from graphrerank.utils.safe_loading import check_hub_model

MACHINE_KEYS = ("device", "datasets", "cache")  # settings that name a device or a folder of this machine
CONF_ONLY = ("package", "folder", "sha256")  # settings that decide what is imported, so that only conf may set them
PATH_SIGNS = re.compile(r"^[.~]|[/\\\0]")  # in texts that name a file or an address
FREE_TEXTS = ("prompt", "query_prompt", "id", "splits", "corpus_where", "descriptions", "user", "system", "abstention")
IGNORED_WITH_AUTO = {"mentions": False, "adjacency": False, "entities": None}  # written by 0.1 next to edges=auto


def plain_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a manifest holds them: resolved, without passwords and without Hydra's keys.

    Args:
        settings: Settings of a group, with a ``_target_`` for each class to build.

    Returns:
        Plain settings. Keys that begin with ``_`` are left out at any depth.
    """
    content = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings
    return dict(redact(content, without_private=True))


def portable_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return :func:`plain_arguments` without those that only have a meaning on this machine.

    Args:
        settings: Settings of a group, with a ``_target_`` for each class to build.

    Returns:
        Plain settings without devices and folders.
    """
    return dict(redact(plain_arguments(settings), exclude=MACHINE_KEYS))


def trusted_arguments(group: str, arguments: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """Return the arguments of a manifest's entry after checking them with :func:`check_no_code`.

    Args:
        group: Group of ``conf`` that the entry belongs to.
        arguments: Arguments as read from the manifest.
        defaults: Settings of the same choice in ``conf``.

    Returns:
        Arguments without devices and folders. Settings that a manifest of 0.1 holds although ``edges=auto`` ignores
        them are left out.

    Raises:
        ValueError: If the arguments hold an interpolation or anything that :func:`check_no_code` refuses.
    """
    checked: dict[str, Any] = redact(dict(arguments), exclude=MACHINE_KEYS)
    if "${" in (written := json.dumps(checked)):
        raise UserError(f"the manifest's arguments of {group} must be plain, got {written[:200]}")
    check_no_code(group, checked, defaults)
    if checked.get("edges") == AUTO and IGNORED_WITH_AUTO.items() <= checked.items():
        ignored = IGNORED_WITH_AUTO.keys() | ({"knn"} if checked.get("knn") == 0 else set())
        checked = {key: setting for key, setting in checked.items() if key not in ignored}
    return checked


def check_no_code(key: str, settings: Any, defaults: Any) -> None:
    """Refuse settings from a file that name a package, a folder, an address, or a model that is not on the hub.

    The path of a data set is accepted, because it is only read as data. Settings equal to their default are accepted
    too, because ``conf`` is trusted.

    Args:
        key: Dotted name of the settings, for messages.
        settings: Settings from a file, at any depth.
        defaults: Settings in ``conf`` at the same key. None if there are none.

    Raises:
        ValueError: If a setting is refused. The message names its key.
    """
    if settings == (OmegaConf.to_container(defaults) if OmegaConf.is_config(defaults) else defaults):
        return
    name = key.rpartition(".")[2]
    if name in CONF_ONLY:
        raise UserError(f"`{key}` of a file must be what conf says, {defaults!r}, got {str(settings)[:200]!r}")
    if name in FREE_TEXTS:
        return
    if isinstance(settings, Mapping):
        for entry_name, entry in settings.items():
            default = defaults.get(entry_name) if OmegaConf.is_dict(defaults) else None
            check_no_code(f"{key}.{entry_name}", entry, default)
    elif isinstance(settings, list):
        for entry in settings:
            check_no_code(key, entry, None)
    elif isinstance(settings, str) and name == "model":
        check_hub_model(**{key: settings})
    elif isinstance(settings, str) and PATH_SIGNS.search(settings) and (name != "path" or "://" in settings):
        raise UserError(f"`{key}` of a file names {settings[:200]!r}; if you trust it, name it yourself: {key}=...")
