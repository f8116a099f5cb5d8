"""Data sets prepared for reranking: vectors, candidate lists, and candidate graphs on demand.

Candidates of training sets that do not fit into memory lie in shards on disk (:func:`write_shards`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import cached_tensors, hash_texts, read_cached, short_hash
from graphrerank.checks import UserError, check_counts
from graphrerank.data.dataset import NEAREST, Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.engines.local import LOCAL, Engine
from graphrerank.data.enrichment.neighbours import nearest_neighbor_edges
from graphrerank.features.feature_columns import cross_encoder_columns, feature_columns
from graphrerank.features.text_match import MATCH_FEATURES, TEXT_MATCH_FEATURES, TextMatch
from graphrerank.files import check_writable, load_tensors, save_tensors
from graphrerank.graphs import (
    CandidateGraphs,
    ModelInputs,
    PairEncoder,
    Queries,
    Ranking,
    Retriever,
    RetrieverFactory,
    candidate_edges,
)
from graphrerank.graphs.edge_types import SIMILARITY
from graphrerank.graphs.model_inputs import SCORES
from graphrerank.graphs.queries import query_encoder
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES

FORMAT = 2  # raise it when the same arguments would give other candidate lists
TENSORS = ("nodes", "scores", "features", "base_nodes")
MATCH_QUERIES = 256  # queries whose words are matched at once
PAIR_QUERIES = 1024  # queries whose pairs' vectors are held together
SHARD_FORMAT = 1  # raise it when the same arguments would give other shards
SHARD_QUERIES = 1 << 10  # of a shard, at most
SHARD_TENSORS = ("queries", "nodes", "scores", "features")
QUERY_VECTORS = "query_vectors"


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
        ranking: Ranking | None = None,
        query_vectors: Tensor | None = None,
    ) -> CandidateGraphs:
        """Build the candidate graphs of queries ``[B]`` int64, all at once.

        The judgements of a ``split`` are attached as ``relevance``, and the ``inputs`` of a model. A ``ranking`` with
        features ``[B, K]``, and vectors ``[B, d]``, take the place of those of the data set. A ValueError if the model
        reads vectors and nothing was encoded, or pairs and there is no ``pair_encoder``; or there is no such split.
        """
        if ranking is None:
            ranking = self.ranking.select(queries)
            query_vectors = None if self.query_vectors is None else self.query_vectors[queries]
        graph, valid = self.dataset.graph, ranking.nodes >= 0
        corpus, nodes = graph if edges else graph.without_edges(), ranking.nodes[valid]
        edge_index, weight, ptr, types = candidate_edges(corpus, ranking.nodes, keep_types=inputs.reads_edge_types)
        assert ranking.features is not None
        graphs = CandidateGraphs(
            x=ranking.features[valid],
            edge_index=edge_index,
            edge_attr=weight,
            ptr=ptr,
            nodes=nodes,
            inputs=self._inputs(inputs, queries, nodes, query_vectors),
            query_index=queries,
            edge_type=types,
        )
        if split is None:
            return graphs
        qrels = self.dataset.split(split)
        relevance = qrels.relevance(queries, ranking.nodes, num_nodes=graph.num_nodes)[valid]
        return replace(graphs, relevance=relevance, gains=qrels.gains(queries))

    def _inputs(
        self, inputs: ModelInputs, queries: Tensor, nodes: Tensor, query_vectors: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the inputs of a model besides scores and edges; ``nodes [N]`` are the queries' candidates."""
        graph, tensors = self.dataset.graph, dict[str, Tensor]()
        if inputs.reads_vectors:
            if query_vectors is None or graph.embedding is None:
                needed = "an encoder (encoder=minilm), got none; only features=scores does without"
                raise UserError(f"`vectors` of data set {self.dataset.name!r} need {needed}")
            tensors |= {QUERY_VECTORS: query_vectors, "node_vectors": graph.embedding[nodes].float()}
        if inputs.reads_pairs:
            if self.pair_encoder is None:
                raise UserError(f"data set {self.dataset.name!r} needs a `pair_encoder` for a model of pairs, got none")
            tensors["degree"] = graph.count_neighbours(nodes)
            tensors["pair_vectors"] = self.pair_encoder.encode(*self.pairs(queries))
        return tensors

    def with_features(self, names: Sequence[str], *, text_match: TextMatch | None = None) -> "PreparedDataset":
        """Return the data with the features that a model was trained on, in its order (:func:`feature_columns`).

        Matches are computed from the texts and the candidate graphs, by ``text_match`` if words were read before.
        """
        assert self.ranking.features is not None

        def match(with_words: bool) -> Tensor:  # [Q, K, ...], 0 where padded
            matches = text_match or TextMatch.of(self.dataset.graph)
            features = torch.zeros(*nodes.shape, len(TEXT_MATCH_FEATURES if with_words else MATCH_FEATURES))
            for queries in torch.split(torch.arange(len(features)), MATCH_QUERIES):
                graphs = self.graphs(queries)
                assert graphs.nodes is not None
                texts = [self.dataset.query_texts[query] for query in queries.tolist()]
                scores = matches.score(texts, graphs.nodes, graphs.edge_index, graphs.ptr, with_words=with_words)
                features[queries] = features[queries].masked_scatter((nodes[queries] >= 0).unsqueeze(-1), scores)
            return features

        nodes = self.ranking.nodes
        columns = feature_columns(names, self.feature_names, self.ranking.features, match=match)
        return replace(self, ranking=replace(self.ranking, features=columns), feature_names=tuple(names))

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
    retriever, decisive = keyed_retriever(dataset, encoder, build_retriever)
    path = Path(cache) / f"{dataset.name}-{short_hash(hash_texts([str(FORMAT), *decisive]))}.safetensors"
    if (tensors := read_cached(path, TENSORS)) is not None:
        prepared = rank(dataset, encoder, retriever, Ranking(**tensors))
    else:
        check_writable(path.parent)
        prepared = rank(dataset, encoder, retriever)
        save_tensors(path, {name: getattr(prepared.ranking, name).clone() for name in TENSORS})
    return replace(prepared, retriever=retriever if keep_retriever else None)


def rank(
    dataset: Dataset, encoder: Encoder | None, retriever: Retriever, ranking: Ranking | None = None
) -> PreparedDataset:
    """Rank the corpus of an encoded data set for every query, unless its ``ranking`` is known."""
    vectors = None if encoder is None else query_encoder(encoder).encode(dataset.query_texts)
    if ranking is None:
        ranking = retriever.retrieve(Queries(dataset.query_ids, dataset.query_texts, vectors))
    if ranking.base_nodes is None:
        ranking = replace(ranking, base_nodes=ranking.nodes)
    name, fingerprint = (None, None) if encoder is None else (encoder.name, encoder.fingerprint)
    return PreparedDataset(dataset, vectors, ranking, retriever.feature_names, name, fingerprint)


def keyed_retriever(
    dataset: Dataset, encoder: Encoder | None, build_retriever: RetrieverFactory
) -> tuple[Retriever, list[str]]:
    """Build a retriever, and list what decides its candidates: data set, vectors, the retriever and its files."""
    described, vectors = describe_retriever(build_retriever), "" if encoder is None else encoder.fingerprint
    retriever = build_retriever(dataset.graph)
    return retriever, [dataset.fingerprint, vectors, described, getattr(retriever, "fingerprint", "")]


def with_vectors(dataset: Dataset, encoder: Encoder | None, cache: Path, *, engine: Engine = LOCAL) -> Dataset:
    """Return a data set with an encoder's vectors, and ``knn`` edges to nearest neighbours; without any if it is None.

    ``engine`` finds the edges, ``cache`` keeps them. Vectors that came with the graph stay; a ValueError if they are
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
    parts = [str(FORMAT), dataset.fingerprint, encoder.fingerprint, NEAREST]
    path = cache / f"{dataset.name}-{NEAREST}-{short_hash(hash_texts(parts))}.safetensors"

    def find() -> dict[str, Tensor]:
        assert graph.embedding is not None
        few = None if dataset.knn_below is None else torch.nonzero(graph.degree < dataset.knn_below).flatten()
        pairs, similarity = nearest_neighbor_edges(graph.embedding, k=dataset.knn, nodes=few, engine=engine)
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


@dataclass(frozen=True)
class CandidateShards:
    """The candidates of the queries of a split that have a relevant candidate, some thousand queries a file."""

    paths: tuple[Path, ...]
    sizes: tuple[int, ...]  # queries in each
    prepared: PreparedDataset  # the data set, whose queries the shards number; its own ranking holds none of them
    split: str  # whose judgements graphs have

    def serve(self, *, inputs: ModelInputs, hold: int) -> Callable[[Tensor], CandidateGraphs]:
        """Return what builds the candidate graphs of some queries, ``[B]`` int64, numbered through the shards.

        The ``hold`` shards used last stay in memory, one at least. A damaged shard is a ValueError that names it.
        """
        return partial(self._graphs, inputs=inputs, load=lru_cache(hold)(self._load))

    def _graphs(self, items: Tensor, inputs: ModelInputs, load: Callable[[int], dict[str, Tensor]]) -> CandidateGraphs:
        starts = torch.tensor([0, *self.sizes]).cumsum(0)
        shard = torch.searchsorted(starts, items, right=True) - 1
        rows: dict[str, Tensor] = {}
        for number in torch.unique(shard).tolist() or [0]:  # a process's share of a batch may be empty
            here = torch.nonzero(shard == number).flatten()
            for name, tensor in load(number).items():
                rows.setdefault(name, tensor.new_empty(len(items), *tensor.shape[1:]))
                rows[name][here] = tensor[items[here] - starts[number]]
        ranking, vectors = Ranking(rows["nodes"], rows["scores"], rows["features"]), rows.get(QUERY_VECTORS)
        return self.prepared.graphs(
            rows["queries"], split=self.split, inputs=inputs, ranking=ranking, query_vectors=vectors
        )

    def _load(self, number: int) -> dict[str, Tensor]:
        names = SHARD_TENSORS if self.prepared.query_vectors is None else (*SHARD_TENSORS, QUERY_VECTORS)
        return {name: tensor.clone() for name, tensor in load_tensors(self.paths[number], names).items()}


def write_shards(
    dataset: Dataset,
    split: str,
    *,
    encoder: Encoder | None,
    build_retriever: RetrieverFactory,
    with_features: Callable[[PreparedDataset], PreparedDataset],
    folder: Path,
    settings: str = "",
    shard_size: int = SHARD_QUERIES,
) -> CandidateShards:
    """Rank the queries of a split, ``shard_size`` at once; shards that were written before are not ranked again.

    The data set is encoded if there is an encoder; ``with_features`` adds the features that a model reads, as
    ``settings`` say, which name the shards. A damaged shard is written again. A ValueError if no query has a relevant
    candidate.
    """
    retriever, decisive = keyed_retriever(dataset, encoder, build_retriever)
    key = short_hash(hash_texts([str(SHARD_FORMAT), *decisive, settings, split, str(shard_size)]))
    check_writable(folder)
    names = SHARD_TENSORS if encoder is None else (*SHARD_TENSORS, QUERY_VECTORS)
    sizes: dict[Path, int] = {}
    shell: PreparedDataset | None = None
    for number, block in enumerate(torch.split(dataset.split(split).queries, shard_size)):
        path = folder / f"{dataset.name}-{key}-{number:06d}.safetensors"
        rows = read_cached(path, names)
        if shell is None or rows is None:
            ranked = with_features(rank(dataset.with_queries(block), encoder, retriever))
            shell = replace(ranked, dataset=dataset, ranking=ranked.ranking.select(torch.zeros(0, dtype=torch.int64)))
        if rows is None:
            kept = ranked.answerable(split)
            columns = {"queries": block, **vars(ranked.ranking), QUERY_VECTORS: ranked.query_vectors}
            rows = {name: columns[name][kept] for name in names}
            save_tensors(path, rows)
        if len(rows["queries"]):
            sizes[path] = len(rows["queries"])
    if shell is None or not sizes:
        raise UserError(f"split {split!r} of {dataset.name!r} must have a query with a relevant candidate, got none")
    return CandidateShards(tuple(sizes), tuple(sizes.values()), shell, split)
