"""One data set: a corpus graph, queries, and relevance judgements by split."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.filters import Filter
from graphrerank.data.derived_edges import DerivedEdges, FoundEdges
from graphrerank.data.folder import (
    AUTO,
    NEEDED_FILES,
    EdgeSettings,
    build_graph,
    build_passages,
    check_edge_settings,
    derive_edges,
    edge_files,
    edges_to_find_again,
    read_corpus,
    read_or_draft_questions,
)
from graphrerank.data.qrels import Qrels
from graphrerank.data.readers.documents import Query
from graphrerank.data.readers.edges import read_edges
from graphrerank.data.readers.judgements import DEFAULT_SPLITS, TEST, TRAIN, VAL, Judgement, Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.data.synthetic_queries.questions import Draft
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text.languages import AUTO as AUTO_LANGUAGE
from graphrerank.text.languages import ENGLISH
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError, check_choice, check_not_negative
from graphrerank.utils.safe_loading import check_name, shown_name

NEAREST = "nearest"  # the type of edges to nearest neighbours
STATISTICS = ("visible", "global")
VALIDATION = 0.1  # share of drafted questions, the last ones


@dataclass(frozen=True, repr=False)
class Dataset:
    """A named corpus graph with queries and relevance judgements.

    Attributes:
        name: Short name, the key in reports and a part of file names. It must not be a path.
        graph: Graph of the passages.
        query_ids: Unique ids of the ``Q`` queries.
        query_texts: Texts of the ``Q`` queries.
        splits: Judgements by the name of the split. A query belongs to at most one split.
        knn: Number of edges to add from each passage to its nearest neighbours, once the graph is encoded. 0 for none.
        knn_below: Number of neighbours from which on a passage gets no such edges. None if every passage gets them.
        edge_counts: Number of joined pairs of passages by the source or type of the edge, if they were counted.
        answers: Correct answers by query id. No retriever reads them.
        encoded_by: Fingerprint of the encoder, if the graph came with vectors.
        derived: What the edges that were derived from passages follow from, if it was kept for a corpus that grows.
        found: What derived edges follow from, for a graph with restricted passages, so that callers get the edges that
            follow from what they may see.
        drafted: Whether questions of ``train`` and ``val`` were drafted from passages or edges.
        known_fingerprint: The fingerprint, if it was computed before.
        fingerprint: Hash of passages, edges, queries and judgements: the key of caches.
    """

    name: str
    graph: CorpusGraph
    query_ids: Sequence[str]
    query_texts: Sequence[str]
    splits: Mapping[str, Qrels]
    knn: int = 0
    knn_below: int | None = None
    edge_counts: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    encoded_by: str | None = None
    derived: DerivedEdges | None = None
    found: FoundEdges | None = None
    drafted: bool = False
    known_fingerprint: InitVar[str | None] = None
    fingerprint: str = field(init=False)

    def __post_init__(self, known_fingerprint: str | None) -> None:
        check_name(name=self.name)
        num_ids, different, num_texts = len(self.query_ids), len(set(self.query_ids)), len(self.query_texts)
        if not num_ids == different == num_texts:
            found = f"{num_ids} ids ({different} different) and {num_texts} texts"
            raise UserError(f"`query_ids` must be unique and match `query_texts`, got {found}")
        check_not_negative(knn=self.knn)
        owner = torch.full((len(self.query_ids),), -1)
        for index, (split, qrels) in enumerate(self.splits.items()):
            self._check_judgements(split, qrels)
            if len(shared := qrels.query[(owner[qrels.query] >= 0) & (owner[qrels.query] != index)]):
                found = f"{self.query_ids[int(shared[0])]!r} of {split!r} in another split as well"
                raise UserError(f"`splits` must not share queries, got {found}")
            owner[qrels.query] = index
        object.__setattr__(self, "fingerprint", known_fingerprint or self._digest())

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        splits: Splits = None,
        edges: str | Sequence[str] | None = None,
        edge_types: Sequence[str] | None = None,
        edge_meanings: Mapping[str, str] | None = None,
        corpus_where: Mapping[str, Any] | None = None,
        drop_empty: bool = False,
        drop_unknown: bool = False,
        mentions: bool | None = None,
        adjacency: bool | None = None,
        entities: str | KnowledgeExtractor | None = AUTO,
        max_entity_share: float = 0.001,
        knn: int | None = None,
        random_edges: int = 0,
        drafted: int = 0,
        drafted_shares: Mapping[str, float] | None = None,
        cache: str | Path | None = None,
        keep_derived: bool = False,
        language: str = AUTO_LANGUAGE,
    ) -> "Dataset":
        r"""Read and check a data set folder. The steps are in :mod:`~graphrerank.data.folder`.

        Args:
            path: Folder with ``corpus.jsonl``, ``queries.jsonl``, ``qrels/<split>.tsv`` and perhaps ``edges.tsv``
                (docs/your_data.md). A folder without queries and judgements is a corpus to search in.
            name: Short name of the data set. If None, the name of the folder.
            splits: Judgements to read. If None, every file of judgements is a split of its name, and queries without
                judgements stay. Otherwise only the queries of the splits are kept. A list holds names of files. A
                mapping gives the file of each split, perhaps with a share of its queries in the order of the file:
                ``{"train": "train[:90%]", "val": "train[90%:]"}``. ``auto`` and ``auto_documents`` divide all queries
                by a hash (:mod:`~graphrerank.data.readers.judgements`).
            edges: Names of edge files in the folder. If None, ``edges.tsv``, if the folder has it. If several edges of
                one type join two documents, the largest weight is kept. ``auto`` derives edges from any texts: besides
                those of ``edges.tsv``, edges by mentions if titles are names (of type ``entity`` if the file states
                references), between adjacent chunks, between a bounded number of documents that share entities, and,
                once there are vectors, between nearest neighbours. ``mentions``, ``adjacency``, ``entities`` and
                ``knn`` take precedence over these choices.
            edge_types: Types of edges to keep, as the files name them. If None, all are kept.
            edge_meanings: Meaning of each of the files' names of types, one of
                :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`. The key ``other`` is for all unknown names.
            corpus_where: Entries that the metadata of a document must have, with a list for alternatives:
                ``{"split": "dev"}``. Other documents are left out with their edges. A judgement of such a document is
                an error, so name the ``splits`` that fit. If None, all documents are kept.
            drop_empty: Whether to leave out documents without title and text silently. By default, a warning counts
                them.
            drop_unknown: Whether to leave out judgements and edges of ids that the corpus or the queries lack, with a
                warning that counts them. By default, they are an error.
            mentions: Whether to join documents if the title of one occurs in the text of the other. If None, only
                where ``edges="auto"`` decides so.
            adjacency: Whether to join documents with the same ``doc_id`` whose ``chunk_id`` differ by 1, both of which
                every document must then have in its metadata. If None, only where ``edges="auto"`` decides so.
            entities: Source of entities. Documents that share an entity are neighbours. One of ``spelling``, ``spacy``,
                ``file`` (the folder's ``entities.jsonl``), or an extractor. None for no entities. ``auto`` for the file
                or spelling with ``edges="auto"``, and for no entities otherwise. Unless ``edges`` is ``auto``, edges
                by shared entities are computed per query.
            max_entity_share: Share of the documents, in (0, 1]. Entities in more documents (and in more than 10) are
                ignored.
            knn: Number of edges to add from each document to its nearest neighbours, once there are vectors. If None,
                10 with ``edges="auto"`` and 0 otherwise.
            random_edges: Number of random edges to draw for each document, as noise. They have the type ``other`` and
                join documents that no other edge joins.
            drafted: Maximum number of drafted questions, which replace the splits ``train`` and ``val``: the first ones
                of ``drafted.jsonl``, if the folder has it, otherwise new ones
                (:func:`~graphrerank.data.synthetic_queries.questions.draft_questions`). 0 drafts none.
            drafted_shares: Weights of the kinds of new drafted questions, and the share of reworded ones. If None, the
                defaults of ``draft_questions``.
            cache: Folder that keeps extracted entities, in its ``entities/``. If None, nothing is kept.
            keep_derived: Whether to keep what derived edges follow from (``derived``), for a corpus folder that will
                grow.
            language: Language in which words are matched, a name of :mod:`~graphrerank.text.languages`. ``auto`` for
                that of the documents if their stop words are sure, else English.

        Returns:
            The data set. Its passages are the documents with a title or a text, in the order of the corpus.

        Raises:
            UserError: If a setting is out of range, or a file is missing or malformed. The error names file and line.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     (Path(folder) / "qrels").mkdir()
            ...     for file, lines in {
            ...         "corpus.jsonl": '{"_id": "paris", "title": "Paris", "text": "It lies on the Seine."}\n'
            ...         '{"_id": "seine", "title": "Seine", "text": "A river of France."}',
            ...         "queries.jsonl": '{"_id": "q", "text": "What crosses Paris?"}',
            ...         "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\tseine\t1",
            ...     }.items():
            ...         _ = (Path(folder) / file).write_text(lines)
            ...     dataset = Dataset.from_folder(folder, name="rivers", mentions=True)
            >>> dataset.summary()
            'rivers: 2 nodes, 1 edges (file 0, mentions 1), queries: test 1'
            >>> dataset.split("test").node
            tensor([1])
        """
        check_edge_settings(language=language, num_random=random_edges, knn=knn)
        folder = existing_folder(path, needed=NEEDED_FILES)
        corpus = read_corpus(folder, corpus_where, drop_empty=drop_empty)
        queries, judgements = read_judged_queries(folder, splits, corpus.node_number, drop_unknown=drop_unknown)
        file_edges = read_edges(
            edge_files(folder, edges), corpus.node_number, edge_types, edge_meanings, drop_unknown=drop_unknown
        )
        edge_settings = EdgeSettings(
            is_automatic=edges == AUTO,
            mentions=mentions,
            adjacency=adjacency,
            entities=entities,
            max_entity_share=max_entity_share,
            knn=knn,
            num_random=random_edges,
            cache=cache,
        )
        all_edges = derive_edges(folder, corpus, file_edges, edge_settings)
        passages = build_passages(corpus.documents, file_edges.relations, language=language)
        graph = build_graph(passages, file_edges, all_edges)
        dataset = cls.from_queries(
            name or folder.resolve().name,
            graph,
            queries,
            judgements,
            knn=all_edges.knn,
            knn_below=all_edges.knn_below,
            edge_counts=all_edges.counts(),
            **edges_to_find_again(graph, all_edges, keep_derived=keep_derived),
        )
        if not drafted:
            return dataset
        return dataset.with_drafts(read_or_draft_questions(folder, corpus, graph, drafted, drafted_shares))

    @classmethod
    def from_queries(
        cls,
        name: str,
        graph: CorpusGraph,
        queries: Sequence[Query],
        judged: Mapping[str, Iterable[Judgement]],
        **further: Any,
    ) -> "Dataset":
        """Combine a corpus with queries and their judgements.

        Args:
            name: Short name of the data set.
            graph: Graph of the passages.
            queries: The queries.
            judged: Judgements by the name of the split, with numbers of queries and passages.
            **further: Further fields of the data set.

        Raises:
            UserError: If queries or judgements are inconsistent.
        """
        return cls(
            name,
            graph,
            [query.query_id for query in queries],
            [query.text for query in queries],
            {split: Qrels.of(rows) for split, rows in judged.items()},
            answers={query.query_id: query.answers for query in queries if query.answers is not None},
            **further,
        )

    def split(self, name: str) -> Qrels:
        """Return the judgements of a split; a ValueError if there is no such split (:meth:`check_splits`)."""
        self.check_splits(name)
        return self.splits[name]

    def check_splits(self, *names: str) -> None:
        """Require splits; the ValueError says how to make them of those that there are."""
        for name in names:
            if name not in self.splits:
                made = _splits_of(list(self.splits))
                rule = "data.splits=auto, or " if len(self.splits) == 1 else ""
                remedy = f"; to divide what there is: {rule}'data.splits={{{made}}}'" if made else ""
                if self.drafted and name == TEST:
                    remedy = f"; no question was judged: add qrels/test.tsv, or test_split={VAL} for the drafted ones"
                raise UserError(f"data set {self.name!r} has the splits {list(self.splits)}, got {name!r}{remedy}")

    def merged(self) -> Qrels:
        """Join the judgements of all splits, of which there is one at least."""
        splits = list(self.splits.values())
        return Qrels(
            torch.cat([qrels.query for qrels in splits]),
            torch.cat([qrels.node for qrels in splits]),
            torch.cat([qrels.gain for qrels in splits]),
        )

    def with_graph(self, graph: CorpusGraph, **edge_counts: int) -> "Dataset":
        """Return the same data, of the same fingerprint, with a graph derived from this one; add ``edge_counts``."""
        counts = {**self.edge_counts, **edge_counts}
        return replace(self, graph=graph, edge_counts=counts, known_fingerprint=self.fingerprint)

    def with_queries(self, queries: Tensor) -> "Dataset":
        """Return the same corpus with some queries (``[Q']`` int64, ascending), renumbered, and their judgements."""
        number = torch.full((len(self.query_ids),), -1)
        number[queries] = torch.arange(len(queries))
        selected = {name: qrels.of_queries(queries) for name, qrels in self.splits.items()}
        ids = [self.query_ids[query] for query in queries.tolist()]
        return replace(
            self,
            query_ids=ids,
            query_texts=[self.query_texts[query] for query in queries.tolist()],
            splits={
                name: replace(qrels, query=number[qrels.query]) for name, qrels in selected.items() if len(qrels.query)
            },
            answers={query: self.answers[query] for query in ids if query in self.answers},
            known_fingerprint=short_hash(hash_texts([self.fingerprint, *ids])),
        )

    def where(self, conditions: Filter | None) -> "Dataset":
        """Return the data set of the passages that pass a filter. Queries stay, judgements of other passages go.

        Args:
            conditions: A filter on metadata (:mod:`~graphrerank.corpus.filters`). None or an empty one passes all.

        Raises:
            UserError: If it is no filter, or no passage passes.
        """
        if not conditions:
            return self
        passing = torch.from_numpy(self.graph.passing(conditions))
        if not bool(passing.any()):
            raise UserError(f"`filter` must let a passage of data set {self.name!r} pass, got none")
        nodes = passing.nonzero().flatten()
        splits = {name: qrels.of_nodes(passing) for name, qrels in self.splits.items()}
        return replace(
            self,
            graph=self.graph.select(nodes),
            splits={name: qrels for name, qrels in splits.items() if len(qrels.query)},
            edge_counts={},
            derived=None,
            found=None,
            known_fingerprint=short_hash(hash_texts([self.fingerprint, *map(str, nodes.tolist())])),
        )

    def seen_by(self, principals: AbstractSet[str], *, statistics: str = "visible") -> CorpusGraph:
        """Return the subgraph that is visible to some principals.

        Args:
            principals: Principals of the caller. Public passages are visible to everybody.
            statistics: With ``visible``, hidden passages and edges influence nothing: frequencies of words are those of
                the visible passages, and edges by mentions, shared entities and nearest neighbours are found again.
                ``global`` is faster and uses frequencies and edges of the whole corpus, which reveal something about
                hidden passages.

        Raises:
            UserError: If ``statistics`` is neither.
        """
        check_choice(STATISTICS, statistics=statistics)
        visible = self.graph.seen_by(principals, own_statistics=statistics == "visible")
        is_whole = visible.num_nodes == self.graph.num_nodes and self.graph.row_stop is None
        if self.found is None or statistics == "global" or (is_whole and self.graph.guarded is None):
            return visible
        return self.found.again(visible, self.graph, principals)

    def with_drafts(self, drafts: Sequence[Draft]) -> "Dataset":
        """Replace the queries of ``train`` and ``val`` by drafted questions, of which the last tenth is ``val``."""
        if not drafts:
            raise UserError(f"data set {self.name!r} must have passages with words to draft questions from, got none")
        judged = [qrels.query for split, qrels in self.splits.items() if split not in (TRAIN, VAL)]
        others = self.with_queries(torch.unique(torch.cat([torch.zeros(0, dtype=torch.int64), *judged])))
        first, num_train = len(others.query_ids), len(drafts) - int(VALIDATION * len(drafts))
        rows = [[(first + number, node, 1.0) for node in draft.nodes] for number, draft in enumerate(drafts)]
        rows_of_split = {TRAIN: rows[:num_train], VAL: rows[num_train:]}
        splits = {split: Qrels.of(chain.from_iterable(rows)) for split, rows in rows_of_split.items() if rows}
        return replace(
            others,
            query_ids=[*others.query_ids, *(f"drafted-{number}" for number in range(len(drafts)))],
            query_texts=[*others.query_texts, *(draft.text for draft in drafts)],
            splits={**splits, **others.splits},
            drafted=True,
            known_fingerprint=None,
        )

    def __repr__(self) -> str:
        """Return the summary, without texts and tensors, for notebooks and debuggers."""
        return f"Dataset({self.summary()})"

    def summary(self, *, encoded: bool = True) -> str:
        """Describe nodes, edges, and queries per split in one line; ``encoded`` is whether there is an encoder."""
        queries = ", ".join(f"{shown_name(name)} {len(qrels.queries):,}" for name, qrels in self.splits.items())
        types = [f"{shown_name(name)} {count:,}" for name, count in self.edge_counts.items()]
        edges = f"{self.graph.num_edges // 2:,} edges" + (f" ({', '.join(types)})" if types else "")
        if self.graph.entities is not None:
            edges += f", {self.graph.entities.num_entities:,} shared entities"
        if self.knn and NEAREST not in self.edge_counts:
            few = self.knn_below is not None and self.knn_below < self.graph.num_nodes
            which = f"{self.knn} nearest of each" + (f" with fewer than {self.knn_below} neighbours" if few else "")
            edges += f", {which} to come" if encoded else f", not the {which}: no encoder"
        language = self.graph.passages.language
        words = "" if language == ENGLISH else f", words of {language}"
        return f"{self.name}: {self.graph.num_nodes:,} nodes, {edges}, queries: {queries}{words}"

    @property
    def has_edges(self) -> bool:
        """Whether there are edges, or will be once it is encoded."""
        return self.graph.num_edges > 0 or self.graph.entities is not None or self.knn > 0

    @property
    def needs_vectors(self) -> bool:
        """Whether its edges cannot do without an encoder."""
        return self.knn > 0 and self.knn_below is None

    def _check_judgements(self, split: str, qrels: Qrels) -> None:
        num_queries, num_nodes = len(self.query_ids), self.graph.num_nodes
        if not qrels.query.numel():
            raise UserError(f"`splits` must each hold a judgement, got none in {split!r} of data set {self.name!r}")
        for bad, needed in (
            ((qrels.query < 0) | (qrels.query >= num_queries), f"judge queries 0 to {num_queries - 1}"),
            ((qrels.node < 0) | (qrels.node >= num_nodes), f"judge nodes 0 to {num_nodes - 1}"),
            (~(qrels.gain > 0), "give positive gains"),
        ):
            if bad.any():
                row = int(bad.nonzero()[0])
                got = f"query {int(qrels.query[row])}, node {int(qrels.node[row])}, gain {float(qrels.gain[row])}"
                raise UserError(f"`splits` must each {needed}, got {got} in {split!r}")
        if len(torch.unique(qrels.query * num_nodes + qrels.node)) < len(qrels.query):
            raise UserError(f"`splits` must judge a pair of query and node once, got one twice in {split!r}")

    def _digest(self) -> str:
        sha = hashlib.sha256()
        for strings in (self.graph.node_ids, self.graph.texts, self.query_ids, self.query_texts, tuple(self.splits)):
            sha.update(hash_texts(strings))
        tensors = [self.graph.indptr, self.graph.indices, self.graph.weight]
        tensors += [column for qrels in self.splits.values() for column in (qrels.query, qrels.node, qrels.gain)]
        if self.graph.entities is not None:
            tensors += [self.graph.entities.indptr, self.graph.entities.indices, self.graph.entities.sizes]
        if self.knn:
            tensors.append(torch.tensor([self.knn, *([] if self.knn_below is None else [self.knn_below])]))
        if self.graph.passages.language != ENGLISH:
            sha.update(self.graph.passages.language.encode())
        for tensor in tensors:
            sha.update(tensor.numpy().tobytes())
        return sha.hexdigest()


def _splits_of(names: Sequence[str]) -> str:
    """Write a setting that makes train, val and test of the splits that there are; empty where it is not clear how."""
    held_out = "dev" if TEST not in names and "dev" in names else TEST
    if len(names) == 1:
        return ", ".join(
            f'{name}: "{names[0]}[{part}]"' for name, part in zip((TRAIN, VAL, TEST), DEFAULT_SPLITS, strict=True)
        )
    if TRAIN in names and VAL not in names and held_out in names:
        return f'{TRAIN}: "{TRAIN}[:90%]", {VAL}: "{TRAIN}[90%:]", {TEST}: {held_out}'
    return ""
