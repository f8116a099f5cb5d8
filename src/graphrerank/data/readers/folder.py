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

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrerank.data.derived_edges import DerivedEdges
from graphrerank.data.engines.local import Engine
from graphrerank.data.enrichment.mentions import find_mentions
from graphrerank.data.enrichment.random_edges import random_edges as draw_edges
from graphrerank.data.enrichment.shared_entities import choose_neighbours, entity_names, shared_weight
from graphrerank.data.readers.documents import Document, read_documents
from graphrerank.data.readers.edge_list import FILTERED, read_edges
from graphrerank.data.readers.entities import ENTITIES, read_entities
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.adjacency import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, ENTITY, OTHER, REFERENCE
from graphrerank.graphs.entity_incidence import normalized_names
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor
from graphrerank.text.languages import AUTO as AUTO_LANGUAGE
from graphrerank.text.languages import detect_language


class EdgesBySource:
    """Collects edges, with the time since the source before."""

    def __init__(self) -> None:
        self._edges: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._seconds: dict[str, float] = {}
        self._since = perf_counter()

    def add(self, source: str, pairs: Tensor, weight: Tensor | None = None, edge_type: Tensor | int = OTHER) -> None:
        """Add pairs ``[M, 2]`` with weights ``[M]``, 1 when None, and their types."""
        weight = torch.ones(len(pairs)) if weight is None else weight
        self._edges[source] = (pairs, weight, torch.as_tensor(edge_type).expand(len(pairs)))
        self._seconds[source], self._since = perf_counter() - self._since, perf_counter()

    def has(self, edge_type: int) -> bool:
        """Return whether some edge is of a type."""
        return any(bool((types == edge_type).any()) for _, _, types in self._edges.values())

    def joined(self, *, without: Sequence[str] = ()) -> tuple[Tensor, Tensor, Tensor]:
        """Return pairs, weights and types of all sources but some."""
        edges = [edges for source, edges in self._edges.items() if source not in without]
        pairs, weight, edge_type = (torch.cat(parts) for parts in zip(*edges, strict=True))
        return pairs, weight, edge_type

    def counts(self) -> dict[str, int]:
        """Count the different pairs of each source."""
        return {
            source: len(torch.unique(pairs.sort(dim=1).values, dim=0)) for source, (pairs, _, _) in self._edges.items()
        }

    def costs(self, num_nodes: int) -> str:
        """Describe the edges and milliseconds that each source gave a passage."""
        return "; ".join(
            f"{source} {count / num_nodes:.2f} edges and {1000 * self._seconds[source] / num_nodes:.3f} ms a passage"
            for source, count in self.counts().items()
        )


EDGES = "edges.tsv"  # read if present
AUTO = "auto"  # instead of names of edge files: every kind of edge that the texts give
NAME_WORDS = 6  # of `auto`: titles with more at the median are headlines, as of papers, and short ones occur by chance
NEAREST = 10  # of `auto`: edges to each passage's nearest ones by vectors
NEIGHBOURS, ALL_NEAREST = 3, 1 << 17  # in a larger corpus only to those of passages with fewer neighbours
logger = logging.getLogger(__name__)


class FolderGraph(NamedTuple):
    """The graph of a data set folder."""

    graph: CorpusGraph
    edge_counts: dict[str, int]  # pairs of documents by source of edges
    knn: int  # edges to add from each document to its nearest neighbours, once there are vectors
    knn_below: int | None  # documents with fewer neighbours get them; None: all
    derived: DerivedEdges | None  # edges by origin, if some follow from titles or entities


def read_graph(
    folder: Path,
    node_number: Mapping[str, int],
    documents: Sequence[Document],
    *,
    name: str,
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
) -> FolderGraph:
    """Join the documents of :func:`read_corpus`, as :meth:`~graphrerank.data.dataset.Dataset.from_folder` says."""
    automatic = edges == AUTO
    if isinstance(edges, str) and not automatic:
        raise ValueError(f"`edges` must be a list of files in {folder}, null, or {AUTO!r}, got {edges!r}")
    edge_files = _default_edges(folder) if edges is None or automatic else [folder / file for file in edges]
    if automatic:
        mentions, adjacency = _titles_are_names(documents), all(map(_has_place, documents))
        entities = entities or ("file" if (folder / ENTITIES).is_file() else "spelling")
    found = EdgesBySource()
    found.add("file", *read_edges(edge_files, node_number, edge_types=edge_types, edge_meanings=edge_meanings))
    mentioned, mention_type = None, None
    if mentions:
        titles, texts = [doc.title for doc in documents], [doc.text for doc in documents]
        mentioned = find_mentions(titles, texts, engine=engine)
        mention_type = ENTITY if automatic and found.has(REFERENCE) else REFERENCE
        found.add("mentions", mentioned.pairs, edge_type=mention_type)
    if adjacency:
        found.add("neighbouring chunks", adjacency_edges(*_chunk_keys(folder, documents)), edge_type=ADJACENCY)
    incidence, names, source, chosen = None, None, None, None
    if entities is not None:
        source = entities if isinstance(entities, str) else type(entities).__name__
        names = normalized_names(_entities(folder, entities, node_number, documents, cache, engine))
        incidence = EntityIncidence.from_names(names, max_share=max_entity_share)
    if automatic and incidence is not None:
        pairs, total = choose_neighbours(incidence, engine=engine)
        chosen = (pairs, shared_weight(total, incidence.num_nodes))
        found.add(f"entities by {source}", *chosen, edge_type=ENTITY)
        logger.info("%s: %s", name, found.costs(len(documents)))
    ids, passages = [doc.doc_id for doc in documents], [doc.passage for doc in documents]
    if random_edges:
        noise = draw_edges(found.joined()[0], random_edges * len(ids), num_nodes=len(ids))
        found.add("random", noise)
    pairs, weight, edge_type = found.joined()
    graph = CorpusGraph.from_edges(ids, passages, pairs, weight, edge_type=edge_type)
    lengths = torch.tensor([len(doc.title) for doc in documents], dtype=torch.int32)
    language = detect_language(passages) if language == AUTO_LANGUAGE else language
    graph = graph.with_passages(title_lengths=lengths, language=language)
    if incidence is not None and not automatic:
        graph = graph.with_entities(incidence)
    derived = None
    if mentioned is not None or names is not None:
        stated = found.joined(without=("mentions", f"entities by {source}"))
        derived = DerivedEdges(
            stated,
            mention_type,
            mentioned,
            source,
            names,
            max_entity_share,
            chosen,
            makes_choices=chosen is not None,
        )
    if not automatic:
        return FolderGraph(graph, found.counts(), knn, None, derived)
    return FolderGraph(graph, found.counts(), NEAREST, len(ids) if len(ids) <= ALL_NEAREST else NEIGHBOURS, derived)


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
        raise ValueError(f"{folder}: the corpus must hold a document{wanted}, found none")
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
            raise ValueError(
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
    named = {"spacy": SpacyEntityExtractor, "spelling": PatternEntityExtractor}
    extractor = named[source]() if isinstance(source, str) and source in named else source
    if isinstance(extractor, str) or not hasattr(extractor, "extract"):
        raise ValueError(
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


def _default_edges(folder: Path) -> list[Path]:
    return [folder / EDGES] if (folder / EDGES).is_file() else []
