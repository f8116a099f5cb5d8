"""Extraction of named entities with spaCy, without a language model."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge
from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy, spacy_versions

LABELS = ("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW", "LANGUAGE")
BATCH_SIZE = 64  # Texts per batch. Larger batches are slower, because texts are padded to the longest one.


class SpacyEntityExtractor:
    """Extractor of named entities, without descriptions and relations.

    Only the entity recogniser of the spaCy pipeline runs.

    Args:
        model: Import name of an installed spaCy pipeline, or its folder.
        labels: Kinds of entities to extract. Defaults to those of OntoNotes without numbers, dates and amounts.
    """

    def __init__(self, model: str = ENGLISH, *, labels: Sequence[str] = LABELS) -> None:
        self.model, self.labels = model, tuple(sorted(labels))

    @cached_property
    def fingerprint(self) -> str:
        """Identifier made of the versions of spaCy and of the pipeline, and the labels."""
        return repr(("spacy", *spacy_versions(self.model), self.labels))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Extract the entities of each text.

        Args:
            texts: ``n`` texts.

        Returns:
            Entities of the ``n`` texts with unique names as written, each with the label of its first mention.
        """
        return [self._entities(document) for document in self._pipeline.pipe(texts, batch_size=BATCH_SIZE)]

    def _entities(self, document: Any) -> Knowledge:
        labels: dict[str, str] = {}
        for entity in document.ents:
            if entity.label_ in self.labels and entity.text.strip():
                labels.setdefault(entity.text, entity.label_)
        return Knowledge(tuple(Entity(name, label, "") for name, label in labels.items()))

    @cached_property
    def _pipeline(self) -> Any:
        return load_spacy(self.model, components=("transformer", "tok2vec", "ner"))
