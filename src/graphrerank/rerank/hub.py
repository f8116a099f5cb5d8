"""Models from the Hugging Face hub: manifest and safetensors, which hold no program."""

import os
import re
from pathlib import Path

from graphrerank.installation.extras import optional
from graphrerank.models.checkpoint import WEIGHTS_FILE
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.checks import UserError

HUB_ID_PATTERN = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
SNAPSHOTS = "snapshots"  # of a model in the hub's cache: a folder for each commit


def is_hub_id(name: str) -> bool:
    """Return whether a name that is no path here could be one of the hub: ``owner/name``."""
    return HUB_ID_PATTERN.fullmatch(name) is not None and not Path(name).exists()


def locate_model(name: str, *, revision: str | None = None) -> str:
    """Download the model of a hub's id, or find it in the hub's cache; return a path or a shipped name unchanged.

    The hub is that of ``HF_ENDPOINT`` (a mirror), else Hugging Face's; with ``HF_HUB_OFFLINE=1`` the cache alone counts
    (``HF_HUB_CACHE``). A ``revision`` is a branch, tag or commit; one that was downloaded is there without the network.
    """
    if not is_hub_id(name):
        if revision is not None:
            raise UserError(f"`revision` is of models from the hub, got {revision!r} for {name}")
        return name
    hub = optional("huggingface_hub", "a model of the hub")
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=[MANIFEST, WEIGHTS_FILE]))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        wanted = name if revision is None else f"{name} at {revision}"
        raise UserError(f"{wanted}: no such path here, and not to be had from {_hub_place()}: {error}") from error
    if missing := [file for file in (MANIFEST, WEIGHTS_FILE) if not (folder / file).is_file()]:
        raise UserError(f"{name}: needed {missing[0]} in the hub's repository, found none")
    return str(folder)


def model_source(name: str, located: str | Path) -> str:
    """Describe where a model was loaded from (:func:`locate_model`): its path, or of the hub the commit and the hub."""
    folder = Path(located)
    if str(located) == name or folder.parent.name != SNAPSHOTS:
        return str(located)
    return f"{name} at {folder.name}, of {_hub_place()}"


def _hub_place() -> str:
    """Name the hub that models come from: its address, and the cache where that alone is looked at."""
    constants = optional("huggingface_hub.constants", "a model of the hub")
    address = str(constants.ENDPOINT) + (" (HF_ENDPOINT)" if "HF_ENDPOINT" in os.environ else "")
    if constants.HF_HUB_OFFLINE:
        return f"the cache {constants.HF_HUB_CACHE} (HF_HUB_OFFLINE), not {address}"
    return address
