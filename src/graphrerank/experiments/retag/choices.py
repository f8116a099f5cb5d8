"""Rows of the table of ``experiment=retag_podcast``, each with the settings that it may have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from omegaconf import DictConfig

from graphrerank.pipelines import ReTAGSearchSettings

BM25, EXPANDED, DENSE, HYBRID = "BM25", "BM25 + expansion", "dense", "hybrid"
HYBRID_EXPANDED, RERANKED = "hybrid + expansion", "hybrid + graph reranker"
COMPARED = ((EXPANDED, BM25), (DENSE, BM25), (HYBRID, BM25), (HYBRID_EXPANDED, HYBRID), (RERANKED, HYBRID))


@dataclass(frozen=True)
class Choice:
    """A way to choose summaries.

    Attributes:
        search: How summaries are chosen.
        keywords: ``num_keywords``, ``num_sentences`` and ``num_terms``; none for no expansion.
        reranked: Whether a graph reranker ranks anew.
        told: What the table says of the settings.
    """

    search: ReTAGSearchSettings
    keywords: Mapping[str, int] = field(default_factory=dict)
    reranked: bool = False
    told: Mapping[str, float] = field(default_factory=dict)


def table_rows(
    plan: DictConfig, plain: ReTAGSearchSettings, *, num_terms: int, best: Mapping[str, Choice]
) -> Iterator[tuple[str, list[Choice]]]:
    """Give the rows, one after the other: those that combine build on the best of the rows before.

    Args:
        plan: Of the experiment.
        plain: BM25 alone.
        num_terms: Of topics among the keywords.
        best: By row, what was chosen so far; the caller adds to it between two rows.
    """
    yield BM25, [Choice(plain)]
    yield (
        EXPANDED,
        [
            Choice(
                replace(plain, keyword_weight=weight),
                {"num_keywords": count, "num_sentences": sentences, "num_terms": num_terms},
                told={"keywords": count, "sentences": sentences, "weight": weight},
            )
            for count in plan.num_keywords
            for sentences in plan.num_sentences
            for weight in plan.keyword_weights
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
                    told={**base.told, "BM25": weight},
                )
                for weight in plan.bm25_weights
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
                told={**hybrid.told, "depth": depth},
            )
            for depth in plan.rerank_depths
        ],
    )
