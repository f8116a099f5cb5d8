"""Selection of the settings that are written to manifests, and checks of settings from untrusted manifests."""

import json
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from graphrerank.data.folder import AUTO
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact
from graphrerank.utils.safe_loading import check_hub_model

MACHINE_KEYS = ("device", "datasets", "cache")  # settings with a device or a folder of this machine
CONF_ONLY = ("package", "folder", "sha256")  # settings that select code to import; only `conf` may set them
PATH_SIGNS = re.compile(r"^[.~]|[/\\\0]")  # matches strings that can be a path or an address
# settings that are never used as a path or an address, and may contain any text
FREE_TEXTS = ("prompt", "query_prompt", "id", "splits", "corpus_where", "descriptions", "user", "system", "abstention")
IGNORED_WITH_AUTO = {"mentions": False, "adjacency": False, "entities": None}  # version 0.1 wrote them with edges=auto


def plain_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a manifest stores them: resolved, without passwords and without Hydra's keys.

    Args:
        settings: Settings of a group, with a ``_target_`` for each class to build.

    Returns:
        Plain settings. Keys that begin with ``_`` are removed at any depth.
    """
    content = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings
    return dict(redact(content, without_private=True))


def portable_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a manifest stores them, without settings that are specific to this machine.

    Args:
        settings: Settings of a group, with a ``_target_`` for each class to build.

    Returns:
        Result of :func:`plain_arguments`, without devices and folders.
    """
    return dict(redact(plain_arguments(settings), exclude=MACHINE_KEYS))


def trusted_arguments(group: str, arguments: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """Check the arguments of a manifest entry with :func:`check_no_code` and return them.

    Args:
        group: Group of ``conf`` that the entry belongs to.
        arguments: Arguments from the manifest.
        defaults: Settings of the same choice in ``conf``.

    Returns:
        Arguments without devices and folders, and without the settings that version 0.1 wrote although ``edges=auto``
        ignores them.

    Raises:
        ValueError: If the arguments contain an interpolation or a setting that :func:`check_no_code` rejects.
    """
    checked: dict[str, Any] = redact(dict(arguments), exclude=MACHINE_KEYS)
    if "${" in (written := json.dumps(checked)):
        raise UserError(f"the manifest's arguments of {group} must not contain interpolations, got {written[:200]}")
    check_no_code(group, checked, defaults)
    if checked.get("edges") == AUTO and IGNORED_WITH_AUTO.items() <= checked.items():
        ignored = IGNORED_WITH_AUTO.keys() | ({"knn"} if checked.get("knn") == 0 else set())
        checked = {key: setting for key, setting in checked.items() if key not in ignored}
    return checked


def check_no_code(key: str, settings: Any, defaults: Any) -> None:
    """Raise an error if settings from an untrusted file could load code or reach a local folder or an address.

    Packages, folders, addresses and models that are not hub ids are rejected. The path of a data set is accepted,
    because data sets contain only data. Settings equal to their default are accepted, because ``conf`` is trusted.

    Args:
        key: Dotted name of the settings, for messages.
        settings: Settings from the file.
        defaults: Settings in ``conf`` at the same key. None if ``conf`` has no such key.

    Raises:
        ValueError: If a setting is rejected. The message names its key.
    """
    if settings == (OmegaConf.to_container(defaults) if OmegaConf.is_config(defaults) else defaults):
        return
    name = key.rpartition(".")[2]
    if name in CONF_ONLY:
        raise UserError(f"`{key}` in a file must equal its default in conf, {defaults!r}, got {str(settings)[:200]!r}")
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
        raise UserError(
            f"`{key}` in a file must not be a path or an address, got {settings[:200]!r}. "
            f"If you trust it, set it yourself: {key}=..."
        )
