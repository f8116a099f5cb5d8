"""Index of ReTAG in memory and on disk, and its settings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.utils.checks import check_counts, check_not_negative, check_positive, check_positive_share, check_share
from graphrerank.utils.files import atomic_folder
from graphrerank_papers.indexing import load_record, save_record


@dataclass(frozen=True)
class ReTAGSettings:
    """Settings of an index.

    Attributes:
        num_topics: Maximum number of topics. With 0, there is only the general graph.
        coverage: Share of the entities that belong to at least one topic, in (0, 1]. The same share of the sentences
            would be routed to a topic if they were questions. The thresholds of :class:`Topics` follow from it.
        num_terms: Number of words that describe a topic.
        resolution: Resolution of the modularity. Larger values lead to smaller communities. Must be positive.
        max_community: Communities with at least this number of entities are split on the next level.
        min_component: Minimum number of entities of a connected component. Entities of smaller components belong to no
            community.
        context_tokens: Maximum number of tokens that a summary is based on.
        summary_tokens: Maximum number of tokens of a summary.
        centrality: Weight of a sentence's similarity to all sentences when an extractive summary is selected, in [0,
            1]. The rest is the weight of its dissimilarity to the selected sentences.
        description_tokens: Maximum number of tokens in the description of an entity or a relation.
        seed: Random seed of the topic clustering and of the community detection.
    """

    num_topics: int = 8
    coverage: float = 0.95
    num_terms: int = 10
    resolution: float = 1.0
    max_community: int = 10
    min_component: int = 5
    context_tokens: int = 4000
    summary_tokens: int = 256
    centrality: float = 0.7
    description_tokens: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        counts = "num_terms max_community min_component context_tokens summary_tokens description_tokens"
        check_counts(**{name: getattr(self, name) for name in counts.split()})
        check_not_negative(num_topics=self.num_topics)
        check_positive_share(coverage=self.coverage)
        check_share(centrality=self.centrality)
        check_positive(resolution=self.resolution)


@dataclass(frozen=True)
class Topics:
    """Topics of a corpus, as directions in the embedding space.

    The vectors of an encoder share a common component that does not help to distinguish topics. Their mean is therefore
    subtracted before vectors are compared with topics.

    Attributes:
        names: Names of the ``T`` topics.
        terms: Words that describe each topic, most distinctive first.
        vectors: Unit vectors of the topics, after centring, ``[T, d]`` float32.
        centre: Mean vector to subtract from vectors before they are compared with topics, ``[d]`` float32.
        entity_threshold: Minimum similarity of a sentence to a topic for its entities and relations to belong to the
            topic.
        threshold: Minimum similarity of a question to a topic for the question to be routed to the topic.
    """

    names: Sequence[str]
    terms: Sequence[Sequence[str]]
    vectors: Tensor
    centre: Tensor
    entity_threshold: float = 1.0
    threshold: float = 1.0

    def __len__(self) -> int:
        return len(self.names)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Return the cosine similarity of vectors to each topic, ``[n, T]``.

        Args:
            vectors: Vectors ``[n, d]`` from the encoder of the corpus.
        """
        if not len(self):
            return vectors.new_zeros(len(vectors), 0)
        return torch.nn.functional.normalize(vectors - self.centre, dim=1) @ self.vectors.T


@dataclass(frozen=True)
class Rows:
    """Lists of integers of different lengths, stored as compressed sparse rows.

    Attributes:
        indptr: Row pointers ``[n + 1]`` int64. Row ``i`` is ``indices[indptr[i]:indptr[i + 1]]``.
        indices: Entries of all rows ``[nnz]`` int64.

    Example:
        >>> rows = Rows.of([[3, 1], [], [2]])
        >>> rows.indptr, rows[0]
        (tensor([0, 2, 2, 3]), tensor([3, 1]))
    """

    indptr: Tensor
    indices: Tensor

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Rows":
        """Return the compressed form of lists of integers.

        Args:
            rows: Lists of integers.
        """
        lists = list(rows)
        indptr = torch.tensor(list(accumulate(map(len, lists), initial=0)), dtype=torch.int64)
        return cls(indptr, torch.tensor([entry for row in lists for entry in row], dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> Tensor:
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def tolist(self) -> list[list[int]]:
        """Return the rows as lists."""
        flat, bounds = self.indices.tolist(), self.indptr.tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class Communities:
    """Communities of all graphs of an index, with their summaries.

    Communities are ordered by graph and then by level, so a parent precedes its children.

    Attributes:
        graph: Graph of each community ``[C]`` int64. 0 is the general graph, and ``1 + t`` is the graph of topic ``t``.
        level: Level of each community ``[C]`` int64. 0 is the coarsest.
        parent: Community on the next coarser level that contains each community ``[C]`` int64. -1 at level 0.
        members: Entities of each community, ascending.
        texts: Texts of the ``C`` summaries.
        num_tokens: Number of tokens of each summary ``[C]`` int64.
        vectors: Unit vectors of the summaries ``[C, d]`` float32.
        sentences: Sentences that each summary quotes, in corpus order. Empty for summaries of a language model.
        sources: Passages on which each summary is based, ascending.
    """

    graph: Tensor
    level: Tensor
    parent: Tensor
    members: Rows
    texts: Sequence[str]
    num_tokens: Tensor
    vectors: Tensor
    sentences: Rows
    sources: Rows

    def __len__(self) -> int:
        return len(self.texts)

    def num_levels(self, graph: int) -> int:
        """Return the number of levels of a graph, or 0 if the graph has no communities.

        Args:
            graph: Index of the graph.
        """
        levels = self.level[self.graph == graph]
        return int(levels.max()) + 1 if len(levels) else 0

    def at_level(self, graph: int, level: int) -> Tensor:
        """Return the communities of a level, and unsplit communities of coarser levels, ``[n]`` int64, ascending.

        Together, they contain each entity of the graph's communities once. Source: GraphRAG ("From Local to Global",
        2024), section 3.1.4.

        Args:
            graph: Index of the graph.
            level: Level. 0 is the coarsest.

        Raises:
            ValueError: If ``level`` is negative.
        """
        check_not_negative(level=level)
        is_split = torch.zeros(len(self) + 1, dtype=torch.bool)
        is_split[self.parent] = True  # a parent of -1 sets the last element, which is removed below
        unsplit = (self.level < level) & ~is_split[:-1]
        return ((self.graph == graph) & (unsplit | (self.level == level))).nonzero().flatten()


@dataclass(frozen=True)
class Subgraph:
    """Subset of the entities and of the relations between them.

    Attributes:
        nodes: Entities ``[n]`` int64, ascending.
        edges: Pairs of related entities ``[m, 2]`` int64, unique, smaller index first, ascending.
        weight: Weight of each pair ``[m]`` float32: the number of statements that relate the entities, plus the number
            of sentences that mention both.
    """

    nodes: Tensor
    edges: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Sentences:
    """Sentences of the corpus.

    Attributes:
        texts: Texts of the ``S`` sentences, verbatim.
        passage: Passage of each sentence ``[S]`` int64.
        num_tokens: Number of tokens of each sentence ``[S]`` int64.
    """

    texts: Sequence[str]
    passage: Tensor
    num_tokens: Tensor


@dataclass(frozen=True)
class ReTAGReport:
    """Statistics of an index.

    Attributes:
        passages: Number of passages of the corpus.
        corpus_tokens: Number of tokens of the passages.
        entities: Number of entities.
        relations: Number of pairs of related entities.
        unrelated: Number of entities in no community of the general graph, because they have too few relations.
        skipped: Number of requests to which the language model gave no usable answer.
    """

    passages: int
    corpus_tokens: int
    entities: int
    relations: int
    unrelated: int
    skipped: int


@dataclass(frozen=True)
class ReTAGIndex:
    """Index with topics, a graph of entities per topic, and a summary of each community.

    Attributes:
        settings: Settings of the index.
        passage_ids: Ids of the ``P`` passages of the corpus.
        entities: Names of the ``E`` entities, as first spelled in the corpus.
        topics: ``T`` topics.
        graphs: General graph, followed by the graph of each topic.
        communities: Communities of all graphs.
        sentences: Sentences that the summaries quote.
        report: Statistics of the index.
    """

    settings: ReTAGSettings
    passage_ids: Sequence[str]
    entities: Sequence[str]
    topics: Topics
    graphs: Sequence[Subgraph]
    communities: Communities
    sentences: Sentences
    report: ReTAGReport

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder atomically.

        Args:
            folder: New folder.
        """
        with atomic_folder(Path(folder)) as temporary:
            save_record(temporary / "index", self)

    @classmethod
    def load(cls, folder: str | Path) -> "ReTAGIndex":
        """Read an index.

        Args:
            folder: Folder written by :meth:`save`.

        Returns:
            Index in memory.

        Raises:
            ValueError: If a file is missing or damaged.
        """
        return load_record(Path(folder) / "index", cls)
