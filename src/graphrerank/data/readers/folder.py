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
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphrerank.checks import check_not_negative
from graphrerank.data.dataset import RetrievalDataset
from graphrerank.data.derived_edges import DerivedEdges
from graphrerank.data.drafted_questions import draft_questions, with_drafts
from graphrerank.data.engines.local import LOCAL, Engine
from graphrerank.data.enrichment.entity_names import entity_names
from graphrerank.data.enrichment.mentions import find_mentions
from graphrerank.data.enrichment.random_edges import random_edges as draw_edges
from graphrerank.data.enrichment.shared_entities import choose_neighbours, shared_weight
from graphrerank.data.readers.documents import Document, read_documents
from graphrerank.data.readers.drafted_file import DRAFTED, read_drafted
from graphrerank.data.readers.edge_list import FILTERED, read_edges
from graphrerank.data.readers.edges_by_source import EdgesBySource
from graphrerank.data.readers.entities import ENTITIES, read_entities
from graphrerank.data.readers.judged_queries import judged_dataset, read_judged_queries
from graphrerank.data.readers.judgements import Splits
from graphrerank.data.readers.records import existing_folder
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.adjacency import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, ENTITY, REFERENCE
from graphrerank.graphs.incidence import normalized_names
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor
from graphrerank.text.languages import AUTO as AUTO_LANGUAGE
from graphrerank.text.languages import detect_language, language_of

EDGES = "edges.tsv"  # read if present
AUTO = "auto"  # instead of names of edge files: every kind of edge that the texts give
NAME_WORDS = 6  # of `auto`: titles with more at the median are headlines, as of papers, and short ones occur by chance
NEAREST = 10  # of `auto`: edges to each passage's nearest ones by vectors
NEIGHBOURS, ALL_NEAREST = 3, 1 << 17  # in a larger corpus only to those of passages with fewer neighbours
logger = logging.getLogger(__name__)


def load_folder(
    path: str | Path,
    *,
    name: str | None = None,
    splits: Splits = None,
    edges: str | Sequence[str] | None = None,
    edge_types: Sequence[str] | None = None,
    edge_meanings: Mapping[str, str] | None = None,
    corpus_where: Mapping[str, Any] | None = None,
    drop_empty: bool = False,
    mentions: bool = False,
    adjacency: bool = False,
    entities: str | KnowledgeExtractor | None = None,
    max_entity_share: float = 0.001,
    knn: int = 0,
    random_edges: int = 0,
    drafted: int = 0,
    cache: str | Path | None = None,
    engine: Engine = LOCAL,
    keep_derived: bool = False,
    language: str = AUTO_LANGUAGE,
) -> RetrievalDataset:
    """Read and check a data set folder.

    Args:
        path: The folder.
        name: Short name; the folder's own when None.
        splits: Judgements to read. None: every file, under its name; queries without judgements stay. A list of names,
            or a mapping from a split's name to a file's, perhaps with a share of its queries in the file's order:
            ``{"train": "train[:90%]", "val": "train[90%:]", "test": "dev"}``. Or ``auto``: the queries of all files,
            divided into train, val and test by a hash, near-duplicates together, with ``auto_documents`` also those
            that share a relevant document (:mod:`~graphrerank.data.readers.auto_splits`). Unless None, only the queries
            of the splits are kept.
        edges: Names of edge files in the folder; ``edges.tsv``, if present, when None. Of several edges of
            one type between two documents the largest weight is kept. Or ``auto``, which finds edges in any texts:
            ``edges.tsv``, if present; mentions, if a document has a title (as of type ``entity`` if the file states
            references, which they would water down: 61% of Spider's foreign keys join two relevant tables, 4% of the
            mentions do that are added); neighbouring chunks, if every document has its place; shared entities (of
            ``entities``, or else of the folder's ``entities.jsonl``, or else by their spelling) as edges of a bounded
            number (:func:`~graphrerank.data.enrichment.shared_entities.shared_entity_edges`); and the nearest
            neighbours of documents that have fewer than 3 by all these, once there are vectors. ``mentions``,
            ``adjacency`` and ``knn`` are not read then.
        edge_types: Types of edges to keep, as the files name them; None keeps all.
        edge_meanings: What names of types in the files mean, one of :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`
            for each, and with ``other`` for all that mean nothing; of names that are not here
            :func:`~graphrerank.graphs.edge_types.edge_type_of` decides.
        corpus_where: Keep only documents whose metadata holds these entries (for a list: one of its members), and the
            edges among them: ``{"split": "dev"}``. Judgements of other documents are an error: name the ``splits`` that
            belong to the documents kept.
        drop_empty: Leave out documents without title and text, which are an error otherwise.
        mentions: Also join documents if the title of one occurs in the text of the other
            (:func:`~graphrerank.data.enrichment.mentions.mention_edges`).
        adjacency: Also join adjacent chunks: documents of one ``doc_id`` whose ``chunk_id`` differ by 1, both in every
            document's metadata (:func:`~graphrerank.graphs.adjacency.adjacency_edges`).
        entities: Source of entities, which make documents that share them neighbours: ``spelling``
            (``PatternEntityExtractor``), ``spacy``, ``file`` for the folder's
            ``entities.jsonl``, or an extractor; None for no entities. Unless ``edges`` is ``auto``, their edges are
            computed per query.
        max_entity_share: Share of the documents, in (0, 1]; an entity in more (and in more than 10) is ignored.
        knn: Edges to add from each document to its nearest neighbours, once there are vectors; 0 for none.
        random_edges: Edges to draw for each document, of type ``other``, between two that no edge above joins: noise.
        drafted: Take as many drafted questions, at most, in the place of those of the splits ``train`` and ``val``: the
            first ones of ``drafted.jsonl``, if present, else drafted from the documents and their edges
            (:func:`~graphrerank.data.drafted_questions.draft_questions`). 0 for none.
        cache: Folder that keeps extracted entities, in its ``entities/``; nothing is kept when None.
        engine: Extracts entities, searches for mentions and joins what shares entities, in blocks.
        keep_derived: Whether to keep edges by origin (:attr:`RetrievalDataset.derived`), which a corpus folder needs to
            find mentions and entities of passages that are added to it.
        language: In which words are matched, a name of :mod:`~graphrerank.text.languages`; ``auto``: that of the
            documents, if their stop words are sure, else English.

    Raises:
        ValueError: If a file is missing or malformed, naming file and line.
    """
    if language != AUTO_LANGUAGE:
        language_of(language)  # refused before anything is read
    check_not_negative(random_edges=random_edges)
    folder = existing_folder(path, needed="corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
    node_number, documents = _number_documents(folder, corpus_where, drop_empty=drop_empty)
    queries, judged = read_judged_queries(folder, splits, node_number)
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
        logger.info("%s: %s", name or folder.resolve().name, found.costs(len(documents)))
    ids, passages = [doc.doc_id for doc in documents], [doc.passage for doc in documents]
    if random_edges:
        noise = draw_edges(found.joined()[0], random_edges * len(ids), num_nodes=len(ids))
        found.add("random", noise)
    pairs, weight, edge_type = found.joined()
    graph = CorpusGraph.from_edges(ids, passages, pairs, weight, edge_type=edge_type)
    graph = replace(
        graph,
        title_lengths=torch.tensor([len(doc.title) for doc in documents], dtype=torch.int32),
        language=detect_language(passages) if language == AUTO_LANGUAGE else language,
    )
    if incidence is not None and not automatic:
        graph = graph.with_entities(incidence)
    dataset = judged_dataset(
        name or folder.resolve().name,
        graph,
        queries,
        judged,
        knn=NEAREST if automatic else knn,
        knn_below=None if not automatic else len(ids) if len(ids) <= ALL_NEAREST else NEIGHBOURS,
        edge_counts=found.counts(),
        derived=None
        if not keep_derived or (mentioned is None and names is None)
        else DerivedEdges(
            found.joined(without=("mentions", f"entities by {source}")),
            mention_type,
            mentioned,
            source,
            names,
            max_entity_share,
            chosen,
            makes_choices=chosen is not None,
        ),
    )
    if drafted and (folder / DRAFTED).is_file():
        return with_drafts(dataset, read_drafted(folder / DRAFTED, node_number)[:drafted])
    return draft_questions(dataset, drafted) if drafted else dataset


def _number_documents(
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
