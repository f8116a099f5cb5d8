"""Expand any base ranking: the top of a retriever's list, and the best graph neighbours of its best nodes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Queries, Ranking, RetrieverFactory
from graphrerank.graphs.retriever import EXPANSION_FEATURES, TEXT_FEATURES, is_lookup, needs_vectors
from graphrerank.operators.bm25 import LexicalIndex, lexical_index
from graphrerank.operators.expander import Expander, rank_candidates
from graphrerank.operators.hybrid import BLOCK_SCORES, lexical_scores


class ExpandRetriever:
    """Take the top ``base_k`` of a retriever's ranking, then neighbours of its top ``num_seeds`` up to ``top_k``.

    As ``HybridExpandRetriever``, for a retriever that scores only what it lists. A
    neighbour that it lists further down keeps its score. One that it does not list scores just below the query's
    lowest score (the next smaller float32) and therefore ranks behind the list, ties broken by node index; it takes the
    query's lowest value of every other feature.

    Features: those of the base retriever; ``bm25_score`` (divided by the query's maximum over the corpus) and, if the
    corpus is encoded, ``dense_score``, unless the base retriever has them; and the four of the walk.

    Args:
        graph: The corpus, undirected; with its ``embedding`` of unit vectors unless ``similarity_weight`` is 0.
        base: Builds the base retriever from a corpus and ``top_k``; a ``functools.partial``.
        top_k: Candidates per query.
        base_k: Candidates from the base ranking, fewer than ``top_k``.
        num_seeds: Nodes to expand from, at most ``base_k``.
        similarity_weight: STeX's weight of the dot product of query and node, not negative; 0 needs no encoder.
        structure_weight: STeX's weight of the structural score, not negative.
        hops: 2 to continue with the neighbours' neighbours if one hop leaves room.
        pagerank_share: Share of the neighbours' places, in [0, 1], for passages by personalized PageRank over entities
            (:class:`~graphrerank.operators.entity_ppr.EntityPPR`): the corpus's, or those that its texts show by their
            spelling. Those that no edge joins with a seed have 0 in the four features below.
        quotas: Share of the neighbours' places by type of edge, together at most 1; what a type leaves free goes to
            the others, references first. None: neighbours compete over all edges.

    Raises:
        ValueError: If an argument is out of range, the corpus has no embedding though ``similarity_weight`` is above 0,
            or the base retriever has a feature named like one of the walk's.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        base: RetrieverFactory,
        top_k: int = 100,
        base_k: int = 60,
        num_seeds: int = 30,
        similarity_weight: float = 1.0,
        structure_weight: float = 1.0,
        hops: int = 1,
        pagerank_share: float = 0.0,
        quotas: Mapping[str, float] | None = None,
    ) -> None:
        self._expander = Expander(
            graph,
            top_k=top_k,
            base_k=base_k,
            num_seeds=num_seeds,
            similarity_weight=similarity_weight,
            structure_weight=structure_weight,
            hops=hops,
            pagerank_share=pagerank_share,
            quotas=quotas,
        )
        if similarity_weight and graph.embedding is None:
            raise ValueError(
                "`graph` must have an embedding: choose an encoder (encoder=minilm), or rank neighbours by the graph "
                "only (retriever.similarity_weight=0)"
            )
        self.top_k = top_k
        self._graph = graph
        self._base = base(graph, top_k=top_k)
        base_names = self._base.feature_names
        if clashes := sorted(set(base_names) & set(EXPANSION_FEATURES)):
            raise ValueError(f"`base` must have no feature named as in {list(EXPANSION_FEATURES)}, got {clashes}")
        computable = TEXT_FEATURES if graph.embedding is not None else TEXT_FEATURES[:1]
        self._added = tuple(name for name in computable if name not in base_names)
        self.feature_names = (*base_names, *self._added, *EXPANSION_FEATURES)

    @staticmethod
    def needs_vectors(*, base: RetrieverFactory, similarity_weight: float = 1.0, **_: Any) -> bool:
        """Return whether vectors are read, for STeX's similarity or by the base retriever."""
        return bool(similarity_weight) or needs_vectors(base)

    @property
    def fingerprint(self) -> str:
        """The base retriever's, empty if it has none."""
        return getattr(self._base, "fingerprint", "")

    @property
    def is_lookup(self) -> bool:
        """Whether the base retriever reads its rankings from a file."""
        return is_lookup(self._base)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the candidates of each of ``B`` queries by their base score, ties broken by node index.

        The queries need unit vectors if the corpus has an embedding.

        Returns:
            ``[B, top_k]`` nodes and base scores, with ``features [B, top_k, F]`` as in ``feature_names`` and the base
            ranking as ``base_nodes``.
        """
        ranking = self._base.retrieve(queries).to(self._graph.device)
        embedding = self._graph.embedding
        width = 0 if embedding is None else 2 * self.top_k * embedding.shape[1]
        size = max(1, BLOCK_SCORES // max(1, width, self._graph.num_nodes))
        rows = torch.arange(len(queries), device=self._graph.device)
        blocks = zip(queries.blocks(size), torch.split(rows, size), strict=True)
        return Ranking.concatenate([self._expand(ranking.select(block_rows), block) for block, block_rows in blocks])

    def _expand(self, ranking: Ranking, queries: Queries) -> Ranking:
        vectors = None if self._graph.embedding is None else queries.encoded.to(self._graph.device)
        candidates, walk_features = self._expander.expand(ranking.nodes, ranking.scores, vectors)
        columns = [
            _look_up(ranking, candidates),
            *(self._text_scores(name, queries, candidates) for name in self._added),
        ]
        features = torch.cat([*columns, walk_features], dim=-1).masked_fill((candidates < 0).unsqueeze(-1), 0.0)
        self._graph.pages.release()
        return rank_candidates(candidates, features, self.top_k, base_nodes=ranking.nodes)

    def _text_scores(self, name: str, queries: Queries, nodes: Tensor) -> Tensor:
        column = nodes.clamp(min=0)
        if name == "bm25_score":
            return lexical_scores(self._bm25, queries.texts).to(column.device).gather(1, column).unsqueeze(-1)
        return self._graph.encoded[column].float() @ queries.encoded.to(column.device).unsqueeze(-1)

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph)


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
