"""Expand a ranking before it is reranked: combine its top candidates with the best neighbours of the top nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, Retriever, RetrieverFactory
from graphrerank.core.adapters import as_retriever, needs_vectors
from graphrerank.core.ranking import is_listed, rank_candidates
from graphrerank.core.retriever import EXPANSION_FEATURES, TEXT_FEATURES
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, edge_type_numbers
from graphrerank.operators.bm25 import BLOCK_SCORES, LexicalIndex, lexical_index, lexical_scores
from graphrerank.operators.hybrid import HybridRetriever, HybridScores
from graphrerank.operators.ppr import EntityPPR, corpus_entities
from graphrerank.operators.stex import Expansion, semantic_topological_expansion
from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_share


@dataclass(eq=False)
class Expander:
    """Base of retrievers that replace the tail of a ranking by graph neighbours of its top nodes.

    The candidates are the top ``base_k`` of the base ranking, followed by neighbours of its top ``num_seeds`` nodes, up
    to ``top_k``. The neighbours are ordered by the score of STeX (see :func:`semantic_topological_expansion`). If there
    are too few, the base ranking beyond ``base_k`` fills the list. A query therefore has as many candidates as without
    expansion, and a corpus without edges yields the base ranking.

    With ``quotas``, each edge type has its own share of the places for neighbours. Places that a type cannot fill go to
    the other types, references first. With ``pagerank_share``, a share of the places is for passages ranked by PageRank
    over entities (see :class:`EntityPPR`). The entities are those of the corpus, or names extracted from its texts by
    spelling. The remaining places are for neighbours, which also take the places that PageRank cannot fill.

    With ``tail_bonus``, neighbours compete with the base ranking beyond ``base_k``. A neighbour gets a place only if
    its base score plus ``tail_bonus`` times ``1 / r + (n - 1) / num_seeds`` is among the best, where ``r`` is the rank
    of the best seed reached and ``n`` the number of seeds reached. Where links lead away from the question, most of the
    places then stay with the base ranking. Passages by PageRank do not compete.

    Each candidate has four features of the expansion: ``hops``, the number of steps from the nearest seed;
    ``best_seed_score`` and ``best_seed_reciprocal_rank``, the score and the reciprocal rank of the best seed reached;
    and ``seeds_reached``, the number of seeds within ``hops`` steps, divided by ``num_seeds``. They are computed over
    all edge types. They are 0 for candidates of the base ranking, and for candidates that no edge connects with a seed.

    Source: FastInsight, Algorithm 3 with weights of 1, run once. *Differences from the paper:* the seeds are the top
    ``num_seeds`` nodes instead of all retrieved nodes. The defaults lie on a plateau: on the training questions of
    2WikiMultihopQA and HotpotQA, recall is the same for 10 to 30 seeds, 50 to 80 base candidates, and structure weights
    from 0.5.

    Attributes:
        graph: Undirected corpus graph. It needs an ``embedding`` of unit vectors unless ``similarity_weight`` is 0.
        top_k: Number of candidates per query.
        base_k: Number of candidates from the base ranking, less than ``top_k``.
        num_seeds: Number of top nodes whose neighbours are considered, at most ``base_k``.
        similarity_weight: Weight of the dot product of query and node in the score of STeX, at least 0.
        structure_weight: Weight of the structural score in the score of STeX, at least 0.
        hops: Maximum number of steps from a seed, 1 or 2. With 2, neighbours of neighbours fill the places that direct
            neighbours leave.
        pagerank_share: Share of the places for neighbours that PageRank over entities fills, in [0, 1].
        quotas: Share of the places for neighbours by edge type, summing to at most 1. If None, neighbours compete over
            all edge types.
        tail_bonus: Weight of the links of a neighbour in the competition with the base ranking beyond ``base_k``, at
            least 0. If None, neighbours take all places that they can fill. Only used by
            :class:`HybridExpandRetriever`, which knows the base score of every passage.
    """

    expands_along_edges: ClassVar[bool] = True
    graph: CorpusGraph
    _: KW_ONLY
    top_k: int = 100
    base_k: int = 60
    num_seeds: int = 30
    similarity_weight: float = field(default=1.0, init=False)
    structure_weight: float = 1.0
    hops: int = 1
    pagerank_share: float = 0.0
    quotas: Mapping[str, float] | None = None
    tail_bonus: float | None = None

    def __post_init__(self) -> None:
        check_counts(top_k=self.top_k)
        if not 1 <= self.base_k < self.top_k:
            raise UserError(
                f"`base_k` must be at least 1 and below `top_k` = {self.top_k}, got {self.base_k}. Lower it or raise "
                "`top_k`"
            )
        if not 1 <= self.num_seeds <= self.base_k:
            raise UserError(f"`num_seeds` must be from 1 to `base_k` = {self.base_k}, got {self.num_seeds}")
        check_not_negative(
            similarity_weight=self.similarity_weight,
            structure_weight=self.structure_weight,
            tail_bonus=self.tail_bonus or 0.0,
        )
        if self.hops not in (1, 2):
            raise UserError(f"`hops` must be 1 or 2, got {self.hops}")
        check_share(pagerank_share=self.pagerank_share)
        if self.hops != 1 and (self.pagerank_share or self.quotas is not None):
            raise UserError(
                f"`hops` must be 1 if `quotas` or `pagerank_share` is set, got {self.hops}. Set `quotas` to null and "
                "`pagerank_share` to 0 to use more hops"
            )
        if self.quotas is not None:
            edge_type_numbers(self.quotas, argument="quotas")
            if min(self.quotas.values(), default=0) < 0 or sum(self.quotas.values()) > 1 + 1e-6:
                raise UserError(f"`quotas` must be at least 0 and sum to at most 1, got {dict(self.quotas)}")
        if self.similarity_weight and self.graph.embedding is None:
            raise UserError(
                "`graph` must have an embedding, got None. Choose an encoder (encoder=minilm), or rank neighbours by "
                "graph structure only: similarity_weight=0 of ExpandRetriever (retriever=run_expand, "
                "pipeline=expand_then_rerank_bm25)"
            )

    def candidates(
        self, ranking: Ranking, query_vectors: Tensor | None, *, base_score: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Collect the candidates of each query.

        Args:
            ranking: Base ranking of ``b`` queries, at least ``top_k`` deep unless the corpus is smaller.
            query_vectors: Query vectors ``[b, d]``. May be None if ``similarity_weight`` is 0.
            base_score: Function that returns the base scores of nodes ``[b, n]``, which may be padded. Required for
                ``tail_bonus``. If None, neighbours do not compete with the base ranking.

        Returns:
            Candidates ``[b, M]`` int64, unique per row, of which at most ``top_k`` are not -1; and their
            ``EXPANSION_FEATURES``, ``[b, M, 4]``, which are 0 for candidates that are not neighbours.
        """
        room = self.top_k - self.base_k
        base, rest = ranking.nodes[:, : self.base_k], ranking.nodes[:, self.base_k :]
        seeds = Ranking(ranking.nodes[:, : self.num_seeds], ranking.scores[:, : self.num_seeds])
        settings = {name: getattr(self, name) for name in ("similarity_weight", "structure_weight", "hops")}
        inputs = self.graph, seeds, query_vectors
        walk = partial(semantic_topological_expansion, *inputs, top_k=room, exclude=base, **settings)
        chosen = self._choose(walk, seeds, base)
        expansion = walk(only=chosen)
        others = base[:, :0] if chosen is None else chosen.where(~is_listed(chosen, expansion.nodes), -1)
        if self.tail_bonus is not None and base_score is not None:
            expansion = self._winners(expansion, Ranking(rest, ranking.scores[:, self.base_k :]), base_score)
        neighbours = torch.cat([expansion.nodes, others], dim=1)
        is_new = (rest >= 0) & ~is_listed(rest, neighbours)
        num_missing = room - (neighbours >= 0).sum(1, keepdim=True)
        fill = rest.where(is_new & (is_new.cumsum(1) <= num_missing), -1)
        candidates = torch.cat([base, neighbours, fill], dim=1)
        reciprocal_rank = torch.where(expansion.nodes >= 0, 1 / expansion.best_seed_rank, 0.0)
        share_reached = expansion.seeds_reached / self.num_seeds
        features = torch.zeros(*candidates.shape, 4, device=candidates.device)
        features[:, self.base_k : self.top_k] = torch.stack(
            [expansion.hops.float(), expansion.best_seed_score, reciprocal_rank, share_reached], dim=-1
        )
        return candidates, features

    def _winners(
        self,
        expansion: Expansion,
        rest: Ranking,
        base_score: Callable[[Tensor], Tensor],
    ) -> Expansion:
        """Return the neighbours that are among the best of the neighbours and the rest of the base ranking."""
        assert self.tail_bonus is not None
        links = 1 / expansion.best_seed_rank.clamp(min=1) + (expansion.seeds_reached - 1) / self.num_seeds
        scores = base_score(expansion.nodes) + self.tail_bonus * links
        scores = scores.masked_fill(expansion.nodes < 0, -torch.inf)
        others = rest.scores.masked_fill((rest.nodes < 0) | is_listed(rest.nodes, expansion.nodes), -torch.inf)
        room = min(self.top_k - self.base_k, scores.shape[1] + others.shape[1])
        lowest = torch.cat([scores, others], dim=1).topk(room, dim=1).values[:, -1:]
        wins = (expansion.nodes >= 0) & (scores >= lowest)
        return Expansion(
            nodes=expansion.nodes.where(wins, -1),
            scores=expansion.scores.where(wins, -torch.inf),
            best_seed_rank=expansion.best_seed_rank.where(wins, 0),
            best_seed_score=expansion.best_seed_score.where(wins, 0.0),
            seeds_reached=expansion.seeds_reached.where(wins, 0),
            hops=expansion.hops.where(wins, 0),
        )

    def _choose(self, walk: Callable[..., Expansion], seeds: Ranking, base: Tensor) -> Tensor | None:
        """Choose neighbours ``[b, n]`` by edge type and by PageRank. Return None to take the best over all edges."""
        room = self.top_k - self.base_k
        num_ranked = round(room * self.pagerank_share)
        has_types = self.graph.weight_by_type is not None or self.graph.entities is not None
        if self.quotas is not None and has_types:
            lists = [walk(edge_type=edge_type).nodes for edge_type in range(len(EDGE_TYPES))]
            places = [round((room - num_ranked) * self.quotas.get(name, 0)) for name in EDGE_TYPES]
        elif num_ranked:
            lists, places = [walk().nodes], [room - num_ranked]
        else:
            return None
        if num_ranked:
            lists.append(self._pagerank.expand(seeds, top_k=room, exclude=base).nodes)
            places.append(num_ranked)
        return share_places(lists, places, room)

    @cached_property
    def _pagerank(self) -> EntityPPR:
        return EntityPPR(corpus_entities(self.graph), num_seeds=self.num_seeds)


def share_places(lists: Sequence[Tensor], places: Sequence[int], num_places: int) -> Tensor:
    """Choose nodes from several lists for each query, with a number of places reserved for each list.

    Each list first fills its reserved places. The remaining places are filled from the lists in order. A node that
    appears in several lists takes the first place that one of them has for it.

    Args:
        lists: Lists of node indices ``[b, n]`` int64, best first, unique per row, padded with -1.
        places: Number of places reserved for each list.
        num_places: Total number of places per query.

    Returns:
        Node indices ``[b, M]`` int64, unique per row, of which at most ``num_places`` are not -1.

    Example:
        >>> share_places([torch.tensor([[4, 5, 6]]), torch.tensor([[5, 7, 8]])], places=[1, 1], num_places=3)
        tensor([[ 4,  5, -1,  6, -1, -1]])
    """
    first = [nodes[:, :count] for nodes, count in zip(lists, places, strict=True)]
    others = [nodes[:, count:] for nodes, count in zip(lists, places, strict=True)]
    joined = torch.cat([*first, *others], dim=1)
    ascending, order = torch.sort(joined, dim=1, stable=True)
    is_first = torch.ones_like(joined, dtype=torch.bool)
    is_first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    is_new = torch.zeros_like(is_first).scatter_(1, order, is_first) & (joined >= 0)
    return joined.where(is_new & (is_new.cumsum(1) <= num_places), -1)


@dataclass(eq=False, kw_only=True)
class HybridExpandRetriever(Expander, Retriever):
    """Expand the hybrid ranking of :class:`HybridRetriever`, and score every candidate with its hybrid score.

    The features of a candidate are its hybrid, BM25 and dense scores and the four features of the expansion (see
    :class:`Expander`).

    Attributes:
        bm25_weight: Weight of BM25, at least 0.
        dense_weight: Weight of the cosine similarity, at least 0.
        proposals: Number of nodes that the vector search and BM25 each propose. If None, all nodes are scored.
        index: Kind of index for the vector search if ``proposals`` is set. See :class:`DenseRetriever`.
        num_probes: Number of cells of an IVF index that each search visits.
        feature_names: Names of the seven features of a candidate.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), ["red apple", "red pear", "a stem"], torch.tensor([[0, 2]]))
        >>> graph = graph.with_embedding(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]))
        >>> retriever = HybridExpandRetriever(graph=graph, top_k=2, base_k=1, num_seeds=1)
        >>> ranking = retriever.retrieve(Queries(["q1"], ["red apple"], torch.tensor([[1.0, 0.0]])))
        >>> ranking.nodes, ranking.base_nodes
        (tensor([[0, 2]]), tensor([[0, 1]]))
    """

    bm25_weight: float = 0.3
    dense_weight: float = 0.7
    proposals: int | None = None
    index: str = "flat"
    num_probes: int = 16
    feature_names: tuple[str, ...] = field(default=(*HybridRetriever.feature_names, *EXPANSION_FEATURES), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = ("top_k", "bm25_weight", "dense_weight", "proposals", "index", "num_probes")
        self._base = HybridRetriever(self.graph, **{name: getattr(self, name) for name in settings})

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the expanded candidates by hybrid score.

        Args:
            queries: ``B`` queries with unit vectors.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, 7]``, and with the hybrid ranking as ``base_nodes``.
        """
        rankings = []
        for base, table in self._base.rank(queries):
            self.graph.pages.release()
            hybrid_score = partial(_hybrid_scores, table)
            candidates, walk_features = self.candidates(base, table.vectors, base_score=hybrid_score)
            features = torch.cat([table.gather(candidates), walk_features], dim=-1)
            rankings.append(rank_candidates(candidates, features, self.top_k, base.nodes))
        return Ranking.concatenate(rankings)


def _hybrid_scores(table: HybridScores, nodes: Tensor) -> Tensor:
    """Return the hybrid scores of nodes ``[b, n]``. Those of padding are meaningless."""
    return table.gather(nodes)[..., 0]


@dataclass(eq=False, kw_only=True)
class ExpandRetriever(Expander, Retriever):
    """Expand the ranking of any retriever, including one that scores only the nodes that it returns.

    Neighbours that the base retriever did not return rank behind those that it did. Their base score is the next
    float32 below the query's lowest score, and each other feature of the base retriever takes the query's lowest value.
    The features of a candidate are those of the base retriever; ``bm25_score`` and, if the corpus is encoded,
    ``dense_score``, unless the base retriever has them; and the four features of the expansion (see :class:`Expander`).

    Attributes:
        base: Factory of the base retriever, such as a ``functools.partial``. It is called with the corpus graph and
            ``top_k``.
        similarity_weight: Weight of the dot product in the score of STeX. With 0, no encoder is needed.

    Example:
        >>> from graphrerank.operators.bm25 import BM25Retriever
        >>> graph = CorpusGraph.from_edges(list("abc"), ["red apple", "red pear", "a stem"], torch.tensor([[0, 2]]))
        >>> retriever = ExpandRetriever(
        ...     graph=graph, top_k=2, base_k=1, num_seeds=1, similarity_weight=0, base=partial(BM25Retriever)
        ... )
        >>> retriever.retrieve(Queries(["q1"], ["red apple"])).nodes
        tensor([[0, 2]])
    """

    base: RetrieverFactory
    similarity_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tail_bonus is not None:
            raise UserError(
                "`tail_bonus` must be null for a base retriever that scores only what it returns, got "
                f"{self.tail_bonus}"
            )
        self._base = as_retriever(self.base(self.graph, top_k=self.top_k))
        base_names = self._base.feature_names
        if clashes := sorted(set(base_names) & set(EXPANSION_FEATURES)):
            raise UserError(f"the features of `base` must not be named like those of the expansion, got {clashes}")
        computable = TEXT_FEATURES if self.graph.embedding is not None else TEXT_FEATURES[:1]
        self._added = tuple(name for name in computable if name not in base_names)
        self.feature_names = (*base_names, *self._added, *EXPANSION_FEATURES)

    @staticmethod
    def needs_vectors(**settings: Any) -> bool:
        """Return whether STeX or the base retriever needs vectors.

        Args:
            settings: Arguments of the constructor by name, without the corpus graph.
        """
        return bool(settings.get("similarity_weight", 1.0)) or needs_vectors(settings["base"])

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the base retriever, which may be empty."""
        return self._base.fingerprint

    @property
    def is_lookup(self) -> bool:
        """Whether the base retriever only looks up precomputed rankings."""
        return self._base.is_lookup

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the expanded candidates by the score of the base retriever.

        Args:
            queries: ``B`` queries. They need unit vectors if the corpus has an embedding.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, F]``, and with the base ranking as ``base_nodes``.
        """
        embedding = self.graph.embedding
        width = 0 if embedding is None else 2 * self.top_k * embedding.shape[1]
        size = max(1, BLOCK_SCORES // max(1, width, self.graph.num_nodes))
        return Ranking.concatenate([self._expand(block) for block in queries.blocks(size)])

    def _expand(self, queries: Queries) -> Ranking:
        ranking = self._base.retrieve(queries).to(self.graph.device)
        vectors = None if self.graph.embedding is None else queries.encoded.to(self.graph.device)
        candidates, walk_features = self.candidates(ranking, vectors)
        column = candidates.clamp(min=0)
        added = []
        if "bm25_score" in self._added:
            bm25 = lexical_scores(self._bm25, queries.texts).to(column.device)
            added.append(bm25.gather(1, column).unsqueeze(-1))
        if "dense_score" in self._added and vectors is not None:
            added.append(self.graph.encoded[column].float() @ vectors.unsqueeze(-1))
        features = torch.cat([_look_up(ranking, candidates), *added, walk_features], dim=-1)
        features = features.masked_fill((candidates < 0).unsqueeze(-1), 0.0)
        self.graph.pages.release()
        return rank_candidates(candidates, features, self.top_k, ranking.nodes)

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self.graph)


def _look_up(ranking: Ranking, nodes: Tensor) -> Tensor:
    """Return the features of nodes ``[b, M]``, with the query's lowest values for nodes that the ranking lacks.

    The base score of such a node is the next float32 below the lowest.
    """
    assert ranking.features is not None
    ascending, order = torch.sort(ranking.nodes, dim=1)
    position = torch.searchsorted(ascending, nodes.contiguous()).clamp(max=ascending.shape[1] - 1)
    is_listed = ascending.gather(1, position) == nodes
    listed = ranking.features.take_along_dim(order.gather(1, position).unsqueeze(-1), dim=1)
    padding = (ranking.nodes < 0).unsqueeze(-1)
    lowest = ranking.features.masked_fill(padding, torch.inf).amin(1, keepdim=True)  # inf if the ranking is empty
    smallest = torch.full_like(lowest[..., 0], torch.finfo(lowest.dtype).min)
    lowest[..., 0] = torch.nextafter(lowest[..., 0], smallest)
    return torch.where(is_listed.unsqueeze(-1), listed, lowest)
