"""Download models from the Hugging Face hub. Only a manifest and safetensors are read; neither can execute code."""

import os
import re
from pathlib import Path

from graphrerank.installation.extras import optional
from graphrerank.models.checkpoint import WEIGHTS_FILE
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.checks import UserError

HUB_ID_PATTERN = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
SNAPSHOTS = "snapshots"  # folder in the hub's cache with one subfolder per downloaded commit of a model


def is_hub_id(name: str) -> bool:
    """Return whether a name has the form ``owner/name`` of a model on the hub and is not an existing path.

    Args:
        name: Name or path.
    """
    return HUB_ID_PATTERN.fullmatch(name) is not None and not Path(name).exists()


def locate_model(name: str, *, revision: str | None = None) -> str:
    """Download a model from the hub unless it is in the local cache, and return its folder.

    The environment variable ``HF_ENDPOINT`` selects a mirror of the hub, ``HF_HUB_CACHE`` sets the cache folder, and
    ``HF_HUB_OFFLINE=1`` restricts the search to the cache.

    Args:
        name: Hub id ``owner/name``, or a path or the name of a shipped checkpoint.
        revision: Branch, tag or commit of a model on the hub. If None, the default branch is used. A revision that was
            downloaded before is available offline.

    Returns:
        Folder of the model in the hub's cache, or ``name`` unchanged if it is not a hub id.

    Raises:
        UserError: If ``revision`` is set for a name that is not a hub id, if the model cannot be downloaded, or if its
            repository lacks the manifest or the weights.
    """
    if not is_hub_id(name):
        if revision is not None:
            raise UserError(f"`revision` applies only to models on the hub, got {revision!r} for {name}")
        return name
    hub = optional("huggingface_hub", "a model of the hub")
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=[MANIFEST, WEIGHTS_FILE]))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        model = name if revision is None else f"{name} at {revision}"
        raise UserError(
            f"{model} is not a local path and could not be downloaded from {_hub_address()}: {error}"
        ) from error
    if missing := [file for file in (MANIFEST, WEIGHTS_FILE) if not (folder / file).is_file()]:
        raise UserError(f"{name}: the repository on the hub does not contain {missing[0]}")
    return str(folder)


def model_source(name: str, located: str | Path) -> str:
    """Describe where a model was loaded from.

    Args:
        name: Name that was passed to :func:`locate_model`.
        located: Path that :func:`locate_model` returned.

    Returns:
        Path of a local model. For a model on the hub, its id, its commit and the address of the hub.
    """
    folder = Path(located)
    if str(located) == name or folder.parent.name != SNAPSHOTS:
        return str(located)
    return f"{name} at {folder.name}, from {_hub_address()}"


def _hub_address() -> str:
    """Return the address of the hub or, if ``HF_HUB_OFFLINE`` is set, the cache that is used instead."""
    constants = optional("huggingface_hub.constants", "a model of the hub")
    address = str(constants.ENDPOINT) + (" (HF_ENDPOINT)" if "HF_ENDPOINT" in os.environ else "")
    if constants.HF_HUB_OFFLINE:
        return f"the cache {constants.HF_HUB_CACHE} (HF_HUB_OFFLINE), not {address}"
    return address
