"""Hashes of an artifact: its manifest names the SHA-256 of each file and of itself.

They guard against damage and mix-ups. They are no signature: who can write the folder can write its hashes too, which
is why what can hold a program is only ever loaded where the operator named it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphrerank.files import hash_files
from graphrerank.models.entries import ArtifactEntry
from graphrerank.models.manifest import Manifest
from graphrerank.strangers import file_of

MANIFEST_HASH = "manifest_sha256"


def seal_manifest(manifest: Mapping[str, Any], folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return an artifact's manifest with the hashes of its files in ``folder``, and its own."""
    manifest = json.loads(json.dumps(manifest))  # as it will be read
    entry = {**manifest["artifact"], "sha256": {name: hash_files([folder / name]) for name in sorted(names)}}
    sealed = {**manifest, "artifact": entry}
    return {**sealed, "artifact": {**entry, MANIFEST_HASH: hash_manifest(sealed)}}


def hash_manifest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest as sorted JSON, without its own hash."""
    entry = {key: value for key, value in manifest["artifact"].items() if key != MANIFEST_HASH}
    content = json.dumps({**manifest, "artifact": entry}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def check_manifest(folder: Path, manifest: Manifest) -> None:
    """Hold an artifact's manifest against its own hash.

    Raises:
        ValueError: If it has none, or was changed.
    """
    needed, found = _artifact(manifest).manifest_sha256, hash_manifest(manifest.content)
    if found != needed:
        raise ValueError(
            f"{folder}: the manifest was changed: needed SHA-256 {needed}, found {found}; export the artifact again"
        )


def check_file(folder: Path, manifest: Manifest, name: str) -> None:
    """Hold a file of an artifact against the manifest.

    Raises:
        ValueError: If the manifest names no such file, or it is missing, a link or another one.
    """
    hashes = _artifact(manifest).sha256
    if name not in hashes:
        raise ValueError(f"{manifest.source}: the manifest needs an entry `artifact.sha256.{name}`, found none")
    if (found := hash_files([file_of(folder, name)])) != hashes[name]:
        raise ValueError(f"{folder / name}: needed SHA-256 {hashes[name]}, found {found}; export the artifact again")


def _artifact(manifest: Manifest) -> ArtifactEntry:
    if manifest.artifact is None:
        raise ValueError(f"{manifest.source}: the manifest needs an entry `artifact`, found none")
    return manifest.artifact
