"""Conversion of queries and their candidates into the tensors that a model needs.

Training, evaluation, learning from feedback, the reranking step of a pipeline and ``GraphReranker`` all use
:class:`CandidateGraphBuilder`. A model therefore receives the same numbers in training and in production.
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
    """Candidates of ``B`` queries that a retriever has ranked in a corpus.

    Attributes:
        graph: Corpus graph with the edges among the candidates, the vectors and the degrees.
        queries: ``B`` queries, with vectors if the model needs them.
        ranking: Candidates ``[B, K]``, with the scores of the retriever as ``features [B, K, F]``.
        feature_names: Names of the ``F`` scores.
        text_match: Text-match features of the corpus. If None, they are built from the texts of the graph when a model
            needs features that the retriever does not provide.
        with_edges: Whether the model receives the edges among the candidates.
    """

    graph: CorpusGraph
    queries: Queries
    ranking: Ranking
    feature_names: Sequence[str]
    text_match: TextMatch | None = None
    with_edges: bool = True

    @cached_property
    def is_candidate(self) -> Tensor:
        """Mask of the candidates, ``[B, K]`` bool, False for padding."""
        return self.ranking.nodes >= 0

    @cached_property
    def nodes(self) -> Tensor:
        """Candidates of all queries, ``[N]`` int64, grouped by query."""
        return self.ranking.nodes[self.is_candidate]

    @property
    def scores(self) -> Tensor:
        """Scores of the retriever, ``[B, K, F]`` float32.

        Raises:
            UserError: If the ranking has no features.
        """
        if self.ranking.features is None:
            raise UserError("`ranking` must have features, got none")
        return self.ranking.features

    def edges(self, *, keep_types: bool = False) -> CandidateEdges:
        """Return the edges among the candidates of each query. See :func:`~graphrerank.corpus.candidate_edges`.

        Args:
            keep_types: Whether to return one edge per edge type instead of merging the types.
        """
        graph = self.graph if self.with_edges else self.graph.without_edges()
        return candidate_edges(graph, self.ranking.nodes, keep_types=keep_types)

    def match(self, with_words: bool, *, edges: CandidateEdges) -> Tensor:
        """Compute the text-match features of the candidates. See :class:`~graphrerank.features.text_match.TextMatch`.

        Args:
            with_words: Whether to compute the features of single words.
            edges: Edges among the candidates, with or without types.

        Returns:
            Features ``[N, 3]``, or ``[N, 27]`` if ``with_words`` is set, float32.
        """
        text_match = TextMatch.of(self.graph) if self.text_match is None else self.text_match
        nodes, edge_index, ptr = self.nodes.cpu(), edges.edge_index.cpu(), edges.ptr.cpu()
        columns = text_match.score(self.queries.texts, nodes, edge_index, ptr, with_words=with_words)
        return columns.to(self.ranking.nodes.device)


class ListVectors(NamedTuple):
    """Unit vectors of one query and its candidates.

    Attributes:
        query: Query vector ``[1, d]``, float32.
        nodes: Candidate vectors ``[n, d]``, float32.
    """

    query: Tensor
    nodes: Tensor


@dataclass(frozen=True, eq=False)
class CandidateList:
    """Query and its ``n`` candidates without a corpus.

    Attributes:
        scores: Scores ``[n]`` by name, float32. The first is ``base_score``.
        edges: Directed edges among the candidates, numbered from 0. Of repeated edges, the largest weight is used.
        texts: Texts of query and candidates. If None, features that compare texts are 0.
        vectors: Unit vectors, which some models need. None if there are none.
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
        """Compute the text-match features of the candidates.

        Args:
            with_words: Whether to compute the features of single words.

        Returns:
            Features ``[n, 3]``, or ``[n, 27]`` if ``with_words`` is set. They are 0 if there are no texts.
        """
        if self.texts is None:
            return torch.zeros(self.num_candidates, len(TEXT_MATCH_FEATURES if with_words else MATCH_FEATURES))
        return self.texts.match(self.edges.pairs.T.flip(0), with_words=with_words)


@dataclass(frozen=True, eq=False)
class CandidateGraphBuilder:
    """Build packed candidate graphs with all tensors that a model needs.

    There are two sources of candidates: a ranking of a corpus (:meth:`from_corpus`) and plain lists
    (:meth:`from_lists`). Both produce equal tensors for equal candidates, scores, edges, texts and vectors.

    Attributes:
        inputs: Inputs of the model.
        feature_names: Names of the scores that the model was trained on, in order. Scores that the source does not
            provide are computed or set to 0 (see :func:`~graphrerank.features.feature_columns.feature_columns`). If
            None, the scores of the source are used.
        pair_encoder: Cross-encoder for a model that needs vectors of (query, passage) pairs. None for other models.

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
            candidates: Queries, their candidates and the corpus.

        Returns:
            ``B`` graphs on the device of the ranking, with nodes in its order. ``nodes`` are their indices in the
            corpus.

        Raises:
            UserError: If the model needs scores, vectors or a pair encoder that are missing.
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
        """Build the graphs of candidates without a corpus, on the CPU.

        Degrees, which some models need, are counted among the candidates.

        Args:
            lists: At least one query with its candidates.
            check: Function that is called between the steps of the computation. It may raise an exception to stop it.

        Returns:
            One graph per list, with nodes in its order and without ``nodes``.

        Raises:
            UserError: If the model needs scores, texts, vectors or a pair encoder that are missing.
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
                raise UserError("the model needs `vectors` of query and candidates, got none")
            extra["query_vectors"] = torch.cat([each.query for each in vectors])
            extra["node_vectors"] = torch.cat([each.nodes for each in vectors])
        if self.inputs.reads_pairs:
            texts = [each.texts for each in lists if each.texts is not None]
            if len(texts) < len(lists):
                raise UserError("the model needs the texts of query and `passages`, got none")
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
            raise UserError("the model needs a `pair_encoder` for (query, passage) pairs, got none")
        if self.inputs.reads("token_states"):
            last_layers = self.inputs.last_layers
            states, ptr = self.pair_encoder.encode_states(query_texts, passages, without_last=last_layers)
            return {"token_states": states, "token_ptr": ptr, "degree": degree}
        return {"pair_vectors": self.pair_encoder.encode(query_texts, passages), "degree": degree}


def _merge_lists(lists: Sequence[TypedEdges], ptr: Tensor, *, keep_types: bool) -> CandidateEdges:
    """Pack the edges of several queries, sorted by target. Of repeated edges, the largest weight is used."""
    pairs = torch.cat([edges.pairs + start for edges, start in zip(lists, ptr[:-1], strict=True)])
    weight, edge_type, num_nodes = torch.cat([edges.weight for edges in lists]), None, int(ptr[-1])
    if keep_types:
        types = torch.cat([edges.types for edges in lists])
        pairs, weight, edge_type = merge_parallel_of_types(pairs, weight, types, num_nodes)
    else:
        pairs, weight = merge_parallel(pairs, weight, num_nodes)
    return CandidateEdges(pairs.flip(1).T.contiguous(), weight, ptr, edge_type)
