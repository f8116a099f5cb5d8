"""Expand before ranking: the top of the hybrid ranking, and the best graph neighbours of its best nodes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.graphs.retriever import EXPANSION_FEATURES
from graphrerank.operators.expander import Expander, rank_candidates
from graphrerank.operators.hybrid import HybridRetriever, HybridScores, ProposedScores


class HybridExpandRetriever:
    r"""Take the top ``base_k`` of the hybrid ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    The neighbours are ordered by STeX's score :math:`S_n` (:func:`semantic_topological_expansion`). If there are too
    few, the hybrid ranking beyond ``base_k`` fills the list: a query has as many candidates as without expansion, and a
    corpus without edges yields the plain hybrid ranking.

    Source: FastInsight, Algorithm 3 with its weight 1, run once. *Where we differ:* the seeds are the top ``num_seeds``
    rather than all retrieved nodes. The defaults lie on a plateau: on the training questions of 2WikiMultihopQA and
    HotpotQA, 10 to 30 seeds, 50 to 80 base candidates and weights of 0.5 and above give the same share of questions
    with all relevant passages among 100 candidates, to within one question.

    Features, besides the hybrid, BM25 and dense scores of every candidate, are 0 for candidates of the hybrid ranking:

    - ``hops``: steps from the nearest seed;
    - ``best_seed_score`` and ``best_seed_reciprocal_rank``: hybrid score and 1 / rank of the best seed reached;
    - ``seeds_reached``: seeds within ``hops`` steps, divided by ``num_seeds``.

    Args:
        graph: The corpus, undirected, with its ``embedding`` of unit vectors.
        top_k: Candidates per query.
        base_k: Candidates from the hybrid ranking, fewer than ``top_k``.
        num_seeds: Nodes to expand from, at most ``base_k``.
        bm25_weight: Weight of BM25, not negative.
        dense_weight: Weight of the cosine, not negative.
        proposals: Nodes scored by each of the two searches; ``index`` and ``num_probes`` of the one by vectors; as of
            :class:`~graphrerank.operators.hybrid.HybridRetriever`.
        index: See ``proposals``.
        num_probes: See ``proposals``.
        structure_weight: STeX's weight of the structural score, not negative.
        hops: 2 to continue with the neighbours' neighbours if one hop leaves room.
        pagerank_share: Share of the neighbours' places, in [0, 1], for passages by personalized PageRank over entities
            (:class:`~graphrerank.operators.entity_ppr.EntityPPR`): the corpus's, or those that its texts show by their
            spelling. Those that no edge joins with a seed have 0 in the four features below.
        quotas: Share of the neighbours' places by type of edge, together at most 1; what a type leaves free goes to
            the others, references first. None: neighbours compete over all edges.

    Raises:
        ValueError: If the corpus has no embedding, or an argument is out of range.
    """

    feature_names: tuple[str, ...] = (*HybridRetriever.feature_names, *EXPANSION_FEATURES)

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        top_k: int = 100,
        base_k: int = 60,
        num_seeds: int = 30,
        bm25_weight: float = 0.3,
        dense_weight: float = 0.7,
        proposals: int | None = None,
        index: str = "flat",
        num_probes: int = 16,
        structure_weight: float = 1.0,
        hops: int = 1,
        pagerank_share: float = 0.0,
        quotas: Mapping[str, float] | None = None,
    ) -> None:
        self._base = HybridRetriever(
            graph,
            top_k=top_k,
            bm25_weight=bm25_weight,
            dense_weight=dense_weight,
            proposals=proposals,
            index=index,
            num_probes=num_probes,
        )
        self._expander = Expander(
            graph,
            top_k=top_k,
            base_k=base_k,
            num_seeds=num_seeds,
            similarity_weight=1.0,
            structure_weight=structure_weight,
            hops=hops,
            pagerank_share=pagerank_share,
            quotas=quotas,
        )
        self.top_k = top_k
        self._pages = graph.pages

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the candidates of each of ``B`` texts with unit vectors by hybrid score, ties broken by node index.

        Returns:
            ``[B, top_k]`` nodes and hybrid scores, with ``features [B, top_k, 7]`` as in ``feature_names`` and the
            plain hybrid ranking as ``base_nodes``.
        """
        blocks = self._base.score_blocks(queries)
        return Ranking.concatenate([self._retrieve_block(vectors, table) for vectors, table in blocks])

    def _retrieve_block(self, query_vectors: Tensor, table: HybridScores | ProposedScores) -> Ranking:
        nodes, scores = table.top(self.top_k)
        self._pages.release()
        candidates, walk_features = self._expander.expand(nodes, scores, query_vectors)
        features = torch.cat([table.gather(candidates), walk_features], dim=-1)
        return rank_candidates(candidates, features, self.top_k, base_nodes=nodes)
