"""The data set folder, the format of users' own data: BEIR's layout with edges and entities.

- ``corpus.jsonl``: ``{"_id", "title"?, "text", "metadata"?}`` a line.
- ``queries.jsonl``: ``{"_id", "text", "metadata"?}`` a line; a corpus to search in needs neither these nor judgements.
- ``qrels/<split>.tsv``: the header ``query-id corpus-id score``; a score of 0 means judged not relevant.
- ``edges.tsv``, optional: ``source target type [weight]``.
- ``entities.jsonl``, optional: ``{"_id", "entities": ["...", ...], "triples": [["h", "r", "t"], ...]}`` a line.
- ``drafted.jsonl``, optional: questions drafted from the corpus, ``{"text", "relevant": ["d1", ...]}`` a line.

Gzipped JSONL and Parquet are read too, so that BEIR data sets of the Hugging Face hub are such folders. An unknown id,
an empty text or a score that is no number is an error that names file and line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphrerank.checks import UserError
from graphrerank.data.derived_edges import EXTRACTORS, DerivedEdges, EdgeRule, Edges, graph_of, joined, of_type
from graphrerank.data.engines.local import Engine
from graphrerank.data.enrichment.neighbours import entity_names
from graphrerank.data.enrichment.neighbours import random_edges as draw_edges
from graphrerank.data.readers.documents import FILTERED, Document, read_documents, read_edges
from graphrerank.data.readers.entities import ENTITIES, read_entities
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_lists import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, ENTITY, OTHER, REFERENCE
from graphrerank.graphs.entity_incidence import normalized_names
from graphrerank.graphs.passages import Passages
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text.languages import AUTO as AUTO_LANGUAGE
from graphrerank.text.languages import detect_language

EDGES = "edges.tsv"  # read if present
AUTO = "auto"  # instead of names of edge files: every kind of edge that the texts give
NAME_WORDS = 6  # of `auto`: titles with more at the median are headlines, as of papers, and short ones occur by chance
NEAREST = 10  # of `auto`: edges to each passage's nearest ones by vectors
NEIGHBOURS, ALL_NEAREST = 3, 1 << 17  # in a larger corpus only to those of passages with fewer neighbours


def read_graph(
    folder: Path,
    node_number: Mapping[str, int],
    documents: Sequence[Document],
    *,
    edges: str | Sequence[str] | None,
    edge_types: Sequence[str] | None,
    edge_meanings: Mapping[str, str] | None,
    mentions: bool,
    adjacency: bool,
    entities: str | KnowledgeExtractor | None,
    max_entity_share: float,
    knn: int,
    random_edges: int,
    cache: str | Path | None,
    engine: Engine,
    language: str,
) -> tuple[CorpusGraph, dict[str, Any]]:
    """Join the documents of :func:`read_corpus`, as :meth:`~graphrerank.data.dataset.Dataset.from_folder` says.

    The fields of the data set that describe the graph are returned too: ``knn``, ``knn_below``, ``edge_counts``,
    ``derived``.
    """
    automatic = edges == AUTO
    if isinstance(edges, str) and not automatic:
        raise UserError(f"`edges` must be a list of files in {folder}, null, or {AUTO!r}, got {edges!r}")
    if edges is None or automatic:
        edges = [EDGES] if (folder / EDGES).is_file() else []
    if automatic:
        mentions, adjacency = _titles_are_names(documents), all(map(_has_place, documents))
        entities = entities or ("file" if (folder / ENTITIES).is_file() else "spelling")
    stated = {"file": read_edges([folder / file for file in edges], node_number, edge_types, edge_meanings)}
    if adjacency:
        stated["neighbouring chunks"] = of_type(adjacency_edges(*_chunk_keys(folder, documents)), ADJACENCY)
    names, source = None, None
    if entities is not None:
        source = entities if isinstance(entities, str) else type(entities).__name__
        names = normalized_names(_entities(folder, entities, node_number, documents, cache, engine))
    rule = EdgeRule(
        mention_type=None if not mentions else ENTITY if automatic and _has_references(stated["file"]) else REFERENCE,
        entity_source=source,
        max_entity_share=max_entity_share,
        makes_choices=automatic,
    )
    derived = DerivedEdges(joined(stated.values()), rule, names)
    found, incidence = derived.search([doc.title for doc in documents], [doc.text for doc in documents], engine=engine)
    found = stated | found
    if random_edges:
        drawn = draw_edges(joined(found.values())[0], random_edges * len(documents), num_nodes=len(documents))
        found["random"] = of_type(drawn, OTHER)
        derived = replace(derived, stated=joined([derived.stated, found["random"]]))
    texts = [doc.passage for doc in documents]
    lengths = torch.tensor([len(doc.title) for doc in documents], dtype=torch.int32)
    language = detect_language(texts) if language == AUTO_LANGUAGE else language
    passages = Passages([doc.doc_id for doc in documents], texts, lengths, language)
    graph = graph_of(passages, found.values(), None if automatic else incidence)
    # different pairs of documents of each source
    counts = {
        name: len(torch.unique(found[name][0].sort(dim=1).values, dim=0))
        for name in dict.fromkeys(["file", "mentions", *found])
        if name in found
    }
    further: dict[str, Any] = {"knn": knn, "edge_counts": counts}
    if automatic:
        few = len(documents) <= ALL_NEAREST
        further |= {"knn": NEAREST, "knn_below": len(documents) if few else NEIGHBOURS}
    if mentions or names is not None:
        further["derived"] = derived
    return graph, further


def _has_references(edges: Edges) -> bool:
    return bool((edges[2] == REFERENCE).any())


def read_corpus(
    folder: Path, where: Mapping[str, Any] | None, *, drop_empty: bool
) -> tuple[dict[str, int], list[Document]]:
    """Number the documents to keep, in order; the others get -1."""
    node_number: dict[str, int] = {}
    documents: list[Document] = []
    for document in read_documents(folder, drop_empty=drop_empty):
        kept = where is None or _matches(document.metadata, where)
        node_number[document.doc_id] = len(documents) if kept else FILTERED
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


def _has_place(document: Document) -> bool:
    return isinstance(document.metadata.get("doc_id"), str) and type(document.metadata.get("chunk_id")) is int


def _chunk_keys(folder: Path, documents: Sequence[Document]) -> tuple[list[str], list[int]]:
    """Read the document of each chunk, and its number there."""
    for document in documents:
        if not _has_place(document):
            raise UserError(
                f"{folder}: `adjacency` needs a string `doc_id` and an integer `chunk_id` in the metadata of every "
                f"document, found {dict(document.metadata)} in {document.doc_id!r}"
            )
    return [doc.metadata["doc_id"] for doc in documents], [doc.metadata["chunk_id"] for doc in documents]


def _entities(
    folder: Path,
    source: str | KnowledgeExtractor,
    node_number: Mapping[str, int],
    documents: Sequence[Document],
    cache: str | Path | None,
    engine: Engine,
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
    return entity_names(extractor, [document.passage for document in documents], engine=engine)


def _titles_are_names(documents: Sequence[Document]) -> bool:
    """Return whether titles name something that others may mention, as those of an encyclopedia; headlines do not."""
    lengths = [len(document.title.split()) for document in documents if document.title]
    return bool(lengths) and median(lengths) <= NAME_WORDS
