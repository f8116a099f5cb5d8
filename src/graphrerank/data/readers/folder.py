"""The data set folder, the format of users' own data: BEIR's layout with edges and entities (docs/your_data.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.data.derived_edges import EXTRACTORS, place_in_document
from graphrerank.data.readers.documents import EMPTY, FILTERED, Document, read_all_documents
from graphrerank.data.readers.entities import ENTITIES, read_entities
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.utils.checks import UserError

EDGES = "edges.tsv"  # read if present
AUTO = "auto"  # instead of names of edge files: every kind of edge that the texts give


def read_corpus(
    folder: Path, where: Mapping[str, Any] | None, *, drop_empty: bool
) -> tuple[dict[str, int], list[Document]]:
    """Number the documents to keep, in order; the others get -1, and those without title and text -2."""
    node_number: dict[str, int] = {}
    documents: list[Document] = []
    for document in read_all_documents(folder, drop_empty=drop_empty):
        is_empty = not (document.title or document.text)
        kept = not is_empty and (where is None or _matches(document.metadata, where))
        node_number[document.doc_id] = len(documents) if kept else EMPTY if is_empty else FILTERED
        if kept:
            documents.append(document)
    if not documents:
        wanted = f" with {dict(where)} in its metadata (`corpus_where`)" if where and node_number else ""
        raise UserError(f"{folder}: the corpus must hold a document{wanted}, found none")
    return node_number, documents


def _matches(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    for key, wanted in where.items():
        several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
        if key not in metadata or metadata[key] not in (wanted if several else [wanted]):
            return False
    return True


def chunk_keys(folder: Path, documents: Sequence[Document]) -> tuple[list[str], list[int]]:
    """Return the document of each chunk and its number there; a UserError names a passage that says neither."""
    places = [place_in_document(document.metadata) for document in documents]
    for document, place in zip(documents, places, strict=True):
        if place is None:
            raise UserError(
                f"{folder}: `adjacency` needs a string `doc_id` and an integer `chunk_id` in the metadata of every "
                f"document, found {dict(document.metadata)} in {document.doc_id!r}"
            )
    known = [place for place in places if place is not None]
    return [doc_id for doc_id, _ in known], [chunk_id for _, chunk_id in known]


def entities_of(
    folder: Path,
    source: str | KnowledgeExtractor,
    node_number: Mapping[str, int],
    documents: Sequence[Document],
    *,
    cache: str | Path | None,
) -> Sequence[Sequence[str]]:
    """List the names of entities in each document that is kept."""
    if source == "file":
        lines = read_entities(folder / ENTITIES, node_number, need_names=True)
        names = {line.doc_id: line.names for line in lines}
        return [names.get(document.doc_id, ()) for document in documents]
    extractor = EXTRACTORS[source]() if isinstance(source, str) and source in EXTRACTORS else source
    if isinstance(extractor, str) or not hasattr(extractor, "extract"):
        raise UserError(
            f"`entities` must be null, spelling, spacy, file or an extractor (a config with `_target_`, which is not "
            f"taken from a checkpoint's manifest: put its entities into {ENTITIES}), got {source!r}"
        )
    if cache is not None:
        extractor = KnowledgeCache(extractor, Path(cache) / "entities")
    passages = [document.passage for document in documents]
    return [knowledge.names for knowledge in extractor.extract(passages)] if passages else []
