"""One data set: a corpus graph, queries, and relevance judgements by split."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_lists import adjacency_edges
from graphrerank.corpus.edge_types import ADJACENCY, OTHER, REFERENCE
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.corpus.filters import Filter
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.packed_strings import chosen
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import with_relations
from graphrerank.data.derived_edges import (
    AutomaticChoices,
    DerivedEdges,
    EdgeRule,
    Edges,
    FoundEdges,
    graph_of,
    joined,
    of_type,
)
from graphrerank.data.enrichment.neighbours import random_edges as draw_edges
from graphrerank.data.readers.documents import Query, read_edges
from graphrerank.data.readers.entities import ENTITIES
from graphrerank.data.readers.folder import EDGES, chunk_keys, entities_of, read_corpus
from graphrerank.data.readers.judgements import SHARES, TEST, TRAIN, VAL, Judgement, Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.data.synthetic_queries.questions import DRAFTED, Draft, draft_questions, read_drafted
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text.languages import AUTO, ENGLISH, detect_language, language_of
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError, check_choice, check_not_negative
from graphrerank.utils.safe_loading import check_name, shown_name

NEAREST = "nearest"  # the type of edges to nearest neighbours
AUTO_KNN = 10  # of `edges=auto`: edges to each passage's nearest ones by vectors
STATISTICS = ("visible", "global")
VALIDATION = 0.1  # share of drafted questions, the last ones


@dataclass(frozen=True)
class Qrels:
    """Relevance judgements of one split, in coordinates."""

    query: Tensor  # `[J]` int64, numbers of queries in the data set
    node: Tensor  # `[J]` int64, numbers of nodes in the corpus
    gain: Tensor  # `[J]` float32, positive

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float]]) -> "Qrels":
        """Convert rows of query number, node number and gain."""
        columns = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
        kinds = (torch.int64, torch.int64, torch.float32)
        return cls(*(torch.tensor(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))

    @property
    def queries(self) -> Tensor:
        """``[Q]`` int64, the queries that have a judgement, ascending."""
        return torch.unique(self.query)

    def of_queries(self, queries: Tensor) -> "Qrels":
        """Keep the judgements of some queries, ``[Q']``."""
        kept = torch.isin(self.query, queries)
        return Qrels(self.query[kept], self.node[kept], self.gain[kept])

    def relevance(self, queries: Tensor, nodes: Tensor, *, num_nodes: int) -> Tensor:
        """Look up the gains ``[B, K]`` float32, or 0, of nodes ``[B, K]``, padded with -1, for queries ``[B]``."""
        key, order = torch.sort(self.query * num_nodes + self.node)
        pair_key = queries[:, None] * num_nodes + nodes
        slot = torch.searchsorted(key, pair_key).clamp(max=key.numel() - 1)
        return torch.where((key[slot] == pair_key) & (nodes >= 0), self.gain[order][slot], 0.0)

    def gains(self, queries: Tensor) -> Tensor:
        """List all gains of each query, ``[B, R]`` padded with 0: those of a perfect ranking."""
        order = torch.argsort(self.query, stable=True)
        query, gain = self.query[order], self.gain[order]
        start = torch.searchsorted(query, queries)
        count = torch.searchsorted(query, queries, right=True) - start
        slot = torch.arange(int(count.max()) if count.numel() else 0)
        inside = slot < count[:, None]
        return torch.where(inside, gain[(start[:, None] + slot).clamp(max=max(gain.numel() - 1, 0))], 0.0)

    def share_complete(self, queries: Tensor, nodes: Tensor, *, num_nodes: int) -> float:
        """Return the share of some queries whose relevant nodes are all among their nodes (as :meth:`relevance`)."""
        held = self.relevance(queries, nodes, num_nodes=num_nodes) > 0
        return float((held.sum(1) == (self.gains(queries) > 0).sum(1)).double().mean())


@dataclass(frozen=True)
class Dataset:
    """A named corpus graph with queries and relevance judgements."""

    name: str  # short name, the key in reports and a part of files' names: no path
    graph: CorpusGraph
    query_ids: Sequence[str]  # `Q` unique strings
    query_texts: Sequence[str]  # `Q` strings
    splits: Mapping[str, Qrels]  # judgements by split name; a query belongs to one split at most
    knn: int = 0  # edges to add from each node to its nearest neighbours, once the graph is encoded; 0 for none
    knn_below: int | None = None  # nodes with fewer neighbours get these edges; None: every node does
    edge_counts: Mapping[str, int] = field(default_factory=dict)  # pairs of nodes by type of edge, if counted
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by query id; no retriever reads them
    encoded_by: str | None = None  # fingerprint of the encoder of vectors that came with the graph
    derived: DerivedEdges | None = None  # the graph's edges by origin, where some follow from its passages
    found: FoundEdges | None = None  # of a guarded graph: what edges of its parts follow from, where some do
    drafted: bool = False  # whether questions of train and val were made from its passages or edges
    known_fingerprint: InitVar[str | None] = None  # the fingerprint, where it was computed before
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
        language: str = AUTO,
    ) -> "Dataset":
        """Read and check a data set folder (:mod:`~graphrerank.data.readers.folder` describes its files).

        Args:
            path: The folder.
            name: Short name; the folder's name if None.
            splits: Judgements to read. None: every file, under its name; queries without judgements stay, else only
                those of the splits are kept. A list of names, or a mapping from a split's name to a file's, perhaps
                with a share of its queries in the file's order: ``{"train": "train[:90%]", "val": "train[90%:]"}``.
                ``auto`` and ``auto_documents`` divide all queries (:mod:`~graphrerank.data.readers.judgements`).
            edges: Names of edge files in the folder; ``edges.tsv``, if present, if None. Of several edges of one type
                between two documents the largest weight is kept. ``auto`` finds edges in any texts: ``edges.tsv``, if
                present; mentions, if titles are names (of type ``entity`` if the file states references); adjacent
                chunks; a bounded number by shared entities; and, once there are vectors, nearest neighbours.
                ``mentions``, ``adjacency``, ``entities`` and ``knn`` that are given take precedence.
            edge_types: Types of edges to keep, as the files name them; None keeps all.
            edge_meanings: Meaning of the files' names of types, one of
                :data:`~graphrerank.corpus.edge_types.EDGE_TYPES` for each, ``other`` for all unknown names.
            corpus_where: Keep only documents whose metadata holds these entries (for a list: one of its members), and
                the edges among them: ``{"split": "dev"}``. Judgements of other documents are an error: name the
                ``splits`` of the documents kept.
            drop_empty: Leave out documents without title and text without the warning that counts them.
            drop_unknown: Leave out judgements and edges of ids that the corpus or the queries lack, which are an error
                otherwise; a warning counts them.
            mentions: Join documents if the title of one occurs in the text of the other. None: as ``edges`` says; so
                for the next two and ``knn``.
            adjacency: Join documents of one ``doc_id`` whose ``chunk_id`` differ by 1, both in everyone's metadata.
            entities: Source of entities; documents that share one are neighbours: ``spelling``, ``spacy``, ``file`` for
                the folder's ``entities.jsonl``, or an extractor; None for none; ``auto`` as ``edges`` says. Unless
                ``edges`` is ``auto``, their edges are computed per query.
            max_entity_share: Share of the documents, in (0, 1]; an entity in more (and in more than 10) is ignored.
            knn: Edges to add from each document to its nearest neighbours, once there are vectors; 0 for none.
            random_edges: Noise: edges to draw for each document, of type ``other``, between two that no edge joins.
            drafted: Maximum number of drafted questions, which replace the splits ``train`` and ``val``: the first of
                ``drafted.jsonl``, if present, else of
                :func:`~graphrerank.data.synthetic_queries.questions.draft_questions`.
            drafted_shares: Weights of the kinds of questions drafted here, and the share of reworded ones.
            cache: Folder that keeps extracted entities, in its ``entities/``; None keeps nothing.
            keep_derived: Whether to keep edges by origin (``derived``), for a corpus folder that will grow.
            language: Language in which words are matched, a name of :mod:`~graphrerank.text.languages`; ``auto``: that
                of the documents, else English.

        Raises:
            ValueError: If a file is missing or malformed, naming file and line.
        """
        if language != AUTO:
            language_of(language)  # refused before anything is read
        check_not_negative(random_edges=random_edges)
        check_not_negative(knn=knn or 0)
        folder = existing_folder(path, needed="corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
        node_number, documents = read_corpus(folder, corpus_where, drop_empty=drop_empty)
        queries, judged = read_judged_queries(folder, splits, node_number, drop_unknown=drop_unknown)
        automatic = AutomaticChoices(mentions=mentions, adjacency=adjacency is None) if edges == AUTO else None
        if isinstance(edges, str) and automatic is None:
            raise UserError(f"`edges` must be a list of files in {folder}, null, or {AUTO!r}, got {edges!r}")
        if edges is None or automatic is not None:
            edges = [EDGES] if (folder / EDGES).is_file() else []
        files = [folder / file for file in edges]
        read = read_edges(files, node_number, edge_types, edge_meanings, drop_unknown=drop_unknown)
        stated: dict[str, Edges] = {"file": read[:3]}
        mention_type = REFERENCE if mentions else None
        chunks = None
        if automatic is not None:
            mention_type = automatic.mention_type(stated["file"][2], (document.title for document in documents))
            chunks = automatic.neighbouring_chunks(document.metadata for document in documents)
        if isinstance(entities, str) and entities == AUTO:
            found_in = "file" if (folder / ENTITIES).is_file() else "spelling"
            entities = found_in if automatic is not None else None
        if adjacency:
            chunks = of_type(adjacency_edges(*chunk_keys(folder, documents)), ADJACENCY)
        if chunks is not None:
            stated["neighbouring chunks"] = chunks
        names, source = None, None
        if entities is not None:
            source = entities if isinstance(entities, str) else type(entities).__name__
            names = normalized_names(entities_of(folder, entities, node_number, documents, cache=cache))
        rule = EdgeRule(
            mention_type=mention_type,
            entity_source=source,
            max_entity_share=max_entity_share,
            makes_choices=automatic is not None,
            automatic=automatic,
        )
        derived = DerivedEdges(joined(stated.values()), rule, names)
        found, incidence = derived.search([d.title for d in documents], [d.text for d in documents])
        found = stated | found
        if random_edges:
            drawn = draw_edges(joined(found.values())[0], random_edges * len(documents), num_nodes=len(documents))
            found["random"] = of_type(drawn, OTHER)
            derived = replace(derived, stated=joined([derived.stated, found["random"]]))
        texts = [document.passage for document in documents]
        lengths = torch.tensor([len(document.title) for document in documents], dtype=torch.int32)
        language = detect_language(texts) if language == AUTO else language
        passages = Passages([document.doc_id for document in documents], texts, lengths, language)
        records = with_relations({document.doc_id: document.metadata for document in documents}, read.relations)
        passages = replace(passages, metadata=Metadata(records) if any(records) else None)
        graph = graph_of(passages, found.values(), incidence if automatic is None else None)
        graph = replace(graph, guarded=read.guarded)
        sources = [source for source in dict.fromkeys(["file", "mentions", *found]) if source in found]
        counts = {of: len(torch.unique(found[of][0].sort(dim=1).values, dim=0)) for of in sources}  # different pairs
        knn = AUTO_KNN if automatic is not None and knn is None else knn or 0
        below = automatic.knn_below(len(documents)) if automatic is not None and knn else None
        nearest: dict[str, Any] = {"knn": knn, "knn_below": below}
        further: dict[str, Any] = {**nearest}
        follows = mention_type is not None or names is not None or (automatic is not None and graph.is_guarded)
        if (keep_derived or graph.is_guarded) and follows:
            further["derived"] = derived
        if graph.is_guarded and (follows or knn):
            names_of = None if names is None else partial(chosen, names)
            further["found"] = FoundEdges(derived.stated, rule, names_of, **nearest)
        name = name or folder.resolve().name
        dataset = cls.from_queries(name, graph, queries, judged, edge_counts=counts, **further)
        if not drafted:
            return dataset
        kept = folder / DRAFTED
        if kept.is_file():
            return dataset.with_drafts(read_drafted(kept, node_number)[:drafted])
        return dataset.with_drafts(draft_questions(graph, drafted, shares=drafted_shares))

    @classmethod
    def from_queries(
        cls,
        name: str,
        graph: CorpusGraph,
        queries: Sequence[Query],
        judged: Mapping[str, Iterable[Judgement]],
        **further: Any,
    ) -> "Dataset":
        """Combine a corpus with queries and their judgements by split; ``further`` are fields of the data set."""
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
        parts = list(self.splits.values())
        return Qrels(*(torch.cat([getattr(part, key) for part in parts]) for key in ("query", "node", "gain")))

    def with_graph(self, graph: CorpusGraph, **edge_counts: int) -> "Dataset":
        """Return the same data, of the same fingerprint, with a graph derived from this one; add ``edge_counts``."""
        counts = {**self.edge_counts, **edge_counts}
        return replace(self, graph=graph, edge_counts=counts, known_fingerprint=self.fingerprint)

    def with_queries(self, queries: Tensor) -> "Dataset":
        """Return the same corpus with some queries (``[Q']`` int64, ascending), renumbered, and their judgements."""
        number = torch.full((len(self.query_ids),), -1)
        number[queries] = torch.arange(len(queries))
        left = {name: qrels.of_queries(queries) for name, qrels in self.splits.items()}
        ids, texts = ([of[query] for query in queries.tolist()] for of in (self.query_ids, self.query_texts))
        return replace(
            self,
            query_ids=ids,
            query_texts=texts,
            splits={name: replace(of, query=number[of.query]) for name, of in left.items() if len(of.query)},
            answers={query: self.answers[query] for query in ids if query in self.answers},
            known_fingerprint=short_hash(hash_texts([self.fingerprint, *ids])),
        )

    def where(self, conditions: Filter | None) -> "Dataset":
        """Return the data of the passages that meet a filter (:mod:`~graphrerank.corpus.filters`).

        Queries stay; judgements of other passages go. A ValueError if no passage passes.
        """
        if not conditions:
            return self
        kept = torch.from_numpy(self.graph.passing(conditions))
        if not bool(kept.any()):
            raise UserError(f"`filter` must let a passage of data set {self.name!r} pass, got none")
        number, nodes = kept.cumsum(0) - 1, kept.nonzero().flatten()
        parts = {name: (qrels, kept[qrels.node]) for name, qrels in self.splits.items()}
        splits = {
            name: Qrels(of.query[left], number[of.node[left]], of.gain[left]) for name, (of, left) in parts.items()
        }
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
        """Return the graph of what the holders of some principals may see.

        It is that of a data set of these passages and edges alone: words have other frequencies, and edges by mentions,
        shared entities and nearest neighbours are found again. With ``statistics="global"``, which is quicker, they are
        those of the whole corpus, so that they tell something of the passages that may not be seen.
        """
        check_choice(STATISTICS, statistics=statistics)
        part = self.graph.seen_by(principals, own_statistics=statistics == "visible")
        is_whole = part.num_nodes == self.graph.num_nodes and self.graph.row_stop is None
        if self.found is None or statistics == "global" or (is_whole and self.graph.guarded is None):
            return part
        return self.found.again(part, self.graph, principals)

    def with_drafts(self, drafts: Sequence[Draft]) -> "Dataset":
        """Replace the queries of ``train`` and ``val`` by drafted questions, of which the last tenth is ``val``."""
        if not drafts:
            raise UserError(f"data set {self.name!r} must have passages with words to draft questions from, got none")
        judged = [qrels.query for split, qrels in self.splits.items() if split not in (TRAIN, VAL)]
        others = self.with_queries(torch.unique(torch.cat([torch.zeros(0, dtype=torch.int64), *judged])))
        first, num_train = len(others.query_ids), len(drafts) - int(VALIDATION * len(drafts))
        rows = [[(first + number, node, 1.0) for node in draft.nodes] for number, draft in enumerate(drafts)]
        parts = {TRAIN: rows[:num_train], VAL: rows[num_train:]}
        splits = {split: Qrels.of(chain.from_iterable(part)) for split, part in parts.items() if part}
        return replace(
            others,
            query_ids=[*others.query_ids, *(f"drafted-{number}" for number in range(len(drafts)))],
            query_texts=[*others.query_texts, *(draft.text for draft in drafts)],
            splits={**splits, **others.splits},
            drafted=True,
            known_fingerprint=None,
        )

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
        tensors += [part for qrels in self.splits.values() for part in (qrels.query, qrels.node, qrels.gain)]
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
        return ", ".join(f'{name}: "{names[0]}[{part}]"' for name, part in zip((TRAIN, VAL, TEST), SHARES, strict=True))
    if TRAIN in names and VAL not in names and held_out in names:
        return f'{TRAIN}: "{TRAIN}[:90%]", {VAL}: "{TRAIN}[90%:]", {TEST}: {held_out}'
    return ""
