"""Knowledge on disk, keyed by the text and the extractor: an interrupted run goes on, new documents alone are read."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphrerank.files import BlobTable, hash_text
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, KnowledgeExtractor, Relation

SHARD_TEXTS = 128  # texts between two writes: at most this much work is lost on a stop


class KnowledgeCache:
    """An extractor that remembers, and shows a progress bar on a terminal while it reads.

    Knowledge lies in one SQLite file per extractor, ``<folder>/<hash of its fingerprint>.sqlite``, under the SHA-256 of
    the text. Texts that the extractor lists in ``skipped`` are not kept: the next run asks for them again.

    Args:
        extractor: Whom to ask for new texts.
        folder: Where the files lie.
    """

    def __init__(self, extractor: KnowledgeExtractor, folder: str | Path) -> None:
        self.extractor = extractor
        self.folder = Path(folder)

    @property
    def fingerprint(self) -> str:
        """The wrapped extractor's fingerprint."""
        return self.extractor.fingerprint

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{hashlib.sha256(self.fingerprint.encode()).hexdigest()[:32]}.sqlite"

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Tell the knowledge of each text, from disk where it is there.

        Raises:
            ValueError: If the file is damaged, naming it; or as the extractor.
        """
        table, keys = BlobTable(self.path, "knowledge"), [hash_text(text) for text in texts]
        known = {key: self._decode(content) for key, content in table.read(list(dict.fromkeys(keys))).items()}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        for part in _shards(list(missing)):
            found = dict(zip(part, self.extractor.extract([missing[key] for key in part]), strict=True))
            skipped = {hash_text(text) for text in getattr(self.extractor, "skipped", ())}
            table.write({key: encode(knowledge) for key, knowledge in found.items() if key not in skipped})
            known.update(found)
        return [known[key] for key in keys]

    def _decode(self, content: bytes) -> Knowledge:
        try:
            return decode(content)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self.path}: damaged cache ({error!r}); delete this file and run again") from error


def encode(knowledge: Knowledge) -> bytes:
    """Write knowledge as JSON; :func:`decode` reads it."""
    rows = {
        "entities": [[entity.name, entity.type, entity.description] for entity in knowledge.entities],
        "relations": [[part.head, part.relation, part.tail, part.description] for part in knowledge.relations],
    }
    return json.dumps(rows).encode()


def decode(content: bytes) -> Knowledge:
    """Read what :func:`encode` wrote.

    Raises:
        ValueError, TypeError, KeyError: If it is anything else.

    Example:
        >>> decode(encode(Knowledge((Entity("Metz", "GPE", ""),)))).entities[0].type
        'GPE'
    """
    rows = json.loads(content)
    entities = tuple(Entity(*row) for row in rows["entities"])
    return Knowledge(entities, tuple(Relation(*row) for row in rows["relations"]))


def _shards(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("entities and relations", total=len(keys))
        for start in range(0, len(keys), SHARD_TEXTS):
            part = keys[start : start + SHARD_TEXTS]
            yield part
            progress.advance(task, len(part))
