"""Steps that load a data set folder as a :class:`~graphrerank.data.dataset.Dataset`.

The folder has BEIR's layout with optional edges and entities (docs/your_data.md).
:meth:`Dataset.from_folder <graphrerank.data.dataset.Dataset.from_folder>` runs the steps in this order: check the
settings, read and filter the corpus, read the judged queries, read edges, derive further edges, build the graph, keep
the recipe for the edges of a visible subgraph, and draft questions.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_lists import adjacency_edges
from graphrerank.corpus.edge_types import ADJACENCY, OTHER, REFERENCE
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.packed_strings import chosen
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import with_relations
from graphrerank.data.derived_edges import (
    EXTRACTORS,
    AutomaticChoices,
    DerivedEdges,
    EdgeRecipe,
    EdgeRule,
    Edges,
    graph_of,
    joined,
    of_type,
    place_in_document,
)
from graphrerank.data.enrichment.neighbours import random_edges
from graphrerank.data.readers.documents import EMPTY, FILTERED, CorpusRecord, read_all_documents
from graphrerank.data.readers.edges import FileEdges
from graphrerank.data.readers.entities import ENTITIES_FILE, read_entities
from graphrerank.data.synthetic_queries.questions import DRAFTED_FILE, Draft, draft_questions, read_drafted
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text.languages import AUTO as AUTO_LANGUAGE
from graphrerank.text.languages import detect_language, language_of
from graphrerank.utils.checks import UserError, check_not_negative

NEEDED_FILES = "corpus.jsonl, queries.jsonl and qrels/<split>.tsv"
EDGES_FILE = "edges.tsv"  # Optional file.
AUTO = "auto"  # Value of `edges` that derives all kinds of edges from the texts.
AUTO_KNN = 10  # Number of edges from each passage to its nearest neighbours with `edges=auto`.
# Sources of edges in `edge_counts`.
FILE_EDGES, MENTIONS, CHUNKS, RANDOM = "file", "mentions", "neighbouring chunks", "random"


class FolderCorpus(NamedTuple):
    """Documents of a data set folder that become passages.

    Attributes:
        node_number: Passage number of each document id in the folder. ``FILTERED`` (-1) for documents that do not match
            ``corpus_where``, and ``EMPTY`` (-2) for documents without title and text.
        documents: Documents that become passages, in the order of their numbers.
    """

    node_number: dict[str, int]
    documents: list[CorpusRecord]


@dataclass(frozen=True)
class EdgeSettings:
    """Settings of derived edges, as described in :meth:`Dataset.from_folder`.

    Attributes:
        is_automatic: Whether ``edges`` is ``auto``, so that settings that are None depend on the documents.
        mentions: Whether to search for edges by mentions of titles.
        adjacency: Whether to join adjacent chunks of a document.
        entities: Source of entities.
        max_entity_share: Maximum share of documents with an entity.
        knn: Number of edges from each document to its nearest neighbours.
        num_random: Number of random edges per document.
        cache: Folder that caches extracted entities. If None, they are not cached.
    """

    is_automatic: bool
    mentions: bool | None = None
    adjacency: bool | None = None
    entities: str | KnowledgeExtractor | None = None
    max_entity_share: float = 1.0
    knn: int | None = None
    num_random: int = 0
    cache: str | Path | None = None

    @cached_property
    def automatic(self) -> AutomaticChoices | None:
        """Choices that are made again for a visible subgraph. None unless ``edges`` is ``auto``."""
        if not self.is_automatic:
            return None
        return AutomaticChoices(mentions=self.mentions, adjacency=self.adjacency is None)


@dataclass(frozen=True)
class FolderEdges:
    """Edges of a data set folder.

    Attributes:
        by_source: Public edges of files and derived edges, by source.
        derived: Sources of the derived edges.
        incidence: Entities of each document. None if there are no entities.
        knn: Number of edges from each document to its nearest neighbours, which are added once there are vectors.
        knn_below: Only documents with fewer neighbours than this get ``knn`` edges. If None, all documents get them.
    """

    by_source: Mapping[str, Edges]
    derived: DerivedEdges
    incidence: EntityIncidence | None
    knn: int
    knn_below: int | None

    def counts(self) -> dict[str, int]:
        """Return the number of pairs of documents joined by edges, by source. Files and mentions come first."""
        sources = [
            source for source in dict.fromkeys([FILE_EDGES, MENTIONS, *self.by_source]) if source in self.by_source
        ]
        return {source: _num_pairs(self.by_source[source]) for source in sources}


def check_edge_settings(*, language: str, num_random: int, knn: int | None) -> None:
    """Check the settings that do not depend on the files.

    Args:
        language: Name of a language, or ``auto``.
        num_random: Number of random edges per document.
        knn: Number of edges from each document to its nearest neighbours, or None.

    Raises:
        UserError: If the language is unknown or a number is negative.
    """
    if language != AUTO_LANGUAGE:
        language_of(language)
    check_not_negative(random_edges=num_random)
    check_not_negative(knn=knn or 0)


def read_corpus(folder: Path, where: Mapping[str, Any] | None, *, drop_empty: bool) -> FolderCorpus:
    """Read the corpus of a folder, and number the documents that become passages.

    Args:
        folder: Data set folder.
        where: Required metadata of documents. If None, all documents are used.
        drop_empty: Whether to omit documents without title and text silently. By default, they are omitted with a
            warning.

    Returns:
        Documents and their numbers.

    Raises:
        UserError: If a file is missing or malformed, or if no document remains.
    """
    corpus = number_documents(read_all_documents(folder, drop_empty=drop_empty), where)
    if not corpus.documents:
        is_filtered = where and corpus.node_number
        condition = f" with {dict(where or {})} in its metadata (`corpus_where`)" if is_filtered else ""
        raise UserError(f"{folder}: the corpus must contain a document{condition}, got none")
    return corpus


def number_documents(documents: Iterable[CorpusRecord], where: Mapping[str, Any] | None = None) -> FolderCorpus:
    """Number the documents that have a title or a text and match a filter on their metadata.

    Args:
        documents: Documents with unique ids.
        where: Required metadata, with lists of alternatives. If None, there is no filter.

    Returns:
        Documents and their numbers.

    Example:
        >>> records = [("a", "", "", {}), ("b", "B", "", {"year": 1}), ("c", "C", "", {})]
        >>> number_documents([CorpusRecord(*record) for record in records], {"year": [1, 2]}).node_number
        {'a': -2, 'b': 0, 'c': -1}
    """
    corpus = FolderCorpus({}, [])
    for document in documents:
        if not (document.title or document.text):
            corpus.node_number[document.doc_id] = EMPTY
        elif where is not None and not _matches(document.metadata, where):
            corpus.node_number[document.doc_id] = FILTERED
        else:
            corpus.node_number[document.doc_id] = len(corpus.documents)
            corpus.documents.append(document)
    return corpus


def _matches(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    for key, allowed in where.items():
        is_list = isinstance(allowed, Sequence) and not isinstance(allowed, str)
        if key not in metadata or metadata[key] not in (allowed if is_list else [allowed]):
            return False
    return True


def edge_files(folder: Path, edges: str | Sequence[str] | None) -> list[Path]:
    """Return the paths of the edge files to read.

    Args:
        folder: Data set folder.
        edges: Names of files in the folder. None and ``auto`` select ``edges.tsv`` if it exists.

    Returns:
        Paths of the files.

    Raises:
        UserError: If ``edges`` is another string.
    """
    if edges is None or edges == AUTO:
        return [folder / EDGES_FILE] if (folder / EDGES_FILE).is_file() else []
    if isinstance(edges, str):
        raise UserError(f"`edges` must be a list of files in {folder}, null, or {AUTO!r}, got {edges!r}")
    return [folder / file for file in edges]


def derive_edges(folder: Path, corpus: FolderCorpus, file_edges: FileEdges, settings: EdgeSettings) -> FolderEdges:
    """Derive edges from documents (adjacent chunks, mentions and shared entities), and draw random edges.

    Args:
        folder: Data set folder.
        corpus: Documents of the folder.
        file_edges: Edges in the files of the folder.
        settings: Kinds of edges to derive.

    Returns:
        Edges of the folder, including those of the files.

    Raises:
        UserError: If documents lack metadata that a setting requires.
    """
    documents = corpus.documents
    stated: dict[str, Edges] = {FILE_EDGES: (file_edges.pairs, file_edges.weight, file_edges.types)}
    chunks = chunk_edges(folder, documents, settings)
    if chunks is not None:
        stated[CHUNKS] = chunks
    source = entity_source(folder, settings)
    rule = EdgeRule(
        mention_type=mention_type(documents, file_edges, settings),
        entity_source=source if source is None or isinstance(source, str) else type(source).__name__,
        max_entity_share=settings.max_entity_share,
        makes_choices=settings.is_automatic,
        automatic=settings.automatic,
    )
    derived = DerivedEdges(joined(stated.values()), rule, entity_names(folder, corpus, source, settings.cache))
    searched, incidence = derived.search([d.title for d in documents], [d.text for d in documents])
    by_source = stated | searched
    if settings.num_random:
        pairs, _, _ = joined(by_source.values())
        num_edges = settings.num_random * len(documents)
        by_source[RANDOM] = of_type(random_edges(pairs, num_edges, num_nodes=len(documents)), OTHER)
        derived = replace(derived, stated=joined([derived.stated, by_source[RANDOM]]))
    knn, knn_below = nearest_neighbours(settings, len(documents))
    return FolderEdges(by_source, derived, incidence, knn, knn_below)


def mention_type(documents: Sequence[CorpusRecord], file_edges: FileEdges, settings: EdgeSettings) -> int | None:
    """Return the type of edges by mentions.

    Args:
        documents: Documents that become passages.
        file_edges: Edges in the files of the folder.
        settings: Kinds of edges to derive.

    Returns:
        Index of the type. None if mentions are not searched for.
    """
    if settings.automatic is not None:
        return settings.automatic.mention_type(file_edges.types, (document.title for document in documents))
    return REFERENCE if settings.mentions else None


def chunk_edges(folder: Path, documents: Sequence[CorpusRecord], settings: EdgeSettings) -> Edges | None:
    """Return the edges between adjacent chunks of a document.

    Args:
        folder: Data set folder, used in error messages.
        documents: Documents that become passages.
        settings: Kinds of edges to derive.

    Returns:
        The edges. None if chunks are not joined.

    Raises:
        UserError: If ``adjacency`` is set and a document has no position, or if two documents have the same position.
    """
    if settings.adjacency:
        return of_type(adjacency_edges(*chunk_keys(folder, documents)), ADJACENCY)
    if settings.automatic is not None:
        return settings.automatic.neighbouring_chunks(document.metadata for document in documents)
    return None


def chunk_keys(folder: Path, documents: Sequence[CorpusRecord]) -> tuple[list[str], list[int]]:
    """Return the position of each passage: the document that it is a chunk of, and the number of the chunk.

    Args:
        folder: Data set folder, used in error messages.
        documents: Documents that become passages.

    Returns:
        Ids of the documents, and numbers of the chunks.

    Raises:
        UserError: If the metadata of a document lack one of the two. The message names the document.
    """
    doc_ids, chunk_ids = list[str](), list[int]()
    for document in documents:
        position = place_in_document(document.metadata)
        if position is None:
            raise UserError(
                f"{folder}: `adjacency` needs a string `doc_id` and an integer `chunk_id` in the metadata of every "
                f"document, got {dict(document.metadata)} in {document.doc_id!r}"
            )
        doc_ids.append(position[0])
        chunk_ids.append(position[1])
    return doc_ids, chunk_ids


def entity_source(folder: Path, settings: EdgeSettings) -> str | KnowledgeExtractor | None:
    """Return the source of entities.

    Args:
        folder: Data set folder.
        settings: Kinds of edges to derive.

    Returns:
        Source in the settings. ``auto`` selects ``entities.jsonl`` if it exists, otherwise spelling. None if there are
        no entities.
    """
    if not (isinstance(settings.entities, str) and settings.entities == AUTO):
        return settings.entities
    if not settings.is_automatic:
        return None
    return "file" if (folder / ENTITIES_FILE).is_file() else "spelling"


def entity_names(
    folder: Path, corpus: FolderCorpus, source: str | KnowledgeExtractor | None, cache: str | Path | None
) -> Sequence[AbstractSet[str]] | None:
    """Return the normalised names of the entities of each document.

    Args:
        folder: Data set folder.
        corpus: Documents of the folder.
        source: Source of entities (:func:`entities_of`). If None, there are no entities.
        cache: Folder that caches extracted entities. If None, they are not cached.

    Returns:
        Sets of names in the order of the documents. None if there are no entities.

    Raises:
        UserError: If the source is unknown, or if ``entities.jsonl`` is malformed.
    """
    if source is None:
        return None
    return normalized_names(entities_of(folder, source, corpus.node_number, corpus.documents, cache=cache))


def entities_of(
    folder: Path,
    source: str | KnowledgeExtractor,
    node_number: Mapping[str, int],
    documents: Sequence[CorpusRecord],
    *,
    cache: str | Path | None,
) -> Sequence[Sequence[str]]:
    """Return the names of the entities of each document, as written.

    Args:
        folder: Data set folder.
        source: ``file`` for ``entities.jsonl`` in the folder, the name of an extractor, or an extractor.
        node_number: Mapping whose keys are the ids of all documents in the folder.
        documents: Documents that become passages.
        cache: Folder that caches extracted entities in its subfolder ``entities``. If None, they are not cached.

    Returns:
        Names of entities in the order of the documents.

    Raises:
        UserError: If the source is unknown, or if ``entities.jsonl`` is malformed.
    """
    if source == "file":
        lines = read_entities(folder / ENTITIES_FILE, node_number, need_names=True)
        names = {line.doc_id: line.names for line in lines}
        return [names.get(document.doc_id, ()) for document in documents]
    extractor = EXTRACTORS[source]() if isinstance(source, str) and source in EXTRACTORS else source
    if isinstance(extractor, str) or not hasattr(extractor, "extract"):
        raise UserError(
            "`entities` must be null, spelling, spacy, file or an extractor (a configuration with `_target_`), "
            f"got {source!r}; extractors are not loaded from a checkpoint's manifest, so write their entities to "
            f"{ENTITIES_FILE}"
        )
    if cache is not None:
        extractor = KnowledgeCache(extractor, Path(cache) / "entities")
    passages = [document.passage for document in documents]
    return [knowledge.names for knowledge in extractor.extract(passages)] if passages else []


def nearest_neighbours(settings: EdgeSettings, num_nodes: int) -> tuple[int, int | None]:
    """Return the settings of edges to nearest neighbours.

    Args:
        settings: Kinds of edges to derive.
        num_nodes: Number of documents.

    Returns:
        Number of edges per document, and the number of neighbours below which a document gets them (None for all
        documents).
    """
    if settings.automatic is None:
        return settings.knn or 0, None
    knn = AUTO_KNN if settings.knn is None else settings.knn
    return knn, settings.automatic.knn_below(num_nodes) if knn else None


def build_passages(
    documents: Sequence[CorpusRecord], relations: Sequence[tuple[str, str, str]], *, language: str
) -> Passages:
    """Return the passages of documents, with their metadata.

    Args:
        documents: Documents with a title or a text.
        relations: Relations in edge files: type, and ids of the two documents.
        language: Language in which words are matched. ``auto`` detects the language of the documents.

    Returns:
        Passages in the order of the documents.
    """
    texts = [document.passage for document in documents]
    records = with_relations({document.doc_id: document.metadata for document in documents}, relations)
    return Passages(
        ids=[document.doc_id for document in documents],
        texts=texts,
        title_lengths=torch.tensor([len(document.title) for document in documents], dtype=torch.int32),
        language=detect_language(texts) if language == AUTO_LANGUAGE else language,
        metadata=Metadata(records) if any(records) else None,
    )


def build_graph(passages: Passages, file_edges: FileEdges, edges: FolderEdges) -> CorpusGraph:
    """Build the graph of passages with all edges.

    Edges with principals are stored separately, for callers who may see them. Unless ``edges`` is ``auto``, passages
    that share an entity are joined per query.

    Args:
        passages: Passages that become nodes.
        file_edges: Edges in the files of the folder.
        edges: All public edges.

    Returns:
        Corpus graph.
    """
    entities = None if edges.derived.rule.makes_choices else edges.incidence
    return replace(graph_of(passages, edges.by_source.values(), entities), guarded=file_edges.guarded)


def edges_to_find_again(graph: CorpusGraph, edges: FolderEdges, *, keep_derived: bool) -> dict[str, Any]:
    """Return the fields of a data set from which edges are derived again when passages are hidden or added.

    A visible subgraph needs its own derived edges, because words, mentions and neighbours of hidden passages must not
    influence it.

    Args:
        graph: Graph of the corpus.
        edges: Edges of the corpus.
        keep_derived: Whether the corpus will grow.

    Returns:
        ``derived`` and ``edge_recipe`` of :class:`~graphrerank.data.dataset.Dataset`, if there are such edges.
    """
    derived = edges.derived
    rule, names = derived.rule, derived.entity_names
    has_rule = rule.mention_type is not None or names is not None or (rule.makes_choices and graph.is_guarded)
    fields: dict[str, Any] = {}
    if has_rule and (keep_derived or graph.is_guarded):
        fields["derived"] = derived
    if graph.is_guarded and (has_rule or edges.knn):
        names_of_nodes = None if names is None else partial(chosen, names)
        fields["edge_recipe"] = EdgeRecipe(derived.stated, rule, names_of_nodes, edges.knn, edges.knn_below)
    return fields


def read_or_draft_questions(
    folder: Path, corpus: FolderCorpus, graph: CorpusGraph, count: int, shares: Mapping[str, float] | None
) -> list[Draft]:
    """Return drafted questions: the first ones of ``drafted.jsonl`` if it exists, otherwise new ones.

    Args:
        folder: Data set folder.
        corpus: Documents of the folder.
        graph: Graph of the documents.
        count: Maximum number of questions.
        shares: Weights of the kinds of new questions. If None, the defaults are used.

    Returns:
        Drafted questions.

    Raises:
        UserError: If ``drafted.jsonl`` is malformed, or if a share is invalid.
    """
    path = folder / DRAFTED_FILE
    if path.is_file():
        return read_drafted(path, corpus.node_number)[:count]
    return draft_questions(graph, count, shares=shares)


def _num_pairs(edges: Edges) -> int:
    """Return the number of distinct pairs of nodes joined by edges."""
    return len(torch.unique(edges[0].sort(dim=1).values, dim=0))
