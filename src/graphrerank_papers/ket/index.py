"""KET-RAG's index in memory, and its settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_not_negative, check_share
from graphrerank_papers.ket.chunk_graph import SELECTIONS, ChunkGraph
from graphrerank_papers.ket.chunks import Chunks
from graphrerank_papers.ket.keyword_graph import KeywordGraph
from graphrerank_papers.ket.report import KETReport
from graphrerank_papers.ket.skeleton import Skeleton


@dataclass(frozen=True)
class KETSettings:
    r"""Settings of an index.

    Attributes:
        chunk_tokens: :math:`\ell`, tokens per chunk.
        join: Whether a chunk may span documents, as in KET-RAG's experiments.
        num_neighbours: :math:`K`, even.
        core_share: :math:`\beta` in [0, 1], the share of chunks whose knowledge is extracted; 0: no skeleton.
        core_selection: ``pagerank`` or ``random``.
        seed: Seed of a random selection.
        num_splits: :math:`\tau`, number of times a chunk is halved.
        has_keywords: Whether there is a text-keyword graph.
        description_tokens: Maximum number of tokens that describe an entity or a relation.
    """

    chunk_tokens: int = 1200
    join: bool = True
    num_neighbours: int = 2
    core_share: float = 0.8
    core_selection: str = "pagerank"
    seed: int = 0
    num_splits: int = 3
    has_keywords: bool = True
    description_tokens: int = 100

    def __post_init__(self) -> None:
        check_counts(chunk_tokens=self.chunk_tokens, description_tokens=self.description_tokens)
        if self.num_neighbours < 2 or self.num_neighbours % 2:
            raise ValueError(f"`num_neighbours` must be a positive even number, got {self.num_neighbours}")
        check_share(core_share=self.core_share)
        check_choice(SELECTIONS, core_selection=self.core_selection)
        check_not_negative(num_splits=self.num_splits)


@dataclass(frozen=True)
class Texts:
    """Texts that can go into a context."""

    texts: Sequence[str]  # `n` strings
    num_tokens: Tensor  # `[n]` int64, of each text with the line end that follows it
    vectors: Tensor  # `[n, d]` float32


@dataclass(frozen=True)
class KETIndex:
    """An index in memory."""

    settings: KETSettings
    num_documents: int  # number of documents of the corpus
    chunks: Chunks  # `n` chunks, as cut from the documents
    chunk_texts: Texts  # their texts, lengths and vectors
    chunk_graph: ChunkGraph  # their neighbours
    core: Tensor  # indices of the core chunks, ascending
    sub_chunks: Chunks  # `m` sub-chunks; the chunks if nothing is halved
    sub_chunk_texts: Texts  # their texts, lengths and vectors
    # entities and relations of the core chunks, linked to sub-chunks; None without core chunks
    skeleton: Skeleton | None
    entity_texts: Texts | None  # `E` entities' texts, lengths and vectors; None without skeleton
    relation_tokens: Tensor | None  # `[R]` int64, lengths of the relations' texts; None without skeleton
    keyword_graph: KeywordGraph | None  # None if it was not built
    report: KETReport  # sizes and costs
