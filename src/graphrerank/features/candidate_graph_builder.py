"""The only place where queries and their candidates become the tensors that a model reads.

Training, evaluation, learning from use, the reranking step of a pipeline and ``GraphReranker`` all call
:class:`CandidateGraphBuilder`. A model therefore reads the same numbers when it is trained and when it is served.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs, ModelInputs, PairEncoder, Queries, Ranking
from graphrerank.corpus import CandidateEdges, CorpusGraph, TypedEdges, candidate_edges
from graphrerank.corpus.edge_lists import merge_parallel, merge_parallel_of_types
from graphrerank.features.candidate_texts import CandidateTexts
from graphrerank.features.feature_columns import feature_columns
from graphrerank.features.text_match import MATCH_FEATURES, TEXT_MATCH_FEATURES, TextMatch
from graphrerank.utils.checks import UserError


@dataclass(frozen=True, eq=False)
class CorpusCandidates:
    """Candidates of ``B`` queries that are passages of a corpus graph, as a retriever ranks them.

    Attributes:
        graph: The corpus. Edges among the candidates, vectors and degrees are read from it.
        queries: The ``B`` queries, with vectors for a model that reads them.
        ranking: ``[B, K]`` candidates, with the retriever's scores as ``features [B, K, F]``.
        feature_names: Names of the ``F`` scores.
        text_match: Match of a query's words with the corpus. If None, it is made from the graph's texts when a model
            reads features that the retriever does not give.
        with_edges: Whether the model sees the edges among the candidates.
    """

    graph: CorpusGraph
    queries: Queries
    ranking: Ranking
    feature_names: Sequence[str]
    text_match: TextMatch | None = None
    with_edges: bool = True

    @cached_property
    def is_candidate(self) -> Tensor:
        """``[B, K]`` bool, False where a row of the ranking is padded."""
        return self.ranking.nodes >= 0

    @cached_property
    def nodes(self) -> Tensor:
        """``[N]`` int64, the candidates of all queries, one query after the other."""
        return self.ranking.nodes[self.is_candidate]

    @property
    def scores(self) -> Tensor:
        """``[B, K, F]`` float32, the retriever's scores.

        Raises:
            UserError: If the ranking has none.
        """
        if self.ranking.features is None:
            raise UserError("`ranking` must have features, got none")
        return self.ranking.features

    def edges(self, *, keep_types: bool = False) -> CandidateEdges:
        """Return the edges among the candidates of each query; see :func:`~graphrerank.corpus.candidate_edges`."""
        graph = self.graph if self.with_edges else self.graph.without_edges()
        return candidate_edges(graph, self.ranking.nodes, keep_types=keep_types)

    def match(self, with_words: bool, *, edges: CandidateEdges) -> Tensor:
        """Return the columns of :class:`~graphrerank.features.text_match.TextMatch`.

        Args:
            with_words: Whether the columns of single words are computed too.
            edges: Edges among the candidates, with or without types.

        Returns:
            ``[N, 3]`` float32, or ``[N, 27]`` with words.
        """
        text_match = TextMatch.of(self.graph) if self.text_match is None else self.text_match
        nodes, edge_index, ptr = self.nodes.cpu(), edges.edge_index.cpu(), edges.ptr.cpu()
        columns = text_match.score(self.queries.texts, nodes, edge_index, ptr, with_words=with_words)
        return columns.to(self.ranking.nodes.device)


class ListVectors(NamedTuple):
    """Unit vectors of one query and its candidates.

    Attributes:
        query: ``[1, d]`` float32.
        nodes: ``[n, d]`` float32.
    """

    query: Tensor
    nodes: Tensor


@dataclass(frozen=True, eq=False)
class CandidateList:
    """One query and its ``n`` candidates, which belong to no corpus.

    Attributes:
        scores: ``[n]`` float32 scores by name. The first is ``base_score``.
        edges: Directed edges among the candidates, numbered from 0. They may be repeated; the largest weight counts.
        texts: The texts. If None, features that compare texts are 0.
        vectors: Unit vectors for a model that reads them. None if there are none.
    """

    scores: Mapping[str, Tensor]
    edges: TypedEdges
    texts: CandidateTexts | None = None
    vectors: ListVectors | None = None

    @property
    def num_candidates(self) -> int:
        """Number of candidates."""
        return len(next(iter(self.scores.values())))

    def match(self, with_words: bool) -> Tensor:
        """Return the columns of the texts' match, ``[n, 3]`` or ``[n, 27]``; 0 where there are no texts."""
        if self.texts is None:
            return torch.zeros(self.num_candidates, len(TEXT_MATCH_FEATURES if with_words else MATCH_FEATURES))
        return self.texts.match(self.edges.pairs.T.flip(0), with_words=with_words)


@dataclass(frozen=True, eq=False)
class CandidateGraphBuilder:
    """Builds the packed graphs of queries' candidates with every tensor that a model reads.

    There are two sources: a ranking of a corpus (:meth:`from_corpus`) and plain lists (:meth:`from_lists`). Both give
    equal tensors for equal candidates, scores, edges, texts and vectors.

    Attributes:
        inputs: The tensors that the model reads.
        feature_names: Names of the scores that the model was trained on, in its order. Scores that the source does not
            give are computed, or 0 (:func:`~graphrerank.features.feature_columns.feature_columns`). If None, the scores
            are those of the source.
        pair_encoder: Cross-encoder for a model that reads vectors of (query, passage) pairs. None for other models.

    Example:
        >>> graph = CorpusGraph.from_edges(["a", "b"], ["worm", "drive"], torch.tensor([[0, 1]]))
        >>> ranking = Ranking(torch.tensor([[1, 0]]), torch.tensor([[2.0, 1.0]]), torch.tensor([[[2.0], [1.0]]]))
        >>> candidates = CorpusCandidates(graph, Queries(["q"], ["worm"]), ranking, ["base_score"])
        >>> builder = CandidateGraphBuilder(ModelInputs(("base_features", "edge_index")), ["base_score", "hops"])
        >>> builder.from_corpus(candidates).model_inputs(builder.inputs)
        (tensor([[2., 0.],
                [1., 0.]]), tensor([[1, 0],
                [0, 1]]))
    """

    inputs: ModelInputs
    feature_names: Sequence[str] | None = None
    pair_encoder: PairEncoder | None = None

    def from_corpus(self, candidates: CorpusCandidates) -> CandidateGraphs:
        """Build the graphs of candidates from a corpus.

        Args:
            candidates: The queries, their candidates and the corpus.

        Returns:
            ``B`` graphs on the device of the ranking, nodes in its order. ``nodes`` are their numbers in the corpus.

        Raises:
            UserError: If scores, vectors or a pair encoder that the model needs are missing.
        """
        edges = candidates.edges(keep_types=self.inputs.reads_edge_types)
        features = candidates.scores[candidates.is_candidate]
        if self.feature_names is not None:
            match = partial(candidates.match, edges=edges)
            features = feature_columns(self.feature_names, candidates.feature_names, features, match=match)
        nodes, extra = candidates.nodes, dict[str, Tensor]()
        if self.inputs.reads_vectors:
            query_vectors = candidates.queries.encoded.to(nodes.device)
            extra |= {"query_vectors": query_vectors, "node_vectors": candidates.graph.encoded[nodes].float()}
        if self.inputs.reads_pairs:
            row = torch.nonzero(candidates.is_candidate)[:, 0].tolist()
            query_texts = [candidates.queries.texts[query] for query in row]
            passages = [candidates.graph.texts[node] for node in nodes.tolist()]
            extra |= self._pair_inputs(query_texts, passages, candidates.graph.count_neighbours(nodes))
        return CandidateGraphs(
            x=features,
            edge_index=edges.edge_index,
            edge_attr=edges.weight,
            ptr=edges.ptr,
            nodes=nodes,
            inputs=extra,
            edge_type=edges.edge_type,
        )

    def from_lists(
        self, lists: Sequence[CandidateList], *, check: Callable[[], None] = lambda: None
    ) -> CandidateGraphs:
        """Build the graphs of candidates that belong to no corpus, on the CPU.

        Degrees, which some models read, are those among the candidates.

        Args:
            lists: At least one query with its candidates.
            check: Called between the steps of the work, which may take long. It may raise, to stop it.

        Returns:
            One graph per list, nodes in its order, without ``nodes``.

        Raises:
            UserError: If a list misses a score, texts, vectors or a pair encoder that the model needs.
        """
        rows = []
        for candidates in lists:
            check()
            rows.append(self._list_features(candidates))
        ptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
        edges = _merge_lists([each.edges for each in lists], ptr, keep_types=self.inputs.reads_edge_types)
        extra = dict[str, Tensor]()
        if self.inputs.reads_vectors:
            vectors = [each.vectors for each in lists if each.vectors is not None]
            if len(vectors) < len(lists):
                raise UserError("`vectors` must be given for a model that reads them, got none")
            extra["query_vectors"] = torch.cat([each.query for each in vectors])
            extra["node_vectors"] = torch.cat([each.nodes for each in vectors])
        if self.inputs.reads_pairs:
            texts = [each.texts for each in lists if each.texts is not None]
            if len(texts) < len(lists):
                raise UserError("`passages` must be given for a model that reads them with the query, got none")
            query_texts = list(chain.from_iterable([each.query] * len(each.passages) for each in texts))
            passages = list(chain.from_iterable(each.passages for each in texts))
            check()
            degree = torch.bincount(edges.edge_index[1], minlength=len(passages))
            extra |= self._pair_inputs(query_texts, passages, degree)
        return CandidateGraphs(
            x=torch.cat(rows),
            edge_index=edges.edge_index,
            edge_attr=edges.weight,
            ptr=ptr,
            inputs=extra,
            edge_type=edges.edge_type,
        )

    def _list_features(self, candidates: CandidateList) -> Tensor:
        names = tuple(candidates.scores)
        scores = torch.stack([candidates.scores[name] for name in names], dim=1)
        if self.feature_names is None:
            return scores
        return feature_columns(self.feature_names, names, scores, match=candidates.match)

    def _pair_inputs(self, query_texts: list[str], passages: list[str], degree: Tensor) -> dict[str, Tensor]:
        if self.pair_encoder is None:
            raise UserError("`pair_encoder` must be given for a model that reads pairs, got none")
        return {"pair_vectors": self.pair_encoder.encode(query_texts, passages), "degree": degree}


def _merge_lists(lists: Sequence[TypedEdges], ptr: Tensor, *, keep_types: bool) -> CandidateEdges:
    """Pack the edges of several queries, sorted by target; of repeated ones the largest weight counts."""
    pairs = torch.cat([edges.pairs + start for edges, start in zip(lists, ptr[:-1], strict=True)])
    weight, edge_type, num_nodes = torch.cat([edges.weight for edges in lists]), None, int(ptr[-1])
    if keep_types:
        types = torch.cat([edges.types for edges in lists])
        pairs, weight, edge_type = merge_parallel_of_types(pairs, weight, types, num_nodes)
    else:
        pairs, weight = merge_parallel(pairs, weight, num_nodes)
    return CandidateEdges(pairs.flip(1).T.contiguous(), weight, ptr, edge_type)
