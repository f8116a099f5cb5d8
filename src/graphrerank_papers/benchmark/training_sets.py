"""Which data sets a checkpoint was trained on, by its manifest."""

from collections.abc import Collection
from pathlib import PurePath

from graphrerank.models.manifest import RerankerManifest


def training_sets(manifest: RerankerManifest) -> list[str]:
    """Name the data sets of a training, each once: the files of ``conf/data``, or the last part of a folder's path.

    An entry of ``mix`` that names no data set of its own is called by its key, as in ``conf``.
    """
    named = []
    for entry in manifest.trained_on.values():
        given = entry.arguments
        data = str(given["data"])
        own = data in ("None", "folder", "corpus_folder")
        named.append(PurePath(str(given.get("path") or given.get("name")) if own else data).name)
    return list(dict.fromkeys(named))


def has_seen(manifest: RerankerManifest, names: Collection[str], fingerprint: str) -> bool:
    """Return whether a checkpoint was trained on a data set.

    Args:
        manifest: The checkpoint's.
        names: Of the set and of its training splits, where these are data sets of their own.
        fingerprint: Of the set that is evaluated.
    """
    fingerprints = {entry.fingerprint for entry in manifest.trained_on.values()}
    return bool(set(names) & set(training_sets(manifest))) or fingerprint in fingerprints
