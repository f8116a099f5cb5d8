"""Steps from a data set folder to the parts of a :class:`~graphrerank.data.dataset.Dataset`.

The folder is the format of users' own data: BEIR's layout with edges and entities (docs/your_data.md).
:meth:`Dataset.from_folder <graphrerank.data.dataset.Dataset.from_folder>` runs the steps in this order: check the
settings, read the corpus and filter it, read the judged queries, read edges, derive further edges, build the graph,
note what has to be found again for a part of the corpus, and draft questions.
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
    EdgeRule,
    Edges,
    FoundEdges,
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
EDGES_FILE = "edges.tsv"  # read if present
AUTO = "auto"  # in place of names of edge files: every kind of edge that the texts give
AUTO_KNN = 10  # edges of each passage to its nearest neighbours with `edges=auto`
# Sources of edges, as `edge_counts` names them.
FILE_EDGES, MENTIONS, CHUNKS, RANDOM = "file", "mentions", "neighbouring chunks", "random"


class FolderCorpus(NamedTuple):
    """Documents of a data set folder that become passages.

    Attributes:
        node_number: Passage number of each document id of the folder. ``FILTERED`` (-1) for documents that
            ``corpus_where`` leaves out and ``EMPTY`` (-2) for documents without title and text.
        documents: The documents that become passages, in the order of their numbers.
    """

    node_number: dict[str, int]
    documents: list[CorpusRecord]


@dataclass(frozen=True)
class EdgeSettings:
    """Edges to derive from the documents of a folder; :meth:`Dataset.from_folder` describes each setting.

    Attributes:
        is_automatic: Whether ``edges`` is ``auto``, so that settings that are None are decided by looking at the
            documents.
        mentions: Whether to search for edges by mentions of titles.
        adjacency: Whether to join neighbouring chunks of a document.
        entities: Source of entities.
        max_entity_share: Maximum share of documents that may share an entity.
        knn: Number of edges from each document to its nearest neighbours.
        num_random: Number of random edges of each document.
        cache: Folder that keeps extracted entities.
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
        """The choices of ``edges=auto``, which are made again for parts of the corpus; None for other edges."""
        if not self.is_automatic:
            return None
        return AutomaticChoices(mentions=self.mentions, adjacency=self.adjacency is None)


@dataclass(frozen=True)
class FolderEdges:
    """Edges of a data set folder.

    Attributes:
        by_source: Edges of public files, and derived edges, by their source.
        derived: What the derived edges follow from.
        incidence: Which document contains which entity. None without entities.
        knn: Number of edges from each document to its nearest neighbours, to be added once there are vectors.
        knn_below: Number of neighbours from which on a document gets no such edges. None if every document gets them.
    """

    by_source: Mapping[str, Edges]
    derived: DerivedEdges
    incidence: EntityIncidence | None
    knn: int
    knn_below: int | None

    def counts(self) -> dict[str, int]:
        """Return the number of joined pairs of documents by source: first files and mentions, then the others."""
        sources = [
            source for source in dict.fromkeys([FILE_EDGES, MENTIONS, *self.by_source]) if source in self.by_source
        ]
        return {source: _num_pairs(self.by_source[source]) for source in sources}


def check_edge_settings(*, language: str, num_random: int, knn: int | None) -> None:
    """Check the settings that can be checked before anything is read.

    Raises:
        UserError: If the language is unknown or a number is negative.
    """
    if language != AUTO_LANGUAGE:
        language_of(language)
    check_not_negative(random_edges=num_random)
    check_not_negative(knn=knn or 0)


def read_corpus(folder: Path, where: Mapping[str, Any] | None, *, drop_empty: bool) -> FolderCorpus:
    """Read the corpus of a folder and number the documents that become passages.

    Args:
        folder: The data set folder.
        where: Entries that the metadata of a document must have. None keeps all documents.
        drop_empty: Whether to leave out documents without title and text without a warning.

    Raises:
        UserError: If a file is missing or malformed, or no document is left.
    """
    corpus = number_documents(read_all_documents(folder, drop_empty=drop_empty), where)
    if not corpus.documents:
        is_filtered = where and corpus.node_number
        wanted = f" with {dict(where or {})} in its metadata (`corpus_where`)" if is_filtered else ""
        raise UserError(f"{folder}: the corpus must hold a document{wanted}, found none")
    return corpus


def number_documents(documents: Iterable[CorpusRecord], where: Mapping[str, Any] | None = None) -> FolderCorpus:
    """Number the documents that have a title or a text and match a filter on their metadata.

    Args:
        documents: Documents with unique ids.
        where: Entries that the metadata must have, with a list for alternatives. None for no filter.

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
    for key, wanted in where.items():
        is_list = isinstance(wanted, Sequence) and not isinstance(wanted, str)
        if key not in metadata or metadata[key] not in (wanted if is_list else [wanted]):
            return False
    return True


def edge_files(folder: Path, edges: str | Sequence[str] | None) -> list[Path]:
    """Return the paths of the edge files to read.

    Args:
        folder: The data set folder.
        edges: Names of files in the folder. None and ``auto`` for ``edges.tsv``, if there is one.

    Raises:
        UserError: If it is another text, such as the name of one file.
    """
    if edges is None or edges == AUTO:
        return [folder / EDGES_FILE] if (folder / EDGES_FILE).is_file() else []
    if isinstance(edges, str):
        raise UserError(f"`edges` must be a list of files in {folder}, null, or {AUTO!r}, got {edges!r}")
    return [folder / file for file in edges]


def derive_edges(folder: Path, corpus: FolderCorpus, file_edges: FileEdges, settings: EdgeSettings) -> FolderEdges:
    """Find the edges that follow from documents: by chunks, mentions and shared entities; and draw random edges.

    Args:
        folder: The data set folder.
        corpus: Its documents.
        file_edges: Edges that its files state.
        settings: Kinds of edges to derive.

    Raises:
        UserError: If documents lack what a setting needs.
    """
    documents = corpus.documents
    stated: dict[str, Edges] = {FILE_EDGES: (file_edges.pairs, file_edges.weight, file_edges.types)}
    if (chunks := chunk_edges(folder, documents, settings)) is not None:
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
        pairs, num_edges = joined(by_source.values())[0], settings.num_random * len(documents)
        by_source[RANDOM] = of_type(random_edges(pairs, num_edges, num_nodes=len(documents)), OTHER)
        derived = replace(derived, stated=joined([derived.stated, by_source[RANDOM]]))
    knn, knn_below = nearest_neighbours(settings, len(documents))
    return FolderEdges(by_source, derived, incidence, knn, knn_below)


def mention_type(documents: Sequence[CorpusRecord], file_edges: FileEdges, settings: EdgeSettings) -> int | None:
    """Return the type of edges by mentions. None if they are not searched for."""
    if settings.automatic is not None:
        return settings.automatic.mention_type(file_edges.types, (document.title for document in documents))
    return REFERENCE if settings.mentions else None


def chunk_edges(folder: Path, documents: Sequence[CorpusRecord], settings: EdgeSettings) -> Edges | None:
    """Return the edges between neighbouring chunks of a document. None if chunks are not joined.

    Raises:
        UserError: If ``adjacency`` is set and a document does not say which chunk it is, or two have one place.
    """
    if settings.adjacency:
        return of_type(adjacency_edges(*chunk_keys(folder, documents)), ADJACENCY)
    if settings.automatic is not None:
        return settings.automatic.neighbouring_chunks(document.metadata for document in documents)
    return None


def chunk_keys(folder: Path, documents: Sequence[CorpusRecord]) -> tuple[list[str], list[int]]:
    """Return the document that each passage is a chunk of, and its number there.

    Args:
        folder: The data set folder, for errors.
        documents: The passages.

    Raises:
        UserError: If the metadata of a passage lack one of the two. The error names the passage.
    """
    doc_ids, chunk_ids = list[str](), list[int]()
    for document in documents:
        place = place_in_document(document.metadata)
        if place is None:
            raise UserError(
                f"{folder}: `adjacency` needs a string `doc_id` and an integer `chunk_id` in the metadata of every "
                f"document, found {dict(document.metadata)} in {document.doc_id!r}"
            )
        doc_ids.append(place[0])
        chunk_ids.append(place[1])
    return doc_ids, chunk_ids


def entity_source(folder: Path, settings: EdgeSettings) -> str | KnowledgeExtractor | None:
    """Return the source of entities: with ``auto``, ``entities.jsonl`` if there is one, else spelling."""
    if not (isinstance(settings.entities, str) and settings.entities == AUTO):
        return settings.entities
    if not settings.is_automatic:
        return None
    return "file" if (folder / ENTITIES_FILE).is_file() else "spelling"


def entity_names(
    folder: Path, corpus: FolderCorpus, source: str | KnowledgeExtractor | None, cache: str | Path | None
) -> Sequence[AbstractSet[str]] | None:
    """Return the normalised names of the entities of each document. None without a source of entities."""
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
    """List the names of entities in each document.

    Args:
        folder: The data set folder.
        source: ``file`` for the folder's ``entities.jsonl``, the name of an extractor, or an extractor.
        node_number: Keys are the ids of all documents of the folder.
        documents: The documents.
        cache: Folder that keeps extracted entities, in its ``entities/``. None keeps nothing.

    Raises:
        UserError: If there is no such extractor, or ``entities.jsonl`` is malformed.
    """
    if source == "file":
        lines = read_entities(folder / ENTITIES_FILE, node_number, need_names=True)
        names = {line.doc_id: line.names for line in lines}
        return [names.get(document.doc_id, ()) for document in documents]
    extractor = EXTRACTORS[source]() if isinstance(source, str) and source in EXTRACTORS else source
    if isinstance(extractor, str) or not hasattr(extractor, "extract"):
        raise UserError(
            f"`entities` must be null, spelling, spacy, file or an extractor (a config with `_target_`, which is not "
            f"taken from a checkpoint's manifest: put its entities into {ENTITIES_FILE}), got {source!r}"
        )
    if cache is not None:
        extractor = KnowledgeCache(extractor, Path(cache) / "entities")
    passages = [document.passage for document in documents]
    return [knowledge.names for knowledge in extractor.extract(passages)] if passages else []


def nearest_neighbours(settings: EdgeSettings, num_nodes: int) -> tuple[int, int | None]:
    """Return the number of edges to nearest neighbours, and below how many neighbours a passage gets them."""
    if settings.automatic is None:
        return settings.knn or 0, None
    knn = AUTO_KNN if settings.knn is None else settings.knn
    return knn, settings.automatic.knn_below(num_nodes) if knn else None


def build_passages(
    documents: Sequence[CorpusRecord], relations: Sequence[tuple[str, str, str]], *, language: str
) -> Passages:
    """Return the passages of documents, with their metadata.

    Args:
        documents: The documents, which are not empty.
        relations: Relations that edge files state: which, and the ids of the two documents.
        language: Language in which words are matched; ``auto`` for that of the documents.
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
    """Join passages by all edges. Edges with principals are kept apart, for those who may see them.

    Unless ``edges`` is ``auto``, passages that share an entity are joined query by query.
    """
    entities = None if edges.derived.rule.makes_choices else edges.incidence
    return replace(graph_of(passages, edges.by_source.values(), entities), guarded=file_edges.guarded)


def edges_to_find_again(graph: CorpusGraph, edges: FolderEdges, *, keep_derived: bool) -> dict[str, Any]:
    """Return the fields of a data set from which edges are found again when passages are hidden or added.

    What the holders of some principals may see has edges of its own, since words, mentions and neighbours of hidden
    passages must not show in it.

    Args:
        graph: Graph of the corpus.
        edges: Its edges.
        keep_derived: Whether the corpus will grow.

    Returns:
        ``derived`` and ``found`` of :class:`~graphrerank.data.dataset.Dataset`, where there are such edges.
    """
    derived = edges.derived
    rule, names = derived.rule, derived.entity_names
    has_rule = rule.mention_type is not None or names is not None or (rule.makes_choices and graph.is_guarded)
    fields: dict[str, Any] = {}
    if has_rule and (keep_derived or graph.is_guarded):
        fields["derived"] = derived
    if graph.is_guarded and (has_rule or edges.knn):
        names_of_nodes = None if names is None else partial(chosen, names)
        fields["found"] = FoundEdges(derived.stated, rule, names_of_nodes, edges.knn, edges.knn_below)
    return fields


def read_or_draft_questions(
    folder: Path, corpus: FolderCorpus, graph: CorpusGraph, count: int, shares: Mapping[str, float] | None
) -> list[Draft]:
    """Return drafted questions: the first of ``drafted.jsonl``, if the folder has it, else new ones.

    Args:
        folder: The data set folder.
        corpus: Its documents.
        graph: Graph of its documents.
        count: Maximum number of questions.
        shares: Weights of the kinds of new questions. None for the defaults.
    """
    path = folder / DRAFTED_FILE
    if path.is_file():
        return read_drafted(path, corpus.node_number)[:count]
    return draft_questions(graph, count, shares=shares)


def _num_pairs(edges: Edges) -> int:
    """Return the number of different pairs of nodes that edges join."""
    return len(torch.unique(edges[0].sort(dim=1).values, dim=0))
