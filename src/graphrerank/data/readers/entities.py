"""``entities.jsonl`` of a data set folder: names and triples of its passages, also in place of an extractor."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, Field

from graphrerank.data.readers.documents import read_documents
from graphrerank.data.readers.records import Id, Written, bad_line, checked, find_record_files, read_jsonl
from graphrerank.knowledge.passage_knowledge import Knowledge, Relation
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

ENTITIES_FILE = "entities.jsonl"  # read on request
Triple = tuple[str, str, str]


class PassageEntities(BaseModel):
    """One line: a document's id, its names as written, and its triples ``(head, relation, tail)``."""

    doc_id: Id = Field(alias="_id")
    names: list[Written] = Field([], alias="entities")
    triples: list[tuple[Written, Written, Written]] = []


def read_entities(path: Path, doc_ids: Collection[str], *, need_names: bool = False) -> Iterator[PassageEntities]:
    """Read ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``, one a line.

    Either list may be missing, ``entities`` only unless ``need_names``; other keys are ignored. An error names file and
    line if a line is not of that form, or an id is not in the corpus or comes twice.
    """
    seen: set[str] = set()
    for number, record in read_jsonl(path):
        line = checked(path, number, record, PassageEntities)
        if line.doc_id not in doc_ids or line.doc_id in seen:
            raise bad_line(path, number, needed="an `_id` of the corpus that did not come before", actual=line.doc_id)
        if need_names and "entities" not in record:
            raise bad_line(path, number, needed="`entities`, a list of strings", actual=record)
        seen.add(line.doc_id)
        yield line


class FileKnowledge:
    """Reads the knowledge of a data set folder's passages from its ``entities.jsonl``, in place of an extractor.

    Heads and tails of triples are entities too. A passage without a line has no knowledge; passages with the same text
    share theirs. The first :meth:`extract` reads the file (:func:`read_entities`).
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
        """Look up the knowledge of passages by the texts of their nodes."""
        known = self._known
        if unknown := next((text for text in texts if text not in known), None):
            raise UserError(f"{self.folder}: needed texts of its passages, got {unknown[:80]!r}")
        return [known[text] for text in texts]

    @cached_property
    def _known(self) -> Mapping[str, Knowledge]:
        passage_of = {document.doc_id: document.passage for document in read_documents(self.folder)}
        names: dict[str, list[str]] = {text: [] for text in passage_of.values()}
        triples: dict[str, list[Triple]] = {text: [] for text in names}
        for line in read_entities(self.folder / ENTITIES_FILE, passage_of):
            names[passage_of[line.doc_id]] += line.names
            triples[passage_of[line.doc_id]] += line.triples
        known = {}
        for text in names:
            ends = [end for head, _, tail in triples[text] for end in (head, tail)]
            relations = dict.fromkeys(Relation(*triple, f"{' '.join(triple)}.") for triple in triples[text])
            known[text] = Knowledge(Knowledge.from_names([*names[text], *ends]).entities, tuple(relations))
        return known
