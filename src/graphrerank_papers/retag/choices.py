"""Rows of the table of ``experiment=retag_podcast``, each with the settings that it may have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphrerank_papers.retag.retrieval import ReTAGSearchSettings

BM25, EXPANDED, DENSE, HYBRID = "BM25", "BM25 + expansion", "dense", "hybrid"
HYBRID_EXPANDED, RERANKED = "hybrid + expansion", "hybrid + graph reranker"
COMPARED = ((EXPANDED, BM25), (DENSE, BM25), (HYBRID, BM25), (HYBRID_EXPANDED, HYBRID), (RERANKED, HYBRID))


@dataclass(frozen=True)
class Grid:
    """The settings to choose among."""

    num_keywords: Sequence[int]  # keywords that a question is expanded by
    num_sentences: Sequence[int]  # nearest sentences that keywords come from
    keyword_weights: Sequence[float]  # weight of a keyword beside 1 of a word of the question
    bm25_weights: Sequence[float]  # weight of BM25 in the hybrid; the cosine has the rest
    rerank_depths: Sequence[int]  # summaries that the graph reranker ranks anew


@dataclass(frozen=True)
class Choice:
    """A way to choose summaries."""

    search: ReTAGSearchSettings  # how summaries are chosen
    # `num_keywords`, `num_sentences` and `num_terms`; none for no expansion
    keywords: Mapping[str, int] = field(default_factory=dict)
    reranked: bool = False  # whether a graph reranker ranks anew
    shown: Mapping[str, float] = field(default_factory=dict)  # what the table says of the settings


def table_rows(
    grid: Grid, plain: ReTAGSearchSettings, *, num_terms: int, best: Mapping[str, Choice]
) -> Iterator[tuple[str, list[Choice]]]:
    """Yield the rows, one after the other: those that combine build on ``best``, the choices made for the rows before.

    ``plain`` is BM25 alone; ``num_terms`` limits the topics among the keywords. The caller adds to ``best`` between two
    rows.
    """
    yield BM25, [Choice(plain)]
    yield (
        EXPANDED,
        [
            Choice(
                replace(plain, keyword_weight=weight),
                {"num_keywords": count, "num_sentences": sentences, "num_terms": num_terms},
                shown={"keywords": count, "sentences": sentences, "weight": weight},
            )
            for count in grid.num_keywords
            for sentences in grid.num_sentences
            for weight in grid.keyword_weights
        ],
    )
    yield DENSE, [Choice(replace(plain, bm25_weight=0.0, dense_weight=1.0))]
    for name, base in ((HYBRID, best[BM25]), (HYBRID_EXPANDED, best[EXPANDED])):
        yield (
            name,
            [
                replace(
                    base,
                    search=replace(base.search, bm25_weight=weight, dense_weight=1 - weight),
                    shown={**base.shown, "BM25": weight},
                )
                for weight in grid.bm25_weights
            ],
        )
    hybrid = best[HYBRID]
    yield (
        RERANKED,
        [
            replace(
                hybrid,
                search=replace(hybrid.search, rerank_depth=depth),
                reranked=True,
                shown={**hybrid.shown, "depth": depth},
            )
            for depth in grid.rerank_depths
        ],
    )
