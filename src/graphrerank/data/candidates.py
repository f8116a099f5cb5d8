"""Data sets prepared for reranking: vectors, candidate lists, and candidate graphs on demand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.core import (
    CandidateGraphs,
    Encoder,
    ModelInputs,
    PairEncoder,
    Queries,
    Ranking,
    Retriever,
    RetrieverFactory,
)
from graphrerank.core.adapters import as_retriever, query_encoder
from graphrerank.core.model_inputs import SCORES
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.corpus.edge_types import SIMILARITY
from graphrerank.data.dataset import NEAREST, Dataset
from graphrerank.data.enrichment.neighbours import nearest_neighbor_edges
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CorpusCandidates
from graphrerank.features.feature_columns import cross_encoder_columns, feature_columns
from graphrerank.features.text_match import MATCH_FEATURES, TEXT_MATCH_FEATURES, TextMatch
from graphrerank.utils.caching import cached_tensors, hash_texts, short_hash
from graphrerank.utils.checks import UserError, check_counts

CANDIDATES_FORMAT = 2  # raise it when the same arguments would give other candidate lists
CANDIDATE_TENSORS = ("nodes", "scores", "features", "base_nodes")
MATCH_QUERIES = 256  # queries whose words are matched at once
PAIR_QUERIES = 1024  # queries whose pairs' vectors are held together


@dataclass(frozen=True)
class PreparedDataset:
    """A data set with a base ranking for every query, and with encoded texts if there is an encoder."""

    dataset: Dataset  # its graph has an embedding if there is an encoder
    query_vectors: Tensor | None  # `[Q, d]`, or None without an encoder
    ranking: Ranking  # `[Q, K]` candidates, with `features [Q, K, F]`
    feature_names: tuple[str, ...]  # names of the `F` columns; the first is the base ranking's score
    encoder_name: str | None = None
    encoder_fingerprint: str | None = None  # changes whenever the vectors would
    pair_encoder: PairEncoder | None = None  # encodes queries with candidates; None if no model reads pairs
    retriever: Retriever | None = field(default=None, repr=False)  # that ranked the candidates; None: not kept

    @property
    def top_k(self) -> int:
        """Candidates per query."""
        return self.ranking.nodes.shape[1]

    def graphs(
        self,
        queries: Tensor,
        *,
        split: str | None = None,
        inputs: ModelInputs = SCORES,
        edges: bool = True,
    ) -> CandidateGraphs:
        """Build the candidate graphs of some queries, all at once.

        Args:
            queries: ``[B]`` int64 numbers of queries.
            split: Split whose judgements are attached as ``relevance`` and ``gains``. None for neither.
            inputs: The tensors that the model reads.
            edges: Whether there are edges among the candidates.

        Returns:
            ``B`` packed graphs, with ``feature_names`` as the columns of ``x``.

        Raises:
            UserError: If the model reads vectors and nothing was encoded, or pairs and there is no ``pair_encoder``; or
                if there is no such split.
        """
        self._check_inputs(inputs)
        candidates = self._candidates(queries, with_edges=edges)
        builder = CandidateGraphBuilder(inputs, pair_encoder=self.pair_encoder)
        graphs = replace(builder.from_corpus(candidates), query_index=queries)
        if split is None:
            return graphs
        qrels, nodes = self.dataset.split(split), candidates.ranking.nodes
        relevance = qrels.relevance(queries, nodes, num_nodes=self.dataset.graph.num_nodes)[candidates.is_candidate]
        return replace(graphs, relevance=relevance, gains=qrels.gains(queries))

    def _candidates(self, queries: Tensor, *, with_edges: bool = True) -> CorpusCandidates:
        dataset = self.dataset
        rows = Queries(dataset.query_ids, dataset.query_texts, self.query_vectors).select(queries)
        return CorpusCandidates(
            dataset.graph, rows, self.ranking.select(queries), self.feature_names, with_edges=with_edges
        )

    def _check_inputs(self, inputs: ModelInputs) -> None:
        """Refuse a model that reads vectors or pairs that the data do not have."""
        if inputs.reads_vectors and (self.query_vectors is None or self.dataset.graph.embedding is None):
            needed = "an encoder (encoder=minilm), got none; only features=scores does without"
            raise UserError(f"`vectors` of data set {self.dataset.name!r} need {needed}")
        if inputs.reads_pairs and self.pair_encoder is None:
            raise UserError(f"data set {self.dataset.name!r} needs a `pair_encoder` for a model of pairs, got none")

    def with_features(self, names: Sequence[str]) -> "PreparedDataset":
        """Return the data with the features that a model was trained on.

        Args:
            names: Names of the features, in the model's order. Matches of the query's words are computed from the texts
                and the candidate graphs if the retriever does not give them.

        Returns:
            The same data with these columns (:func:`~graphrerank.features.feature_columns.feature_columns`).

        Raises:
            UserError: If a feature is unknown.
        """
        assert self.ranking.features is not None
        columns = feature_columns(names, self.feature_names, self.ranking.features, match=self._match)
        return replace(self, ranking=replace(self.ranking, features=columns), feature_names=tuple(names))

    def _match(self, with_words: bool) -> Tensor:
        """Match all queries with their candidates: ``[Q, K, 3]``, or ``[Q, K, 27]`` with words; 0 where padded."""
        text_match = TextMatch.of(self.dataset.graph)
        names = TEXT_MATCH_FEATURES if with_words else MATCH_FEATURES
        matches = torch.zeros(*self.ranking.nodes.shape, len(names))
        for queries in torch.split(torch.arange(len(matches)), MATCH_QUERIES):
            candidates = replace(self._candidates(queries), text_match=text_match)
            scores = candidates.match(with_words, edges=candidates.edges())
            matches[queries] = matches[queries].masked_scatter(candidates.is_candidate.unsqueeze(-1), scores)
        return matches

    def pairs(self, queries: Tensor, *, top_k: int | None = None) -> tuple[list[str], list[str]]:
        """List the texts of some queries and of their candidates, or the first ``top_k``, pair by pair, ``N`` each."""
        row, column = torch.nonzero(self.ranking.nodes[queries, :top_k] >= 0, as_tuple=True)
        nodes, query_texts = self.ranking.nodes[queries[row], column].tolist(), self.dataset.query_texts
        return [query_texts[query] for query in queries[row].tolist()], [self.dataset.graph.texts[n] for n in nodes]

    def answerable(self, split: str) -> Tensor:
        """List a split's queries with a relevant candidate, ``[Q']``."""
        qrels, num_nodes = self.dataset.split(split), self.dataset.graph.num_nodes
        gains = qrels.relevance(qrels.queries, self.ranking.nodes[qrels.queries], num_nodes=num_nodes)
        return qrels.queries[(gains > 0).any(1)]

    def ceiling(self, split: str) -> float:
        """Share of a split's queries with all relevant nodes among the candidates: the bound of any reranker."""
        qrels, num_nodes = self.dataset.split(split), self.dataset.graph.num_nodes
        return qrels.share_complete(qrels.queries, self.ranking.nodes[qrels.queries], num_nodes=num_nodes)


def prepare(
    dataset: Dataset,
    *,
    encoder: Encoder | None,
    build_retriever: RetrieverFactory,
    cache: str | Path,
    keep_retriever: bool = False,
) -> PreparedDataset:
    """Encode a data set and rank its corpus for every query, from the cache of candidate lists if possible.

    ``encoder`` is best wrapped in a ``VectorCache``, and None if nothing reads vectors. ``build_retriever`` is a
    ``functools.partial`` of a retriever class whose arguments are plain or such partials; ``keep_retriever`` keeps the
    retriever with its index, to time its searches. A damaged cache file is computed again, with a warning. A ValueError
    if there is no encoder, and the retriever or the data set's ``knn`` needs vectors.
    """
    dataset = with_vectors(dataset, encoder, Path(cache))
    described, fingerprint = describe_retriever(build_retriever), "" if encoder is None else encoder.fingerprint
    retriever = as_retriever(build_retriever(dataset.graph))
    decisive = [dataset.fingerprint, fingerprint, described, retriever.fingerprint]
    path = Path(cache) / f"{dataset.name}-{short_hash(hash_texts([str(CANDIDATES_FORMAT), *decisive]))}.safetensors"
    vectors = None if encoder is None else query_encoder(encoder).encode(dataset.query_texts)

    def rank() -> dict[str, Tensor]:
        ranking = retriever.retrieve(Queries(dataset.query_ids, dataset.query_texts, vectors))
        if ranking.base_nodes is None:
            ranking = replace(ranking, base_nodes=ranking.nodes)
        return {name: getattr(ranking, name).clone() for name in CANDIDATE_TENSORS}

    return PreparedDataset(
        dataset,
        vectors,
        Ranking(**cached_tensors(path, CANDIDATE_TENSORS, rank)),
        retriever.feature_names,
        None if encoder is None else encoder.name,
        fingerprint or None,
        retriever=retriever if keep_retriever else None,
    )


def with_vectors(dataset: Dataset, encoder: Encoder | None, cache: Path) -> Dataset:
    """Return a data set with an encoder's vectors, and ``knn`` edges to nearest neighbours; without any if it is None.

    ``cache`` keeps the edges. Vectors that came with the graph stay; a ValueError if they are
    another encoder's, or there is no encoder and ``knn`` needs vectors.
    """
    if encoder is None:
        if dataset.needs_vectors:
            raise UserError(f"`knn` edges of data set {dataset.name!r} need an encoder (encoder=minilm), got none")
        return dataset.with_graph(replace(dataset.graph, vectors=None))
    if dataset.encoded_by == encoder.fingerprint:
        return dataset
    if dataset.encoded_by is not None:
        raise UserError(
            f"`encoder` must be the one that data set {dataset.name!r} was prepared with "
            f"({dataset.encoded_by[:12]}), got {encoder.name} ({encoder.fingerprint[:12]})"
        )
    graph = dataset.graph.with_embedding(encoder.encode(dataset.graph.texts))
    if not dataset.knn:
        return dataset.with_graph(graph)
    parts = [str(CANDIDATES_FORMAT), dataset.fingerprint, encoder.fingerprint, NEAREST]
    path = cache / f"{dataset.name}-{NEAREST}-{short_hash(hash_texts(parts))}.safetensors"

    def find() -> dict[str, Tensor]:
        assert graph.embedding is not None
        few = None if dataset.knn_below is None else torch.nonzero(graph.degree < dataset.knn_below).flatten()
        pairs, similarity = nearest_neighbor_edges(graph.embedding, k=dataset.knn, nodes=few)
        return {"pairs": pairs, "similarity": similarity}

    edges = cached_tensors(path, ("pairs", "similarity"), find)
    joined = graph.with_edges(edges["pairs"], edges["similarity"], edge_type=SIMILARITY)
    return dataset.with_graph(joined, **{NEAREST: len(edges["pairs"])})


def describe_retriever(build_retriever: RetrieverFactory) -> str:
    """Describe a factory and the factories among its arguments."""
    if not isinstance(build_retriever, partial) or build_retriever.args:
        needed = "a functools.partial of a retriever class with keyword arguments"
        raise UserError(f"`build_retriever` must be {needed}, got {build_retriever!r}")
    arguments = (
        f"{name}={describe_retriever(argument) if callable(argument) else repr(argument)}"
        for name, argument in sorted(build_retriever.keywords.items())
    )
    return f"{build_retriever.func.__module__}.{build_retriever.func.__qualname__}({', '.join(arguments)})"


def with_cross_encoder(
    prepared: PreparedDataset, pair_encoder: PairEncoder, queries: Tensor, *, top_k: int
) -> PreparedDataset:
    """Let a cross-encoder read the first ``top_k`` candidates of some queries, ``[Q']``, and add its scores.

    ``CROSS_ENCODER_FEATURES`` stand behind the other features (:func:`cross_encoder_columns`), 0 for all other queries.
    Wrap the encoder in a ``PairCache`` so that no pair is read twice.
    """
    check_counts(top_k=top_k)
    ranking = prepared.ranking
    assert ranking.features is not None
    scores, read = torch.zeros(ranking.nodes.shape), torch.zeros(ranking.nodes.shape, dtype=torch.bool)
    for block in torch.split(torch.unique(queries), PAIR_QUERIES) if len(queries) else ():
        read[block, :top_k] = ranking.nodes[block, :top_k] >= 0
        logits = pair_encoder.head(pair_encoder.encode(*prepared.pairs(block, top_k=top_k))).cpu()
        scores[block] = scores[block].masked_scatter(read[block], logits)
    features = torch.cat([ranking.features, cross_encoder_columns(scores, read)], dim=-1)
    names = (*prepared.feature_names, *CROSS_ENCODER_FEATURES)
    return replace(prepared, ranking=replace(ranking, features=features), feature_names=names)
