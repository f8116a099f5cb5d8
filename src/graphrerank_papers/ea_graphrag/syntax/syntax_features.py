"""Syntax features of texts: batched, cached on disk, timed."""

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from graphrerank.caching import BlobStore, fill, hash_text, short_hash
from graphrerank.checks import check_choice, check_counts
from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy, spacy_versions
from graphrerank_papers.ea_graphrag.syntax.dependency_units import DependencyUnits
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, VERSION, feature_values
from graphrerank_papers.ea_graphrag.syntax.stanza_parser import StanzaParser
from graphrerank_papers.ea_graphrag.syntax.units import Units

COMPONENTS = ("tok2vec", "transformer", "tagger", "parser", "attribute_ruler", "ner")
SHARD_TEXTS = 256  # texts between two writes: at most this much work is lost on a stop
ROW = np.dtype("<f4")
SOURCES = ("stanza", "dependency")


class UnitCounter(Protocol):
    """Anything that counts the nine units in parsed texts."""

    @property
    def name(self) -> str:
        """Its name in manifests."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the counts would."""

    def count(self, documents: Sequence[Any]) -> list[Units]:
        """Count the units of each of spaCy's documents."""


class SyntaxFeatures:
    """The features of ``FEATURES`` for any text, even an empty one or one in another language.

    The units and their ratios come from the source named by ``syntax``, all other features from spaCy's dependency
    parse. The two sources of units differ in their numbers, names and fingerprints, and share no cache.

    Args:
        syntax: ``stanza``: units from Stanza's constituency trees; ``dependency``: estimated from spaCy's parse.
        stanza_folder: Folder of Stanza's model; see :class:`StanzaParser`. Only for ``stanza``.
        download: Whether Stanza may download its model. Only for ``stanza``.
        model: Import name of an installed spaCy pipeline, or its folder.
        cache: Folder that keeps features, one SQLite file per fingerprint; nothing is kept when None.
        batch_size: Texts per batch of spaCy.

    Attributes:
        num_counted: Texts parsed so far, without those read from disk.
        seconds: Time that parsing took, without loading the models.

    Raises:
        ValueError: If ``syntax`` is unknown, a setting does not apply to it, or ``batch_size`` is not positive.
    """

    def __init__(
        self,
        syntax: str,
        *,
        stanza_folder: str | Path | None = None,
        download: bool = False,
        model: str = ENGLISH,
        cache: str | Path | None = None,
        batch_size: int = 64,
    ) -> None:
        check_choice(SOURCES, syntax=syntax)
        if syntax == "dependency" and (stanza_folder is not None or download):
            raise ValueError(
                "`stanza_folder` and `download` apply to syntax=stanza only, "
                f"got {stanza_folder} and {download} with syntax=dependency"
            )
        check_counts(batch_size=batch_size)
        self.counter: UnitCounter = (
            StanzaParser(stanza_folder, download=download) if syntax == "stanza" else DependencyUnits()
        )
        self.model = model
        self.cache = None if cache is None else Path(cache)
        self.batch_size = batch_size
        self.num_counted = 0
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """``stanza`` or ``dependency``."""
        return self.counter.name

    @cached_property
    def fingerprint(self) -> str:
        """All that the features depend on: the source of units, spaCy's versions, the features and their version.

        Raises:
            ValueError: If a library or model is missing.
        """
        names = tuple(feature.name for feature in FEATURES)
        return repr(("syntax", VERSION, self.counter.fingerprint, *spacy_versions(self.model), names))

    @property
    def path(self) -> Path | None:
        """The cache's file; None if nothing is kept."""
        return None if self.cache is None else self.cache / f"{self.name}-{short_hash(self.fingerprint)}.sqlite"

    def extract(self, texts: Sequence[str]) -> Tensor:
        """Compute the features of ``n`` texts, or read them from disk.

        White space of any kind and length counts as one blank; a text without words has zeros.

        Returns:
            ``[n, F]`` float32 in the order of ``FEATURES``, finite, on the CPU.

        Raises:
            ValueError: If a library or model is missing, or the file is damaged, naming it.
        """
        store = BlobStore(self.path, "features")
        keys = [hash_text(text) for text in texts]
        fill(store, keys, texts, self._count, shard_size=SHARD_TEXTS, length=len)
        return store.rows(keys, len(FEATURES), ROW)

    def _count(self, texts: Sequence[str]) -> list[bytes]:
        pipeline = self._pipeline
        begin = time.perf_counter()
        cleaned = [" ".join(text.encode("utf-8", "replace").decode().split()) for text in texts]
        documents = list(pipeline.pipe(cleaned, batch_size=self.batch_size))
        units = self.counter.count(documents)
        rows = [
            np.array(feature_values(document, counts), dtype=ROW).tobytes()
            for document, counts in zip(documents, units, strict=True)
        ]
        self.seconds += time.perf_counter() - begin
        self.num_counted += len(texts)
        return rows

    @cached_property
    def _pipeline(self) -> Any:
        return load_spacy(self.model, components=COMPONENTS)
