"""ReTAG's index in memory and on disk, and its settings."""

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
    """Settings of an index."""

    num_topics: int = 8  # maximum number of topics; 0: the general graph only
    # share in (0, 1] of entities that belong to some topic, and of the corpus's sentences that would be routed to
    # some topic as questions; both thresholds follow from it
    coverage: float = 0.95
    num_terms: int = 10  # words per topic
    resolution: float = 1.0  # resolution of modularity; larger values give smaller communities
    max_community: int = 10  # communities of this many entities or more are split on the next level
    min_component: int = 5  # entities of connected components smaller than this are in no community
    context_tokens: int = 4000  # maximum number of tokens that a summary is made from
    summary_tokens: int = 256  # maximum number of tokens of a summary
    # weight in [0, 1] of a sentence's similarity to all others in its score; the remainder weighs its dissimilarity
    # to the sentences selected before it
    centrality: float = 0.7
    description_tokens: int = 100  # maximum number of tokens that describe an entity or a relation
    seed: int = 0  # seed of clustering and communities

    def __post_init__(self) -> None:
        counts = "num_terms max_community min_component context_tokens summary_tokens description_tokens"
        check_counts(**{name: getattr(self, name) for name in counts.split()})
        check_not_negative(num_topics=self.num_topics)
        check_positive_share(coverage=self.coverage)
        check_share(centrality=self.centrality)
        check_positive(resolution=self.resolution)


@dataclass(frozen=True)
class Topics:
    """Topics as directions among the vectors of a corpus's entities.

    Vectors of one encoder share a common component that distinguishes no topics; their mean is subtracted before they
    are compared.
    """

    names: Sequence[str]  # `T` names
    terms: Sequence[Sequence[str]]  # words of each topic, the most distinctive first
    vectors: Tensor  # `[T, d]` float32 unit vectors, of centred vectors
    centre: Tensor  # `[d]` float32, the mean that is subtracted from whatever is compared with a topic
    entity_threshold: float = 1.0  # minimum similarity of a sentence whose entities and relations belong to a topic
    threshold: float = 1.0  # minimum similarity of a question that is routed to a topic

    def __len__(self) -> int:
        return len(self.names)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Compare vectors ``[n, d]`` of the corpus's encoder with each topic: ``[n, T]`` cosines."""
        if not len(self):
            return vectors.new_zeros(len(vectors), 0)
        return torch.nn.functional.normalize(vectors - self.centre, dim=1) @ self.vectors.T


@dataclass(frozen=True)
class Rows:
    """Lists of integers of any length, concatenated."""

    indptr: Tensor  # `[n + 1]` int64; row `i` is `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[nnz]` int64

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Rows":
        """Concatenate lists."""
        lists = list(rows)
        indptr = torch.tensor(list(accumulate(map(len, lists), initial=0)), dtype=torch.int64)
        return cls(indptr, torch.tensor([entry for row in lists for entry in row], dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> Tensor:
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def tolist(self) -> list[list[int]]:
        """Return the lists."""
        flat, bounds = self.indices.tolist(), self.indptr.tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class Communities:
    """Communities of all graphs of an index, with their summaries.

    They are ordered by graph, then by level, so a parent precedes its children.
    """

    graph: Tensor  # `[C]` int64, the graph of each; 0 is the general one, `1 + t` that of topic `t`
    level: Tensor  # `[C]` int64; 0 is the coarsest
    parent: Tensor  # `[C]` int64, the community of the level above that contains it; -1 at level 0
    members: Rows  # entities of each, ascending
    texts: Sequence[str]  # `C` summaries
    num_tokens: Tensor  # `[C]` int64, of the summaries
    vectors: Tensor  # `[C, d]` float32 unit vectors of the summaries
    sentences: Rows  # sentences that each summary consists of, in corpus order; empty if a language model wrote it
    sources: Rows  # passages that each summary was made from, ascending

    def __len__(self) -> int:
        return len(self.texts)

    def num_levels(self, graph: int) -> int:
        """Return the number of levels of a graph; 0 if it has no edge."""
        levels = self.level[self.graph == graph]
        return int(levels.max()) + 1 if len(levels) else 0

    def at_level(self, graph: int, level: int) -> Tensor:
        """Return the communities of a level, and those of coarser levels that were not split: ``[n]`` int64, ascending.

        Together they contain each entity of the graph once. Source: GraphRAG ("From Local to Global", 2024, section
        3.1.4).
        """
        check_not_negative(level=level)
        is_split = torch.zeros(len(self) + 1, dtype=torch.bool)
        is_split[self.parent] = True  # a parent of -1 sets the last element, which is dropped below
        unsplit = (self.level < level) & ~is_split[:-1]
        return ((self.graph == graph) & (unsplit | (self.level == level))).nonzero().flatten()


@dataclass(frozen=True)
class Subgraph:
    """Entities and the relations between them."""

    nodes: Tensor  # `[n]` int64 entities, ascending
    edges: Tensor  # `[m, 2]` int64 entities, unique pairs, the smaller index first, ascending
    weight: Tensor  # `[m]` float32, number of statements that join the two plus number of sentences that name both


@dataclass(frozen=True)
class Sentences:
    """Sentences of the corpus."""

    texts: Sequence[str]  # `S` strings, verbatim
    passage: Tensor  # `[S]` int64, the passage of each
    num_tokens: Tensor  # `[S]` int64


@dataclass(frozen=True)
class ReTAGReport:
    """Counts that an index's arrays do not contain."""

    passages: int  # passages of the corpus
    corpus_tokens: int  # tokens of the passages
    entities: int  # entities that the corpus names
    relations: int  # related pairs of entities
    unrelated: int  # entities in no community of the general graph, as they are related to too few others
    skipped: int  # answers of a language model that remained unusable and were left out


@dataclass(frozen=True)
class ReTAGIndex:
    """Topics, the entities and relations of each, their communities, and a summary of every community."""

    settings: ReTAGSettings
    passage_ids: Sequence[str]  # `P` ids of the passages, which are the chunks of the corpus
    entities: Sequence[str]  # `E` names, as first written
    topics: Topics  # `T` topics
    graphs: Sequence[Subgraph]  # `1 + T`: the general graph, then that of each topic
    communities: Communities  # communities of all graphs
    sentences: Sentences  # sentences that summaries consist of
    report: ReTAGReport  # sizes and costs

    def save(self, folder: str | Path) -> None:
        """Write the index into a folder, atomically."""
        with atomic_folder(Path(folder)) as temporary:
            save_record(temporary / "index", self)

    @classmethod
    def load(cls, folder: str | Path) -> "ReTAGIndex":
        """Read an index written by :meth:`save`; a missing or damaged file is a ValueError."""
        return load_record(Path(folder) / "index", cls)
