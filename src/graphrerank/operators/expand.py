"""Expansion before ranking: the top of a base ranking, and the best graph neighbours of its best nodes."""

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
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.ppr import EntityPPR, corpus_entities
from graphrerank.operators.stex import Expansion, semantic_topological_expansion
from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_share


@dataclass(eq=False)
class Expander:
    r"""Takes the top ``base_k`` of a ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    The neighbours are ordered by STeX's score (:func:`semantic_topological_expansion`). If there are too few, the
    ranking beyond ``base_k`` fills the list: a query has as many candidates as without expansion, and a corpus without
    edges yields the base ranking.

    With ``quotas`` neighbours compete within their type of edges, each with a share of the places; what a type leaves
    free goes to the others, references first. The features are of all edges. ``pagerank_share`` of the places are for
    passages by PageRank over entities (:class:`EntityPPR`), the corpus's or those that its texts show by their
    spelling; the others stay for neighbours, and take what it leaves free.

    Source: FastInsight, Algorithm 3 with its weights 1, run once. *Where we differ:* the seeds are the top
    ``num_seeds`` rather than all retrieved nodes. The defaults lie on a plateau: on the training questions of
    2WikiMultihopQA and HotpotQA, 10 to 30 seeds, 50 to 80 base candidates and weights from 0.5 on find as much.

    Features of the walk, 0 for candidates of the base ranking and for those that no edge joins with a seed: ``hops``,
    steps from the nearest seed; ``best_seed_score`` and ``best_seed_reciprocal_rank``, score and 1 / rank of the best
    seed reached; ``seeds_reached``, seeds within ``hops`` steps, divided by ``num_seeds``.
    """

    expands_along_edges: ClassVar[bool] = True
    graph: CorpusGraph  # undirected, with its `embedding` of unit vectors unless `similarity_weight` is 0
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    base_k: int = 60  # candidates from the base ranking, fewer than `top_k`
    num_seeds: int = 30  # nodes to expand from, at most `base_k`
    similarity_weight: float = field(default=1.0, init=False)  # STeX's, of the dot product of query and node
    structure_weight: float = 1.0  # STeX's weight of the structural score, not negative
    hops: int = 1  # 2 to continue with the neighbours' neighbours if one hop leaves room
    pagerank_share: float = 0.0  # of the neighbours' places, in [0, 1]
    quotas: Mapping[str, float] | None = None  # share of the places by type of edge, together at most 1; None: no types

    def __post_init__(self) -> None:
        check_counts(top_k=self.top_k)
        if not 1 <= self.base_k < self.top_k:
            raise UserError(
                f"`base_k` must lie in [1, `top_k`) = [1, {self.top_k}), got {self.base_k}; lower it or raise `top_k`"
            )
        if not 1 <= self.num_seeds <= self.base_k:
            raise UserError(f"`num_seeds` must lie in [1, `base_k`] = [1, {self.base_k}], got {self.num_seeds}")
        check_not_negative(similarity_weight=self.similarity_weight, structure_weight=self.structure_weight)
        if self.hops not in (1, 2):
            raise UserError(f"`hops` must be 1 or 2, got {self.hops}")
        check_share(pagerank_share=self.pagerank_share)
        if self.hops != 1 and (self.pagerank_share or self.quotas is not None):
            raise UserError(f"`hops` must be 1 with `quotas` (set them to null) or `pagerank_share`, got {self.hops}")
        if self.quotas is not None:
            edge_type_numbers(self.quotas, argument="quotas")
            if min(self.quotas.values(), default=0) < 0 or sum(self.quotas.values()) > 1 + 1e-6:
                raise UserError(f"`quotas` must not be negative, nor above 1 together, got {dict(self.quotas)}")
        if self.similarity_weight and self.graph.embedding is None:
            raise UserError(
                "`graph` must have an embedding: choose an encoder (encoder=minilm), or rank neighbours by the graph "
                "only (retriever.similarity_weight=0)"
            )

    def candidates(self, ranking: Ranking, query_vectors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Collect the top of the base ranking ``[b, top_k]``, neighbours, and the rest of the base ranking as needed.

        Returns ``[b, M]`` int64 nodes, unique per row, at most ``top_k`` of them not -1; and ``[b, M, 4]`` the
        ``EXPANSION_FEATURES``, 0 except for neighbours.
        """
        room = self.top_k - self.base_k
        base, rest = ranking.nodes[:, : self.base_k], ranking.nodes[:, self.base_k :]
        seeds = Ranking(ranking.nodes[:, : self.num_seeds], ranking.scores[:, : self.num_seeds])
        settings = {name: getattr(self, name) for name in ("similarity_weight", "structure_weight", "hops")}
        given = self.graph, seeds, query_vectors
        walk = partial(semantic_topological_expansion, *given, top_k=room, exclude=base, **settings)
        chosen = self._choose(walk, seeds, base)
        expansion = walk(only=chosen)
        others = base[:, :0] if chosen is None else chosen.where(~is_listed(chosen, expansion.nodes), -1)
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

    def _choose(self, walk: Callable[..., Expansion], seeds: Ranking, base: Tensor) -> Tensor | None:
        """Choose neighbours ``[b, n]`` by type of edge and by PageRank; None to take the best over all edges."""
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
    """Choose nodes from several lists for each query: each list's places first, then the others from the first list on.

    The lists are ``[b, n]`` int64, best first, unique per row, padded with -1. A node takes the first place that one of
    its lists has for it. Returns ``[b, M]`` int64, unique per row, at most ``num_places`` of a row not -1.
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
    r"""Expand the hybrid ranking (:class:`HybridRetriever`), whose scores are computed for every candidate.

    Features: the hybrid, BM25 and dense scores of every candidate, and the four of the walk (:class:`Expander`).
    """

    bm25_weight: float = 0.3  # not negative
    dense_weight: float = 0.7  # of the cosine, not negative
    proposals: int | None = None  # nodes scored by each of the two searches, as of `HybridRetriever`; None for all
    index: str = "flat"  # of the search by vectors for proposals
    num_probes: int = 16  # IVF: cells that a search visits
    feature_names: tuple[str, ...] = field(default=(*HybridRetriever.feature_names, *EXPANSION_FEATURES), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = ("top_k", "bm25_weight", "dense_weight", "proposals", "index", "num_probes")
        self._base = HybridRetriever(self.graph, **{name: getattr(self, name) for name in settings})

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank by hybrid score: ``[B, top_k]``, ``features [B, top_k, 7]``, the plain ranking as ``base_nodes``."""
        rankings = []
        for base, table in self._base.rank(queries):
            self.graph.pages.release()
            candidates, walk_features = self.candidates(base, table.vectors)
            features = torch.cat([table.gather(candidates), walk_features], dim=-1)
            rankings.append(rank_candidates(candidates, features, self.top_k, base.nodes))
        return Ranking.concatenate(rankings)


@dataclass(eq=False, kw_only=True)
class ExpandRetriever(Expander, Retriever):
    """Expand the ranking of a retriever that scores only its own list.

    A neighbour that it does not list ranks behind the list, with the next float32 below the query's lowest score, and
    takes the query's lowest value of every other feature. Features: those of the base retriever; ``bm25_score`` and, if
    the corpus is encoded, ``dense_score``, unless it has them; and the four of the walk.
    """

    base: RetrieverFactory  # builds the base retriever from a corpus and `top_k`; a `functools.partial`
    similarity_weight: float = 1.0  # 0 needs no encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        self._base = as_retriever(self.base(self.graph, top_k=self.top_k))
        base_names = self._base.feature_names
        if clashes := sorted(set(base_names) & set(EXPANSION_FEATURES)):
            raise UserError(f"`base` must have no feature named as in {list(EXPANSION_FEATURES)}, got {clashes}")
        computable = TEXT_FEATURES if self.graph.embedding is not None else TEXT_FEATURES[:1]
        self._added = tuple(name for name in computable if name not in base_names)
        self.feature_names = (*base_names, *self._added, *EXPANSION_FEATURES)

    @staticmethod
    def needs_vectors(**settings: Any) -> bool:
        """Return whether vectors are read, for STeX's similarity or by the base retriever."""
        return bool(settings.get("similarity_weight", 1.0)) or needs_vectors(settings["base"])

    @property
    def fingerprint(self) -> str:
        """The base retriever's, empty if it has none."""
        return self._base.fingerprint

    @property
    def is_lookup(self) -> bool:
        """Whether the base retriever reads its rankings from a file."""
        return self._base.is_lookup

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank by base score: ``[B, top_k]``, ``features [B, top_k, F]``, and the base ranking as ``base_nodes``.

        The queries need unit vectors if the corpus has an embedding.
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
    """Return the ranking's features of nodes ``[b, M]``; values just below the lowest for unlisted nodes."""
    assert ranking.features is not None
    ascending, order = torch.sort(ranking.nodes, dim=1)
    position = torch.searchsorted(ascending, nodes.contiguous()).clamp(max=ascending.shape[1] - 1)
    is_listed = ascending.gather(1, position) == nodes
    listed = ranking.features.take_along_dim(order.gather(1, position).unsqueeze(-1), dim=1)
    padding = (ranking.nodes < 0).unsqueeze(-1)
    lowest = ranking.features.masked_fill(padding, torch.inf).amin(1, keepdim=True)  # inf if nothing is listed
    smallest = torch.full_like(lowest[..., 0], torch.finfo(lowest.dtype).min)
    lowest[..., 0] = torch.nextafter(lowest[..., 0], smallest)
    return torch.where(is_listed.unsqueeze(-1), listed, lowest)
