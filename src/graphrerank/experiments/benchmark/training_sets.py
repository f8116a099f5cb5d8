"""Which data sets a checkpoint was trained on, by its manifest."""

from collections.abc import Collection
from pathlib import PurePath

from graphrerank.models import RerankerManifest


def training_sets(manifest: RerankerManifest) -> list[str]:
    """Name the data sets of a training, each once: the files of ``conf/data``, or the last part of a folder's path.

    An entry of ``mix`` that names no data set of its own is called by its key, as in ``conf``.
    """
    data = manifest.data
    first = data.arguments.get("path") if data.choice in (None, "folder", "corpus_folder") else data.choice
    names = [str(first or data.arguments.get("name")), *_mixed(manifest)]
    return list(dict.fromkeys(PurePath(name).name for name in names))


def has_seen(manifest: RerankerManifest, names: Collection[str], fingerprint: str) -> bool:
    """Return whether a checkpoint was trained on a data set.

    Args:
        manifest: The checkpoint's.
        names: Of the set and of its training splits, where these are data sets of their own.
        fingerprint: Of the set that is evaluated.
    """
    entries = (manifest.data, *manifest.mix.values())
    return bool(set(names) & set(training_sets(manifest))) or fingerprint in {entry.fingerprint for entry in entries}


def _mixed(manifest: RerankerManifest) -> list[str]:
    named = []
    for key, entry in manifest.mix.items():
        data = entry.arguments.get("data", key)
        named.append(str(entry.arguments.get("path", data) if data in ("folder", "corpus_folder") else data))
    return named
