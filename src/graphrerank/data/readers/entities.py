"""``entities.jsonl`` of a data set folder: names and triples of its passages, also in place of an extractor."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeGuard

from graphrerank.data.readers.documents import read_documents
from graphrerank.data.readers.records import bad_line, find_record_files, read_jsonl
from graphrerank.files import hash_files
from graphrerank.knowledge.passage_knowledge import Knowledge, Relation

ENTITIES = "entities.jsonl"  # read on request
Triple = tuple[str, str, str]

_NAMES = '"entities": [...] of strings that are not blank'
_TRIPLES = '"triples": [["head", "relation", "tail"], ...] of strings that are not blank'


class PassageEntities(NamedTuple):
    """One line: a document's id, its names as written, and its triples ``(head, relation, tail)``."""

    doc_id: str
    names: Sequence[str]
    triples: Sequence[Triple]


def read_entities(path: Path, doc_ids: Collection[str], *, need_names: bool = False) -> Iterator[PassageEntities]:
    """Read ``{"_id", "entities": ["...", ...], "triples": [["head", "relation", "tail"], ...]}``, one a line.

    Either list may be missing, ``entities`` only unless ``need_names``; other keys are ignored. An error names file and
    line if a line is not of that form, or an id is not in the corpus or comes twice.
    """
    seen: set[str] = set()
    for line, record in read_jsonl(path):
        doc_id = record.get("_id")
        if not isinstance(doc_id, str) or doc_id not in doc_ids or doc_id in seen:
            raise bad_line(path, line, needed="an `_id` of the corpus that did not come before", found=doc_id)
        seen.add(doc_id)
        names, triples = record.get("entities", None if need_names else []), record.get("triples", [])
        if not _are_names(names):
            raise bad_line(path, line, needed=_NAMES, found=names)
        for triple in triples if isinstance(triples, list) else [triples]:
            if not _are_names(triple) or len(triple) != 3:
                raise bad_line(path, line, needed=_TRIPLES, found=triple)
        yield PassageEntities(doc_id, names, [tuple(triple) for triple in triples])


def _are_names(names: object) -> TypeGuard[list[str]]:
    return isinstance(names, list) and all(isinstance(name, str) and name.strip() for name in names)


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
        return repr(("file knowledge", hash_files([*find_record_files(self.folder, "corpus"), self.folder / ENTITIES])))

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Look up the knowledge of passages by the texts of their nodes."""
        known = self._known
        if unknown := next((text for text in texts if text not in known), None):
            raise ValueError(f"{self.folder}: needed texts of its passages, got {unknown[:80]!r}")
        return [known[text] for text in texts]

    @cached_property
    def _known(self) -> Mapping[str, Knowledge]:
        passage_of = {document.doc_id: document.passage for document in read_documents(self.folder)}
        names: dict[str, list[str]] = {text: [] for text in passage_of.values()}
        triples: dict[str, list[Triple]] = {text: [] for text in names}
        for line in read_entities(self.folder / ENTITIES, passage_of):
            names[passage_of[line.doc_id]] += line.names
            triples[passage_of[line.doc_id]] += line.triples
        known = {}
        for text in names:
            ends = [end for head, _, tail in triples[text] for end in (head, tail)]
            relations = dict.fromkeys(Relation(*triple, f"{' '.join(triple)}.") for triple in triples[text])
            known[text] = Knowledge(Knowledge.from_names([*names[text], *ends]).entities, tuple(relations))
        return known
