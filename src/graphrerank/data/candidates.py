"""Data sets prepared for reranking: vectors, candidate lists, and candidate graphs on demand."""

from collections.abc import Callable, Sequence
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
from graphrerank.corpus.mapped_pages import MappedPages
from graphrerank.data.batch_plans import GraphSizes
from graphrerank.data.dataset import NEAREST, Dataset
from graphrerank.data.encoder import encode_passages
from graphrerank.data.enrichment.neighbours import nearest_neighbor_edges
from graphrerank.data.qrels import Qrels
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CorpusCandidates
from graphrerank.features.feature_columns import cross_encoder_columns, feature_columns
from graphrerank.features.text_match import MATCH_FEATURES, TEXT_MATCH_FEATURES, TextMatch
from graphrerank.utils.caching import cached_tensors, hash_texts, read_cached, short_hash
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.progress import advance, progress_bar

CANDIDATES_FORMAT = 2  # Version of cached candidate lists. Increase it whenever the same arguments give other lists.
CANDIDATE_TENSORS = ("nodes", "scores", "features", "base_nodes")
NODE_TENSORS = ("nodes", "base_nodes")
PADDING_NODE = -1  # Number in the place of a passage in a row with fewer candidates.
MATCH_QUERIES = 256  # Number of queries whose words are matched at once.
ANSWER_QUERIES = 1 << 14  # Number of queries whose candidates are compared with the judgements at once.
SIZE_QUERIES = 256  # Number of queries whose graphs are built at once to count their edges.
PAIR_QUERIES = 1024  # Number of queries whose pairs are encoded at once.


@dataclass(frozen=True)
class TeacherScores:
    """Scores of a teacher for the candidates of queries, for distillation.

    Attributes:
        scores: Scores ``[Q, K]`` of all queries' candidates, NaN for candidates that the teacher has not scored.
        queries: Queries to train on, which may be without judgements, ``[T]`` int64.
        labels_validation: Whether the judgements of the validation split are the best candidates of the teacher,
            because the data set has no judged validation split.
    """

    scores: Tensor
    queries: Tensor
    labels_validation: bool = False


@dataclass(frozen=True)
class PreparedDataset:
    """Data set with a candidate list for every query, and with vectors if there is an encoder.

    Attributes:
        dataset: Data set. Its graph has vectors if there is an encoder.
        query_vectors: Query vectors ``[Q, d]``. None without an encoder.
        ranking: Candidates ``[Q, K]`` with features ``[Q, K, F]``.
        feature_names: Names of the ``F`` features. The first is the score of the base ranking.
        encoder_name: Name of the encoder. None without an encoder.
        encoder_fingerprint: Hash that changes whenever the vectors would change. None without an encoder.
        pair_encoder: Cross-encoder of queries and candidates. None if no model needs pairs.
        retriever: Retriever that ranked the candidates. None if it was discarded.
        teacher: Scores of a teacher for distillation. None without a teacher.
        pages: Mapped files of ``ranking`` and ``query_vectors``, whose pages are released while batches are built. None
            if they are in memory.
        is_prepared: Whether each query has candidates and a vector, ``[Q]`` bool. None if all have. The other rows of
            ``ranking`` are padding, those of ``query_vectors`` are NaN, and using them raises an error.
        top_k: Number of candidates per query.
    """

    dataset: Dataset
    query_vectors: Tensor | None
    ranking: Ranking
    feature_names: tuple[str, ...]
    encoder_name: str | None = None
    encoder_fingerprint: str | None = None
    pair_encoder: PairEncoder | None = None
    retriever: Retriever | None = field(default=None, repr=False)
    teacher: TeacherScores | None = None
    pages: MappedPages | None = field(default=None, repr=False, compare=False)
    is_prepared: Tensor | None = field(default=None, repr=False)

    @property
    def top_k(self) -> int:
        """Number of candidates per query."""
        return self.ranking.nodes.shape[1]

    def graphs(
        self,
        queries: Tensor,
        *,
        split: str | None = None,
        inputs: ModelInputs = SCORES,
        edges: bool = True,
    ) -> CandidateGraphs:
        """Build the candidate graphs of a batch of queries.

        Args:
            queries: Query numbers ``[B]`` int64.
            split: Split whose judgements are attached as ``relevance`` and ``gains``, and with them the scores of the
                teacher. If None, none are attached.
            inputs: Tensors that the model needs.
            edges: Whether to include edges between candidates.

        Returns:
            ``B`` packed graphs, with ``feature_names`` as the columns of ``x``.

        Raises:
            UserError: If the model needs vectors and there is no encoder, if the model needs pairs and there is no
                ``pair_encoder``, if the split does not exist, or if a query was not prepared.
        """
        self._check_inputs(inputs)
        candidates = self._candidates(queries, with_edges=edges)
        builder = CandidateGraphBuilder(inputs, pair_encoder=self.pair_encoder)
        graphs = replace(builder.from_corpus(candidates), query_index=queries)
        if self.pages is not None:
            self.pages.release()
        if split is None:
            return graphs
        qrels = self._judgements(split)
        is_candidate = candidates.is_candidate
        relevance = qrels.relevance(queries, candidates.ranking.nodes, num_nodes=self.dataset.graph.num_nodes)
        teacher_scores = None if self.teacher is None else self.teacher.scores[queries][is_candidate]
        return replace(
            graphs, relevance=relevance[is_candidate], gains=qrels.gains(queries), teacher_scores=teacher_scores
        )

    def graph_sizes(self, queries: Tensor, *, with_edges: bool = True) -> GraphSizes:
        """Count the nodes and edges of the candidate graphs of queries.

        Args:
            queries: Query numbers ``[Q]`` int64.
            with_edges: Whether to count edges, which takes about as long as building the graphs once.

        Returns:
            Numbers of candidates and, if they are counted, of edges between candidates.
        """
        blocks = torch.split(queries, ANSWER_QUERIES)
        nodes = torch.cat([(self.ranking.nodes[block] >= 0).sum(1) for block in blocks])
        if not with_edges:
            return GraphSizes(nodes)
        edges = torch.zeros_like(nodes)
        for block in torch.split(torch.arange(len(queries)), SIZE_QUERIES):
            graphs = self.graphs(queries[block])
            graph_of_edge = torch.bucketize(graphs.edge_index[1], graphs.ptr[1:], right=True)
            edges[block] = torch.bincount(graph_of_edge, minlength=len(block))
        return GraphSizes(nodes, edges)

    def _candidates(self, queries: Tensor, *, with_edges: bool = True) -> CorpusCandidates:
        self._check_prepared(queries)
        dataset = self.dataset
        rows = Queries(dataset.query_ids, dataset.query_texts, self.query_vectors).select(queries)
        return CorpusCandidates(
            dataset.graph, rows, self.ranking.select(queries), self.feature_names, with_edges=with_edges
        )

    def _check_prepared(self, queries: Tensor) -> None:
        """Check that all queries have candidates."""
        if self.is_prepared is not None and not bool(self.is_prepared[queries].all()):
            missing = queries[~self.is_prepared[queries]]
            raise UserError(
                f"`queries` must be among the {int(self.is_prepared.sum())} prepared queries of data set "
                f"{self.dataset.name!r}, got {len(missing)} others, such as "
                f"{self.dataset.query_ids[int(missing[0])]!r}; prepare the data set with these queries as well"
            )

    def _check_inputs(self, inputs: ModelInputs) -> None:
        """Check that the data have the vectors or pairs that a model needs."""
        if inputs.reads_vectors and (self.query_vectors is None or self.dataset.graph.embedding is None):
            raise UserError(
                f"the model needs vectors of data set {self.dataset.name!r}, got no encoder; "
                "use encoder=minilm, or features=scores, which needs no vectors"
            )
        if inputs.reads_pairs and self.pair_encoder is None:
            raise UserError(f"the model needs a `pair_encoder` for data set {self.dataset.name!r}, got None")

    def with_features(self, names: Sequence[str], *, text_match: TextMatch | None = None) -> "PreparedDataset":
        """Return a copy with the features that a trained model uses.

        Args:
            names: Names of the features, in the model's order. Word matches are computed from the texts and the
                candidate graphs if the retriever does not provide them.
            text_match: Matcher for the texts of the corpus. If None, it is built if it is needed.

        Returns:
            Copy with these features (:func:`~graphrerank.features.feature_columns.feature_columns`). The data set
            itself if these are its features.

        Raises:
            UserError: If a feature is unknown.
        """
        if tuple(names) == self.feature_names:
            return self
        assert self.ranking.features is not None
        match = partial(self._match, text_match=text_match)
        columns = feature_columns(names, self.feature_names, self.ranking.features, match=match)
        return replace(self, ranking=replace(self.ranking, features=columns), feature_names=tuple(names))

    def _match(self, with_words: bool, *, text_match: TextMatch | None) -> Tensor:
        """Return the word matches of all candidates, ``[Q, K, 3]`` or, with words, ``[Q, K, 27]``, padded with 0."""
        text_match = TextMatch.of(self.dataset.graph) if text_match is None else text_match
        names = TEXT_MATCH_FEATURES if with_words else MATCH_FEATURES
        matches = torch.zeros(*self.ranking.nodes.shape, len(names))
        rows = torch.arange(len(matches)) if self.is_prepared is None else self.is_prepared.nonzero().flatten()
        with progress_bar(f"comparing queries of {self.dataset.name} with passages", len(rows)):
            for queries in torch.split(rows, MATCH_QUERIES):
                candidates = replace(self._candidates(queries), text_match=text_match)
                scores = candidates.match(with_words, edges=candidates.edges())
                matches[queries] = matches[queries].masked_scatter(candidates.is_candidate.unsqueeze(-1), scores)
                advance(len(queries))
        return matches

    def pairs(self, queries: Tensor, *, top_k: int | None = None) -> tuple[list[str], list[str]]:
        """List the texts of query-candidate pairs.

        Args:
            queries: Query numbers ``[B]``.
            top_k: Maximum number of candidates per query. If None, all candidates are used.

        Returns:
            Query texts and passage texts of the ``N`` pairs.

        Raises:
            UserError: If a query was not prepared.
        """
        self._check_prepared(queries)
        row, column = torch.nonzero(self.ranking.nodes[queries, :top_k] >= 0, as_tuple=True)
        pair_queries = queries[row]
        pair_nodes = self.ranking.nodes[pair_queries, column]
        query_texts = [self.dataset.query_texts[query] for query in pair_queries.tolist()]
        passages = [self.dataset.graph.texts[node] for node in pair_nodes.tolist()]
        return query_texts, passages

    def answerable(self, split: str) -> Tensor:
        """Return the queries of a split that have a relevant candidate.

        Args:
            split: Name of the split.

        Returns:
            Query numbers ``[Q']`` int64.

        Raises:
            UserError: If the split does not exist, or if one of its queries was not prepared.
        """
        qrels = self._judgements(split)
        num_nodes = self.dataset.graph.num_nodes
        self._check_prepared(qrels.queries)
        blocks = torch.split(qrels.queries, ANSWER_QUERIES)
        gains = (qrels.relevance(block, self.ranking.nodes[block], num_nodes=num_nodes) for block in blocks)
        return qrels.queries[torch.cat([(block_gains > 0).any(1) for block_gains in gains])]

    def _judgements(self, split: str) -> Qrels:
        """Return the judgements of a split. With a teacher, a missing split has none."""
        if self.teacher is not None and split not in self.dataset.splits:
            return Qrels.from_rows([])
        return self.dataset.split(split)

    def training_queries(self, split: str) -> Tensor:
        """Return the queries to train on: those with a relevant candidate, and those with scores of the teacher.

        Args:
            split: Name of the training split.

        Returns:
            Sorted query numbers ``[T]`` int64.

        Raises:
            UserError: If the split does not exist.
        """
        answerable = self.answerable(split)
        return answerable if self.teacher is None else torch.unique(torch.cat([answerable, self.teacher.queries]))

    def ceiling(self, split: str) -> float:
        """Return the share of queries whose relevant passages are all among the candidates.

        This share is the upper bound of PR@K for any reranker.

        Args:
            split: Name of the split.

        Returns:
            Share in [0, 1].

        Raises:
            UserError: If the split does not exist, or if one of its queries was not prepared.
        """
        qrels, num_nodes = self.dataset.split(split), self.dataset.graph.num_nodes
        self._check_prepared(qrels.queries)
        return qrels.share_complete(qrels.queries, self.ranking.nodes[qrels.queries], num_nodes=num_nodes)


def prepare(
    dataset: Dataset,
    *,
    encoder: Encoder | None,
    build_retriever: RetrieverFactory,
    cache: str | Path,
    keep_retriever: bool = False,
    queries: Tensor | None = None,
) -> PreparedDataset:
    """Encode a data set and retrieve candidates for its queries, using the cache of candidate lists.

    Args:
        dataset: Data set to prepare.
        encoder: Text encoder, usually a :class:`~graphrerank.data.vector_cache.VectorCache`. None if neither the
            retriever nor the model needs vectors.
        build_retriever: ``functools.partial`` of a retriever class. Its arguments are plain values or such partials.
        cache: Folder of candidate lists and edges. A damaged file is computed again with a warning.
        keep_retriever: Whether to keep the retriever with its index, for example to measure its latency.
        queries: Numbers of the queries to prepare, ``[Q']`` int64. The numbers of queries do not change, and using
            any other query raises an error. If None, all queries are prepared.

    Returns:
        Data set with candidates.

    Raises:
        UserError: If there is no encoder, and the retriever or ``knn`` edges need vectors.
    """
    dataset = with_vectors(dataset, encoder, Path(cache))
    retriever, decisive = keyed_retriever(dataset, encoder, build_retriever)
    is_prepared = _prepared_mask(len(dataset.query_ids), queries)
    vectors = _encode_queries(dataset, encoder, is_prepared)
    path = _cache_file(Path(cache), dataset, decisive)
    rank = partial(_rank_queries, dataset, retriever, vectors, is_prepared)
    if is_prepared is None:
        tensors = cached_tensors(path, CANDIDATE_TENSORS, rank)
    else:
        path_of_selected = _cache_file(Path(cache), dataset, decisive, is_prepared)
        tensors = _selected_candidates(path, path_of_selected, is_prepared, rank)
    return PreparedDataset(
        dataset,
        vectors,
        Ranking(**tensors),
        retriever.feature_names,
        None if encoder is None else encoder.name,
        None if encoder is None else encoder.fingerprint or None,
        retriever=retriever if keep_retriever else None,
        is_prepared=is_prepared,
    )


def _prepared_mask(num_queries: int, queries: Tensor | None) -> Tensor | None:
    """Return which queries to prepare, ``[Q]`` bool, or None for all of them."""
    if queries is None:
        return None
    mask = torch.zeros(num_queries, dtype=torch.bool)
    mask[queries] = True
    return None if bool(mask.all()) else mask


def _cache_file(cache: Path, dataset: Dataset, decisive: Sequence[str], is_prepared: Tensor | None = None) -> Path:
    """Return the file of the candidates of all queries, or of the selected ones."""
    key = [str(CANDIDATES_FORMAT), *decisive]
    if is_prepared is not None:
        key.append(f"queries {short_hash(is_prepared.numpy().tobytes())}")
    return cache / f"{dataset.name}-{short_hash(hash_texts(key))}.safetensors"


def _encode_queries(dataset: Dataset, encoder: Encoder | None, is_prepared: Tensor | None) -> Tensor | None:
    """Return the query vectors ``[Q, d]``. Queries that are not prepared are not encoded, and their rows are NaN."""
    if encoder is None:
        return None
    texts = dataset.query_texts
    if is_prepared is None:
        return query_encoder(encoder).encode(texts)
    queries = is_prepared.nonzero().flatten()
    encoded = query_encoder(encoder).encode([texts[query] for query in queries.tolist()])
    vectors = encoded.new_full((len(texts), encoded.shape[1]), torch.nan)
    vectors[queries] = encoded
    return vectors


def _rank_queries(
    dataset: Dataset, retriever: Retriever, vectors: Tensor | None, is_prepared: Tensor | None
) -> dict[str, Tensor]:
    """Retrieve the candidates of the queries to prepare, and return the tensors of the cache file."""
    queries = Queries(dataset.query_ids, dataset.query_texts, vectors)
    if is_prepared is not None:
        queries = queries.select(is_prepared.nonzero().flatten())
    with progress_bar(f"retrieving for the queries of {dataset.name}", len(queries)):
        ranking = retrieve(retriever, queries)
    return {name: getattr(ranking, name).clone() for name in CANDIDATE_TENSORS}


def _selected_candidates(
    path_of_all: Path, path: Path, is_prepared: Tensor, rank: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return the candidates of the selected queries, and padding for all others.

    The candidates are read from the cache file of the selected queries, or else from that of all queries. If both are
    missing or damaged, they are retrieved. A damaged file of all queries is deleted, because it is not written again.
    """
    rows = None if path.is_file() else read_cached(path_of_all, CANDIDATE_TENSORS)
    if rows is None:
        if not path.is_file():
            path_of_all.unlink(missing_ok=True)
        rows = cached_tensors(path, CANDIDATE_TENSORS, rank)
    else:
        rows = {name: tensor[is_prepared] for name, tensor in rows.items()}
    tensors = {}
    for name, tensor in rows.items():
        padding = PADDING_NODE if name in NODE_TENSORS else 0
        tensors[name] = tensor.new_full((len(is_prepared), *tensor.shape[1:]), padding)
        tensors[name][is_prepared] = tensor
    return tensors


def retrieve(retriever: Retriever, queries: Queries) -> Ranking:
    """Retrieve the candidates of queries. Without expansion, they are also the ``base_nodes``.

    Args:
        retriever: Retriever over the corpus.
        queries: Queries with the vectors that the retriever needs.

    Returns:
        Candidates with features and ``base_nodes``.
    """
    ranking = retriever.retrieve(queries)
    return replace(ranking, base_nodes=ranking.nodes) if ranking.base_nodes is None else ranking


def keyed_retriever(
    dataset: Dataset, encoder: Encoder | None, build_retriever: RetrieverFactory
) -> tuple[Retriever, list[str]]:
    """Build the retriever of a data set, and list everything that decides its candidates, for the key of a cache.

    Args:
        dataset: Data set, with vectors if there is an encoder.
        encoder: Text encoder, or None.
        build_retriever: ``functools.partial`` of a retriever class.

    Returns:
        The retriever, and the fingerprints of data set, encoder and retriever with the retriever's description.
    """
    described = describe_retriever(build_retriever)
    retriever = as_retriever(build_retriever(dataset.graph))
    fingerprint = "" if encoder is None else encoder.fingerprint
    return retriever, [dataset.fingerprint, fingerprint, described, retriever.fingerprint]


def with_vectors(dataset: Dataset, encoder: Encoder | None, cache: Path) -> Dataset:
    """Return a data set with vectors and, if ``knn`` is set, with edges to nearest neighbours.

    Args:
        dataset: Data set. Vectors that came with its graph are kept.
        encoder: Text encoder. If None, the result has no vectors.
        cache: Folder that caches the edges.

    Returns:
        Data set with vectors.

    Raises:
        UserError: If the graph has vectors of another encoder, or if ``knn`` edges need an encoder and there is none.
    """
    if encoder is None:
        if dataset.needs_vectors:
            raise UserError(f"`knn` edges of data set {dataset.name!r} need an encoder, got None; use encoder=minilm")
        return dataset.with_graph(replace(dataset.graph, vectors=None))
    if dataset.encoded_by == encoder.fingerprint:
        return dataset
    if dataset.encoded_by is not None:
        raise UserError(
            f"`encoder` must be the encoder that data set {dataset.name!r} was prepared with "
            f"({dataset.encoded_by[:12]}), got {encoder.name} ({encoder.fingerprint[:12]})"
        )
    graph = dataset.graph.with_embedding(encode_passages(encoder, dataset.graph.node_ids, dataset.graph.texts))
    if not dataset.knn:
        return dataset.with_graph(graph)
    key = [str(CANDIDATES_FORMAT), dataset.fingerprint, encoder.fingerprint, NEAREST]
    path = cache / f"{dataset.name}-{NEAREST}-{short_hash(hash_texts(key))}.safetensors"

    def find() -> dict[str, Tensor]:
        assert graph.embedding is not None
        sparse_nodes = None
        if dataset.knn_below is not None:
            sparse_nodes = torch.nonzero(graph.degree < dataset.knn_below).flatten()
        pairs, similarity = nearest_neighbor_edges(graph.embedding, k=dataset.knn, nodes=sparse_nodes)
        return {"pairs": pairs, "similarity": similarity}

    edges = cached_tensors(path, ("pairs", "similarity"), find)
    joined = graph.with_edges(edges["pairs"], edges["similarity"], edge_type=SIMILARITY)
    return dataset.with_graph(joined, **{NEAREST: len(edges["pairs"])})


def describe_retriever(build_retriever: RetrieverFactory) -> str:
    """Return a description of a retriever factory and the factories among its arguments, used as a cache key.

    Args:
        build_retriever: ``functools.partial`` of a retriever class with keyword arguments.

    Returns:
        Class and arguments as text.

    Raises:
        UserError: If ``build_retriever`` is not such a partial.
    """
    if not isinstance(build_retriever, partial) or build_retriever.args:
        raise UserError(
            "`build_retriever` must be a functools.partial of a retriever class with keyword arguments, "
            f"got {build_retriever!r}"
        )
    arguments = (
        f"{name}={describe_retriever(argument) if callable(argument) else repr(argument)}"
        for name, argument in sorted(build_retriever.keywords.items())
    )
    return f"{build_retriever.func.__module__}.{build_retriever.func.__qualname__}({', '.join(arguments)})"


def with_cross_encoder(
    prepared: PreparedDataset, pair_encoder: PairEncoder, queries: Tensor, *, top_k: int
) -> PreparedDataset:
    """Score the top candidates of queries with a cross-encoder, and add the scores as features.

    The features ``CROSS_ENCODER_FEATURES`` (:func:`cross_encoder_columns`) are appended to the other features. They are
    0 for all other queries.

    Args:
        prepared: Data set with candidates.
        pair_encoder: Cross-encoder. A :class:`~graphrerank.data.vector_cache.PairCache` avoids encoding a pair twice.
        queries: Query numbers ``[Q']``.
        top_k: Number of candidates to score per query.

    Returns:
        Data set with additional features.

    Raises:
        UserError: If ``top_k`` is not positive.
    """
    ranking = prepared.ranking
    assert ranking.features is not None
    queries = torch.unique(queries)
    scores = torch.full(ranking.nodes.shape, torch.nan)
    scores[queries] = cross_encoder_scores(prepared, pair_encoder, queries, top_k=top_k)
    features = torch.cat([ranking.features, cross_encoder_columns(scores.nan_to_num(), ~scores.isnan())], dim=-1)
    names = (*prepared.feature_names, *CROSS_ENCODER_FEATURES)
    return replace(prepared, ranking=replace(ranking, features=features), feature_names=names)


def cross_encoder_scores(
    prepared: PreparedDataset, pair_encoder: PairEncoder, queries: Tensor, *, top_k: int | None = None
) -> Tensor:
    """Score the top candidates of queries with a cross-encoder.

    Args:
        prepared: Data set with candidates.
        pair_encoder: Cross-encoder. A :class:`~graphrerank.data.vector_cache.PairCache` avoids encoding a pair twice.
        queries: Query numbers ``[Q']``.
        top_k: Number of candidates to score per query. If None, all candidates are scored.

    Returns:
        Logits ``[Q', K]`` float32, NaN for padding and for candidates after the first ``top_k``.

    Raises:
        UserError: If ``top_k`` is not positive.
    """
    check_counts(top_k=top_k)
    nodes = prepared.ranking.nodes
    scores = torch.full((len(queries), nodes.shape[1]), torch.nan)
    for rows in torch.split(torch.arange(len(queries)), PAIR_QUERIES) if len(queries) else ():
        block = queries[rows]
        is_scored = torch.zeros(len(block), nodes.shape[1], dtype=torch.bool)
        is_scored[:, :top_k] = nodes[block, :top_k] >= 0
        logits = pair_encoder.head(pair_encoder.encode(*prepared.pairs(block, top_k=top_k))).cpu()
        scores[rows] = scores[rows].masked_scatter(is_scored, logits)
    return scores
