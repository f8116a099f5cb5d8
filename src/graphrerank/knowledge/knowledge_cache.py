"""Cache of extracted knowledge on disk, keyed by text and extractor.

An interrupted run resumes where it stopped, and only new documents are processed.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from graphrerank.knowledge.passage_knowledge import Entity, FallibleExtractor, Knowledge, KnowledgeExtractor, Relation
from graphrerank.utils.caching import BlobStore, fill, hash_text, short_hash
from graphrerank.utils.checks import UserError

SHARD_TEXTS = 128  # Number of texts between two writes. An interrupted run loses at most this many.


class KnowledgeCache:
    """Extractor with a cache on disk.

    Results are stored in one SQLite file per extractor, ``<folder>/<hash of its fingerprint>.sqlite``, under the
    SHA-256 of the text. Results for texts that a :class:`FallibleExtractor` skipped are not stored. Progress is shown
    on a terminal.

    Args:
        extractor: Extractor to wrap.
        folder: Folder of the SQLite file.
    """

    def __init__(self, extractor: KnowledgeExtractor, folder: str | Path) -> None:
        self.extractor = extractor
        self.folder = Path(folder)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped extractor."""
        return self.extractor.fingerprint

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return self.folder / f"{short_hash(self.fingerprint)}.sqlite"

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the knowledge of each text, or read it from disk.

        Args:
            texts: ``n`` texts.

        Returns:
            Knowledge of the ``n`` texts, in order.

        Raises:
            ValueError: If the cache file is damaged or cannot be written.
        """
        store, keys = BlobStore(self.path, "knowledge"), [hash_text(text) for text in texts]
        fill(store, keys, texts, self._extract_shard, shard_size=SHARD_TEXTS, label="entities and relations")
        return [self._decode(store.contents[key]) if key in store.contents else Knowledge() for key in keys]

    def _extract_shard(self, texts: list[str]) -> list[bytes | None]:
        extracted = self.extractor.extract(texts)
        skipped = set(self.extractor.skipped) if isinstance(self.extractor, FallibleExtractor) else set()
        contents: list[bytes | None] = []
        for text, knowledge in zip(texts, extracted, strict=True):
            entities, relations = astuple(knowledge)
            content = json.dumps({"entities": entities, "relations": relations})
            contents.append(None if text in skipped else content.encode())
        return contents

    def _decode(self, content: bytes) -> Knowledge:
        try:
            rows = json.loads(content)
            entities = tuple(Entity(*row) for row in rows["entities"])
            return Knowledge(entities, tuple(Relation(*row) for row in rows["relations"]))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{self.path}: damaged cache ({error!r}); delete this file and run again") from error
