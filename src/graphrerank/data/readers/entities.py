"""``entities.jsonl`` of a data set folder: entities and triples of its passages."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, Field

from graphrerank.data.readers.documents import read_documents
from graphrerank.data.readers.records import Id, Written, bad_line, checked, find_record_files, read_jsonl
from graphrerank.knowledge.passage_knowledge import Knowledge, Relation
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

ENTITIES_FILE = "entities.jsonl"  # Read only on request.
Triple = tuple[str, str, str]


class PassageEntities(BaseModel):
    """Line of ``entities.jsonl``.

    Attributes:
        doc_id: Id of the document.
        names: Names of entities, as written.
        triples: Triples (head, relation, tail).
    """

    doc_id: Id = Field(alias="_id")
    names: list[Written] = Field([], alias="entities")
    triples: list[tuple[Written, Written, Written]] = []


def read_entities(path: Path, doc_ids: Collection[str], *, need_names: bool = False) -> Iterator[PassageEntities]:
    """Read a file of entities.

    Each line is ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``. Either list may
    be missing, and other keys are ignored.

    Args:
        path: JSON Lines file of entities.
        doc_ids: Ids of all documents in the corpus.
        need_names: Whether ``entities`` is required.

    Yields:
        Entities of one document.

    Raises:
        UserError: If a line is malformed, or if an id is unknown or duplicate. The message names file and line.
    """
    seen: set[str] = set()
    for number, record in read_jsonl(path):
        line = checked(path, number, record, PassageEntities)
        if line.doc_id not in doc_ids or line.doc_id in seen:
            raise bad_line(path, number, needed="a unique `_id` of the corpus", actual=line.doc_id)
        if need_names and "entities" not in record:
            raise bad_line(path, number, needed="`entities`, a list of strings", actual=record)
        seen.add(line.doc_id)
        yield line


class FileKnowledge:
    """Extractor that reads the knowledge of passages from ``entities.jsonl`` in a data set folder.

    Heads and tails of triples are entities, too. Passages without a line have no knowledge, and passages with the same
    text share their knowledge. The file is read by the first call of :meth:`extract`.

    Args:
        folder: Data set folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the corpus and the file."""
        return repr(
            ("file knowledge", hash_files([*find_record_files(self.folder, "corpus"), self.folder / ENTITIES_FILE]))
        )

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Look up the knowledge of passages.

        Args:
            texts: Texts of ``n`` passages in the folder.

        Returns:
            Knowledge of the ``n`` passages, in order.

        Raises:
            UserError: If a text is not a passage of the folder, or if a file is malformed.
        """
        knowledge = self._knowledge
        if unknown := next((text for text in texts if text not in knowledge), None):
            raise UserError(f"{self.folder}: expected texts of its passages, got {unknown[:80]!r}")
        return [knowledge[text] for text in texts]

    @cached_property
    def _knowledge(self) -> Mapping[str, Knowledge]:
        passage_of = {document.doc_id: document.passage for document in read_documents(self.folder)}
        names: dict[str, list[str]] = {text: [] for text in passage_of.values()}
        triples: dict[str, list[Triple]] = {text: [] for text in names}
        for line in read_entities(self.folder / ENTITIES_FILE, passage_of):
            names[passage_of[line.doc_id]] += line.names
            triples[passage_of[line.doc_id]] += line.triples
        knowledge = {}
        for text in names:
            ends = [end for head, _, tail in triples[text] for end in (head, tail)]
            relations = dict.fromkeys(Relation(*triple, f"{' '.join(triple)}.") for triple in triples[text])
            knowledge[text] = Knowledge(Knowledge.from_names([*names[text], *ends]).entities, tuple(relations))
        return knowledge
