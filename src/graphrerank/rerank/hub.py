"""Models from and to the Hugging Face hub. Only a manifest and safetensors are read; neither can execute code."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from graphrerank.installation.extras import optional
from graphrerank.models.checkpoint import WEIGHTS_FILE, Checkpoint, save_weights
from graphrerank.models.manifest import MANIFEST, check_artifact_file, check_manifest, write_manifest
from graphrerank.rerank.model_card import MODEL_CARD, model_card
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import temporary_folder, write_bytes, write_text
from graphrerank.utils.safe_loading import untrusted_file

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


def write_model(folder: Path, checkpoint: Checkpoint, card: str) -> None:
    """Write the weights, the manifest and the model card of a reranker to a folder.

    Args:
        folder: Folder to write to.
        checkpoint: Checkpoint of the reranker.
        card: Content of ``README.md``.
    """
    save_weights(folder, checkpoint.model)
    write_manifest(folder, checkpoint.manifest.without("artifact").content)
    write_text(folder / MODEL_CARD, card)


def push_model(
    checkpoint: Checkpoint,
    repo_id: str,
    *,
    license_name: str,
    private: bool = True,
    token: str | None = None,
    runs: Sequence[str | Path] = (),
) -> str:
    """Upload a reranker with a model card to the hub. All files of an artifact are uploaded.

    Args:
        checkpoint: Checkpoint of the reranker.
        repo_id: Repository ``owner/name``. It is created if it does not exist.
        license_name: Licence of the weights, as the hub abbreviates it, such as ``apache-2.0``.
        private: Whether a new repository is visible only to its owner.
        token: Access token of the hub. If None, the token of ``hf auth login`` or ``HF_TOKEN`` is used.
        runs: Run folders of ``graphrerank evaluate`` whose measures are added to the card.

    Returns:
        Address of the repository.

    Raises:
        UserError: If ``repo_id`` has another form, if ``HF_HUB_OFFLINE`` is set, if a file of an artifact is a link or
            was changed, if a run has no measures, or if the hub refuses the upload.
    """
    if not HUB_ID_PATTERN.fullmatch(repo_id):
        raise UserError(f"`repo_id` must be owner/name, got {repo_id!r}")
    hub = optional("huggingface_hub", "an upload to the hub")
    card = model_card(checkpoint.reranker, repo_id, license_name=license_name, runs=runs)
    with temporary_folder() as folder:
        if checkpoint.manifest.artifact is None:
            write_model(folder, checkpoint, card)
        else:
            _copy_artifact(checkpoint, folder)
            write_text(folder / MODEL_CARD, card)
        api = hub.HfApi(token=token)
        try:
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a reranker of graphrerank")
        except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
            if optional("huggingface_hub.constants", "an upload to the hub").HF_HUB_OFFLINE:
                raise UserError(f"{repo_id} cannot be uploaded, because HF_HUB_OFFLINE is set. Unset it") from error
            raise UserError(f"{repo_id} could not be uploaded to {_hub_address()}: {error}") from error
    return str(address)


def _copy_artifact(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the manifest and all files of an artifact after checking their hashes."""
    source, artifact = checkpoint.path.parent, checkpoint.manifest.artifact
    assert artifact is not None
    check_manifest(source, checkpoint.manifest)
    for name in artifact.sha256:
        check_artifact_file(source, checkpoint.manifest, name)
    for name in (MANIFEST, *artifact.sha256):
        write_bytes(folder / name, untrusted_file(source, name).read_bytes())


def _hub_address() -> str:
    """Return the address of the hub or, if ``HF_HUB_OFFLINE`` is set, the cache that is used instead."""
    constants = optional("huggingface_hub.constants", "a model of the hub")
    address = str(constants.ENDPOINT) + (" (HF_ENDPOINT)" if "HF_ENDPOINT" in os.environ else "")
    if constants.HF_HUB_OFFLINE:
        return f"the cache {constants.HF_HUB_CACHE} (HF_HUB_OFFLINE), not {address}"
    return address
