"""Entities and triples that a data set folder brings itself, for indexes that are built on knowledge."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from graphrerank.data.readers.documents import read_documents
from graphrerank.data.readers.entities import ENTITIES, Triple, read_entities
from graphrerank.data.readers.records import find_record_files
from graphrerank.files import hash_files
from graphrerank.knowledge.passage_knowledge import Knowledge, Relation


class FileKnowledge:
    """Reads the knowledge of a data set folder's passages from its ``entities.jsonl``, in place of an extractor.

    A line is ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``; both lists may be
    missing. Heads and tails are entities too. A passage without a line has no knowledge; passages of one text share
    theirs.

    Args:
        folder: A data set folder with ``entities.jsonl``.

    Raises:
        ValueError: In the first :meth:`extract`: with file and line, if a line is not of that form, or an id is not in
            the corpus or comes twice. In each: if a text is no passage of the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the corpus and the file."""
        return repr(("file knowledge", hash_files([*find_record_files(self.folder, "corpus"), self.folder / ENTITIES])))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Look up the knowledge of passages by the texts of their nodes."""
        known = self._known
        if stranger := next((text for text in texts if text not in known), None):
            raise ValueError(f"{self.folder}: needed texts of its passages, got {stranger[:80]!r}")
        return [known[text] for text in texts]

    @cached_property
    def _known(self) -> Mapping[str, Knowledge]:
        passage_of = {document.doc_id: document.passage for document in read_documents(self.folder)}
        names: dict[str, list[str]] = {text: [] for text in passage_of.values()}
        triples: dict[str, list[Triple]] = {text: [] for text in names}
        for line in read_entities(self.folder / ENTITIES, passage_of):
            names[passage_of[line.doc_id]] += line.names
            triples[passage_of[line.doc_id]] += line.triples
        return {text: _knowledge(names[text], triples[text]) for text in names}


def _knowledge(names: Sequence[str], triples: Sequence[Triple]) -> Knowledge:
    ends = [end for head, _, tail in triples for end in (head, tail)]
    relations = dict.fromkeys(Relation(*triple, f"{' '.join(triple)}.") for triple in triples)
    return Knowledge(Knowledge.from_names([*names, *ends]).entities, tuple(relations))
