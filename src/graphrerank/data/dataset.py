"""Data set: a corpus graph, queries, and relevance judgements by split."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import warn_renamed
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.filters import Filter
from graphrerank.data.derived_edges import DerivedEdges, EdgeRecipe
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
from graphrerank.utils.visibility import STATISTICS

NEAREST = "nearest"  # Name of the edges to nearest neighbours in `edge_counts`.
VALIDATION = 0.1  # Share of the drafted questions in the validation split.
# Next steps for a data set without judged questions, for messages.
JUDGE = "Judge about 15 of your own questions in the browser (graphrerank judge FOLDER)"
_TRAIN_ON_DRAFTS = "train on drafted ones (data.drafted=1500; in Python: drafted=1500)"
_EVALUATE_ON_DRAFTS = f"evaluate on drafted ones (data.drafted=1500 split={VAL}; in Python: drafted=1500)"


@dataclass(frozen=True, repr=False)
class Dataset:
    """Named corpus graph with queries and relevance judgements.

    Attributes:
        name: Short name, used in reports and file names. It must not be a path.
        graph: Graph of the passages.
        query_ids: Unique ids of the ``Q`` queries.
        query_texts: Texts of the ``Q`` queries.
        splits: Judgements by the name of the split. A query belongs to at most one split.
        knn: Number of edges to add from each passage to its nearest neighbours once the graph has vectors. 0 disables
            them.
        knn_below: Only passages with fewer neighbours than this get ``knn`` edges. If None, all passages get them.
        edge_counts: Number of pairs of passages joined by edges, by the source or type of the edges. Empty if unknown.
        answers: Correct answers by query id. Retrievers do not see them.
        encoded_by: Fingerprint of the encoder of the vectors that came with the graph. None if there are no vectors.
        derived: Sources of the derived edges, kept for a corpus folder that grows. None if they were discarded.
        edge_recipe: Recipe for the derived edges of a visible subgraph. None if all passages and edges are public.
        drafted: Whether the questions of ``train`` and ``val`` were drafted from passages or edges.
        known_fingerprint: Fingerprint, if it was computed before. If None, it is computed.
        fingerprint: Hash of passages, edges, queries and judgements, used as a cache key.
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
    edge_recipe: EdgeRecipe | None = None
    drafted: bool = False
    known_fingerprint: InitVar[str | None] = None
    fingerprint: str = field(init=False)

    def __post_init__(self, known_fingerprint: str | None) -> None:
        check_name(name=self.name)
        num_ids, num_texts = len(self.query_ids), len(self.query_texts)
        num_distinct = len(set(self.query_ids))
        if not num_ids == num_distinct == num_texts:
            counts = f"{num_ids} ids ({num_distinct} distinct) and {num_texts} texts"
            raise UserError(f"`query_ids` must be unique and match `query_texts`, got {counts}")
        check_not_negative(knn=self.knn)
        is_in_earlier_split = torch.zeros(num_ids, dtype=torch.bool)
        for split, qrels in self.splits.items():
            self._check_judgements(split, qrels)
            shared = qrels.query[is_in_earlier_split[qrels.query]]
            if len(shared):
                query = self.query_ids[int(shared[0])]
                raise UserError(f"`splits` must not share queries, got {query!r} in {split!r} and in another split")
            is_in_earlier_split[qrels.query] = True
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
        r"""Load a data set folder.

        The format is described in docs/your_data.md, and the steps are functions of :mod:`~graphrerank.data.folder`.

        Args:
            path: Folder with ``corpus.jsonl``, ``queries.jsonl``, ``qrels/<split>.tsv`` and, optionally, ``edges.tsv``.
                Queries and judgements may be missing if the corpus is only searched.
            name: Short name of the data set. If None, the name of the folder.
            splits: Judgements to load. If None, each file of judgements becomes a split, and queries without judgements
                are kept. Otherwise only queries in the splits are kept. A list contains names of files. A mapping
                assigns a file to each split, optionally with a range of its queries:
                ``{"train": "train[:90%]", "val": "train[90%:]"}``. ``auto`` and ``auto_documents`` divide all queries
                by a hash (:mod:`~graphrerank.data.readers.judgements`).
            edges: Names of edge files in the folder. If None, ``edges.tsv`` is used if it exists. Duplicate edges of
                the same type are merged with the largest weight. ``auto`` adds derived edges to those of ``edges.tsv``:
                mentions of titles, if titles are names; adjacent chunks; a bounded number of documents with shared
                entities; and nearest neighbours, once there are vectors. Edges by mentions have the type ``entity`` if
                ``edges.tsv`` contains references, otherwise ``reference``. ``mentions``, ``adjacency``, ``entities``
                and ``knn`` override these choices.
            edge_types: Types of edges to load, as named in the files. If None, all types are loaded.
            edge_meanings: Meaning of each type in the files, one of
                :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`. The key ``other`` applies to all unknown types.
            corpus_where: Required metadata of documents, such as ``{"split": "dev"}``. A list contains alternatives.
                Other documents are omitted with their edges. Judgements of omitted documents are an error, so choose
                ``splits`` accordingly. If None, all documents are loaded.
            drop_empty: Whether to omit documents without title and text silently. By default, they are omitted with a
                warning.
            drop_unknown: Whether to omit judgements and edges with unknown ids, with a warning. By default, they raise
                an error.
            mentions: Whether to join documents if the text of one contains the title of the other. If None, they are
                joined only with ``edges="auto"`` and if titles are names.
            adjacency: Whether to join documents with the same ``doc_id`` and consecutive ``chunk_id`` in their
                metadata. All documents must then have both fields. If None, they are joined only with
                ``edges="auto"`` and if all documents have both fields.
            entities: Source of entities: ``spelling``, ``spacy``, ``file`` (``entities.jsonl`` in the folder), an
                extractor, or None for no entities. Documents that share an entity are neighbours. The default ``auto``
                uses the file or, if it is missing, spelling with ``edges="auto"``, and no entities otherwise. Unless
                ``edges`` is ``auto``, edges by shared entities are computed per query.
            max_entity_share: Maximum share of documents with an entity, in (0, 1]. Entities in more documents (and in
                more than 10) are ignored.
            knn: Number of edges to add from each document to its nearest neighbours once there are vectors. If None,
                10 with ``edges="auto"`` and 0 otherwise.
            random_edges: Number of random edges per document, as noise. They have the type ``other`` and join documents
                that are not joined otherwise.
            drafted: Maximum number of drafted questions, which replace the splits ``train`` and ``val``. The first
                questions of ``drafted.jsonl`` are used if it exists; otherwise they are drafted by
                :func:`~graphrerank.data.synthetic_queries.questions.draft_questions`. 0 disables drafting.
            drafted_shares: Weights of the kinds of drafted questions, and the share of reworded questions. If None, the
                defaults of ``draft_questions`` are used.
            cache: Folder that caches extracted entities in its subfolder ``entities``. If None, they are not cached.
            keep_derived: Whether to keep the sources of derived edges (``derived``), for a corpus folder that will
                grow.
            language: Language in which words are matched, a name in :mod:`~graphrerank.text.languages`. ``auto``
                detects the language by stop words, and uses English if the result is uncertain.

        Returns:
            Data set whose passages are the documents with a title or a text, in the order of the corpus.

        Raises:
            UserError: If a setting is out of range, or if a file is missing or malformed. The message names file and
                line.

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
        """Create a data set from a corpus, queries and judgements.

        Args:
            name: Short name of the data set.
            graph: Graph of the passages.
            queries: Queries with unique ids.
            judged: Judgements by the name of the split, with query numbers and passage numbers.
            **further: Other fields of the data set.

        Returns:
            The data set.

        Raises:
            UserError: If queries or judgements are inconsistent.
        """
        return cls(
            name,
            graph,
            [query.query_id for query in queries],
            [query.text for query in queries],
            {split: Qrels.from_rows(rows) for split, rows in judged.items()},
            answers={query.query_id: query.answers for query in queries if query.answers is not None},
            **further,
        )

    def split(self, name: str) -> Qrels:
        """Return the judgements of a split.

        Args:
            name: Name of the split.

        Returns:
            Judgements of the split.

        Raises:
            UserError: If the split does not exist.
        """
        self.check_splits(name)
        return self.splits[name]

    def check_splits(self, *names: str) -> None:
        """Require that splits exist.

        Args:
            *names: Names of the splits.

        Raises:
            UserError: If a split does not exist. The message suggests how to create it from the existing splits.
        """
        for name in names:
            if name not in self.splits:
                raise UserError(self._missing_split(name))

    def _missing_split(self, name: str) -> str:
        """Return the error message for a split that does not exist, with the next step."""
        if not self.splits:
            use_drafts = _EVALUATE_ON_DRAFTS if name == TEST else _TRAIN_ON_DRAFTS
            return (
                f"data set {self.name!r} has no judged questions, so there is no split {name!r}. {JUDGE}, or "
                f"{use_drafts}. Models can be trained on drafted questions, but results on them do not show what users "
                "will see"
            )
        missing = f"data set {self.name!r} must have the split {name!r}, got the splits {list(self.splits)}"
        if self.drafted and name == TEST:
            return (
                f"{missing}; only drafted questions are judged. {JUDGE}, or use split={VAL} (train: test_split={VAL})"
            )
        division = _division_setting(list(self.splits))
        if not division:
            return missing
        if len(self.splits) > 1:
            return f"{missing}; to divide the existing splits: 'data.splits={{{division}}}'"
        message = (
            f"{missing}; to divide the existing splits: data.splits=auto, or 'data.splits={{{division}}}' "
            '(in Python: splits="auto")'
        )
        if name == TRAIN and TEST in self.splits:
            message += f". With few judged questions, {_TRAIN_ON_DRAFTS}"
        return message

    def merged(self) -> Qrels:
        """Return the judgements of all splits."""
        splits = list(self.splits.values())
        return Qrels(
            torch.cat([qrels.query for qrels in splits]),
            torch.cat([qrels.node for qrels in splits]),
            torch.cat([qrels.gain for qrels in splits]),
        )

    def with_graph(self, graph: CorpusGraph, **edge_counts: int) -> "Dataset":
        """Return a copy with another graph of the same passages, and with the same fingerprint.

        Args:
            graph: Graph derived from the current one.
            **edge_counts: Number of pairs of passages joined by new edges, by source.

        Returns:
            Copy with the graph.
        """
        counts = {**self.edge_counts, **edge_counts}
        return replace(self, graph=graph, edge_counts=counts, known_fingerprint=self.fingerprint)

    def with_queries(self, queries: Tensor) -> "Dataset":
        """Return a copy that contains only the given queries and their judgements.

        Args:
            queries: Sorted query numbers ``[Q']`` int64. Queries are renumbered in this order.

        Returns:
            Data set over the same corpus.
        """
        number = torch.full((len(self.query_ids),), -1)
        number[queries] = torch.arange(len(queries))
        selected = {name: qrels.select_queries(queries) for name, qrels in self.splits.items()}
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
        """Return a copy that contains only the passages that match a filter.

        All queries are kept. Judgements of other passages are removed.

        Args:
            conditions: Filter on metadata (:mod:`~graphrerank.corpus.filters`). None or an empty filter matches all
                passages.

        Returns:
            Data set over the matching passages.

        Raises:
            UserError: If the filter is invalid or matches no passage.
        """
        if not conditions:
            return self
        passing = torch.from_numpy(self.graph.passing(conditions))
        if not bool(passing.any()):
            raise UserError(
                f"`filter` must match a passage of data set {self.name!r}, got {conditions!r}, which matches none"
            )
        nodes = passing.nonzero().flatten()
        splits = {name: qrels.select_nodes(passing) for name, qrels in self.splits.items()}
        return replace(
            self,
            graph=self.graph.select(nodes),
            splits={name: qrels for name, qrels in splits.items() if len(qrels.query)},
            edge_counts={},
            derived=None,
            edge_recipe=None,
            known_fingerprint=short_hash(hash_texts([self.fingerprint, *map(str, nodes.tolist())])),
        )

    def seen_by(self, principals: AbstractSet[str], *, statistics: str = "visible") -> CorpusGraph:
        """Return the subgraph that is visible to the given principals.

        Args:
            principals: Principals of the caller. Public passages are visible to everybody.
            statistics: With ``visible``, hidden passages and edges do not influence the result. Word frequencies are
                those of the visible passages, and derived edges (mentions, shared entities, nearest neighbours) are
                computed again. ``global`` is faster and uses word frequencies and edges of the whole corpus, which leak
                information about hidden passages.

        Returns:
            Graph of the visible passages.

        Raises:
            UserError: If ``statistics`` is unknown.
        """
        check_choice(STATISTICS, statistics=statistics)
        visible = self.graph.seen_by(principals, own_statistics=statistics == "visible")
        is_whole = visible.num_nodes == self.graph.num_nodes and self.graph.row_stop is None
        if self.edge_recipe is None or statistics == "global" or (is_whole and self.graph.guarded is None):
            return visible
        return self.edge_recipe.apply(visible, self.graph, principals)

    def with_drafts(self, drafts: Sequence[Draft]) -> "Dataset":
        """Replace the queries of ``train`` and ``val`` by drafted questions. The last tenth of them becomes ``val``.

        Args:
            drafts: Drafted questions.

        Returns:
            Copy with the drafted questions. Other splits are kept.

        Raises:
            UserError: If there are no questions.
        """
        if not drafts:
            raise UserError(f"data set {self.name!r} must have passages with words to draft questions from, got none")
        judged = [qrels.query for split, qrels in self.splits.items() if split not in (TRAIN, VAL)]
        others = self.with_queries(torch.unique(torch.cat([torch.zeros(0, dtype=torch.int64), *judged])))
        num_others = len(others.query_ids)
        judgements = [[(num_others + number, node, 1.0) for node in draft.nodes] for number, draft in enumerate(drafts)]
        num_train = len(drafts) - int(VALIDATION * len(drafts))
        judgements_of_split = {TRAIN: judgements[:num_train], VAL: judgements[num_train:]}
        drafted_splits = {
            split: Qrels.from_rows(chain.from_iterable(rows)) for split, rows in judgements_of_split.items() if rows
        }
        return replace(
            others,
            query_ids=[*others.query_ids, *(f"drafted-{number}" for number in range(len(drafts)))],
            query_texts=[*others.query_texts, *(draft.text for draft in drafts)],
            splits={**drafted_splits, **others.splits},
            drafted=True,
            known_fingerprint=None,
        )

    def __repr__(self) -> str:
        """Return the summary, without texts and tensors, for notebooks and debuggers."""
        return f"Dataset({self.summary()})"

    def summary(self, *, encoded: bool = True) -> str:
        """Describe nodes, edges, and queries per split in one line.

        Args:
            encoded: Whether there is an encoder, so that ``knn`` edges will be added.

        Returns:
            Line of text.
        """
        judged = [f"{shown_name(name)} {len(qrels.queries):,}" for name, qrels in self.splits.items()]
        queries = f"queries: {', '.join(judged)}" if judged else "no judged queries"
        types = [f"{shown_name(name)} {count:,}" for name, count in self.edge_counts.items()]
        edges = f"{self.graph.num_edges // 2:,} edges" + (f" ({', '.join(types)})" if types else "")
        if self.graph.entities is not None:
            edges += f", {self.graph.entities.num_entities:,} shared entities"
        if self.knn and NEAREST not in self.edge_counts:
            few = self.knn_below is not None and self.knn_below < self.graph.num_nodes
            passages = f"passages with fewer than {self.knn_below} neighbours" if few else "each passage"
            nearest = f"{self.knn} nearest neighbours of {passages}"
            edges += f", {nearest} to be added" if encoded else f", without the {nearest} (no encoder)"
        language = self.graph.passages.language
        words = "" if language == ENGLISH else f", language {language}"
        return f"{self.name}: {self.graph.num_nodes:,} nodes, {edges}, {queries}{words}"

    @property
    def found(self) -> EdgeRecipe | None:
        """Deprecated alias of ``edge_recipe``."""
        warn_renamed("Dataset.found", "Dataset.edge_recipe")
        return self.edge_recipe

    @property
    def has_edges(self) -> bool:
        """Whether there are edges, or will be once the graph has vectors."""
        return self.graph.num_edges > 0 or self.graph.entities is not None or self.knn > 0

    @property
    def needs_vectors(self) -> bool:
        """Whether the edges cannot be completed without an encoder."""
        return self.knn > 0 and self.knn_below is None

    def _check_judgements(self, split: str, qrels: Qrels) -> None:
        num_queries, num_nodes = len(self.query_ids), self.graph.num_nodes
        if not qrels.query.numel():
            raise UserError(f"split {split!r} of data set {self.name!r} has no judgements")
        for is_invalid, requirement in (
            ((qrels.query < 0) | (qrels.query >= num_queries), f"contain query numbers 0 to {num_queries - 1}"),
            ((qrels.node < 0) | (qrels.node >= num_nodes), f"contain node numbers 0 to {num_nodes - 1}"),
            (~(qrels.gain > 0), "contain positive gains"),
        ):
            if is_invalid.any():
                row = int(is_invalid.nonzero()[0])
                got = f"query {int(qrels.query[row])}, node {int(qrels.node[row])}, gain {float(qrels.gain[row])}"
                raise UserError(f"`splits` must {requirement}, got {got} in {split!r}")
        if len(torch.unique(qrels.query * num_nodes + qrels.node)) < len(qrels.query):
            raise UserError(
                f"`splits` must judge each pair of query and node at most once, got a duplicate in {split!r}"
            )

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


def _division_setting(names: Sequence[str]) -> str:
    """Return a setting that creates train, val and test from existing splits, or "" if it is unclear how."""
    held_out = "dev" if TEST not in names and "dev" in names else TEST
    if len(names) == 1:
        return ", ".join(
            f'{name}: "{names[0]}[{share}]"' for name, share in zip((TRAIN, VAL, TEST), DEFAULT_SPLITS, strict=True)
        )
    if TRAIN in names and VAL not in names and held_out in names:
        return f'{TRAIN}: "{TRAIN}[:90%]", {VAL}: "{TRAIN}[90%:]", {TEST}: {held_out}'
    return ""
