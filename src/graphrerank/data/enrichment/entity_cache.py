"""Entities on disk, keyed by the text and the extractor: adding documents extracts only from those."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from graphrerank.data.enrichment.entities import EntityExtractor, check_names
from graphrerank.files import hash_text, write_text

SHARD_TEXTS = 512  # texts between two writes: at most this much work is lost on a stop


class EntityCache:
    """An extractor that remembers.

    Entities lie in ``<folder>/<hash of the extractor's fingerprint>/*.jsonl``, one ``{"key", "entities"}`` a line, the
    key being the SHA-256 of the text. New texts go to new files, each whole or not there.

    Args:
        extractor: Whom to ask for new texts.
        folder: Where the files lie.
    """

    def __init__(self, extractor: EntityExtractor, folder: str | Path) -> None:
        self.extractor = extractor
        self.folder = Path(folder)

    @property
    def fingerprint(self) -> str:
        """The wrapped extractor's fingerprint."""
        return self.extractor.fingerprint

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        """List the entities of each of ``n`` texts, from disk where they are there.

        Raises:
            ValueError: If a cache file is damaged, naming it.
        """
        shelf = self.folder / hashlib.sha256(self.fingerprint.encode()).hexdigest()[:32]
        known = _read(shelf)
        keys = [hash_text(text).hex() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        order = list(missing)
        for start in range(0, len(order), SHARD_TEXTS):
            part = order[start : start + SHARD_TEXTS]
            found = self.extractor.extract([missing[key] for key in part])
            entries = [{"key": key, "entities": names} for key, names in zip(part, found, strict=True)]
            name = hashlib.sha256("".join(part).encode()).hexdigest()[:32]
            lines = "".join(json.dumps(entry, ensure_ascii=True) + "\n" for entry in entries)
            write_text(shelf / f"{name}.jsonl", lines)
            known.update(zip(part, found, strict=True))
        return [known[key] for key in keys]


def _read(shelf: Path) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    for file in sorted(shelf.glob("*.jsonl")):
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                known[entry["key"]] = check_names(entry["entities"], "`entities`")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: damaged cache ({error!r}); delete this file and run again") from error
    return known
