"""A data set made ready for reranking: vectors, candidate lists, and candidate graphs on demand."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from graphrerank.data.dataset import RetrievalDataset, digest_strings
from graphrerank.data.encoder import Encoder
from graphrerank.files import load_tensors, save_tensors
from graphrerank.graphs import CandidateGraphs, CorpusGraph, Ranking, induced_edges

FORMAT = 1  # raise when the same arguments would give other candidate lists


class Retriever(Protocol):
    """Anything that ranks the corpus for a query."""

    feature_names: tuple[str, ...]

    def retrieve(self, query_texts: Sequence[str], query_vectors: Tensor) -> Ranking:
        """Rank the corpus for each of ``B`` queries."""


RetrieverFactory = Callable[[CorpusGraph], Retriever]


@dataclass(frozen=True)
class PreparedDataset:
    """A data set with encoded texts and a base ranking for every query.

    Attributes:
        dataset: The data set; its graph has an embedding.
        query_vectors: ``[Q, d]``.
        ranking: ``[Q, K]`` candidates, with ``features [Q, K, F]``.
        feature_names: Names of the ``F`` columns; the first is the base ranking's score.
        encoder_name: Name of the encoder.
        encoder_fingerprint: Changes whenever the vectors would.
    """

    dataset: RetrievalDataset
    query_vectors: Tensor
    ranking: Ranking
    feature_names: tuple[str, ...]
    encoder_name: str
    encoder_fingerprint: str

    @property
    def top_k(self) -> int:
        """Candidates per query."""
        return self.ranking.nodes.shape[1]

    def graphs(
        self, queries: Tensor, *, split: str | None = None, vectors: bool = True, edges: bool = True
    ) -> CandidateGraphs:
        """Build the candidate graphs of some queries, all at once.

        Args:
            queries: ``[B]`` int64 query numbers.
            split: Whose judgements to attach as ``relevance``; none when None.
            vectors: Whether to attach query and node vectors.
            edges: Whether to look up the edges among the candidates; without, the graphs have none.
        """
        graph, ranking = self.dataset.graph, self.ranking.select(queries)
        edge_index, edge_weight, ptr = induced_edges(graph if edges else graph.without_edges(), ranking.nodes)
        valid = ranking.nodes >= 0
        nodes = ranking.nodes[valid]
        assert ranking.features is not None
        assert graph.embedding is not None
        relevance = gains = None
        if split is not None:
            qrels = self.dataset.split(split)
            relevance = qrels.relevance(queries, ranking.nodes, num_nodes=graph.num_nodes)[valid]
            gains = qrels.gains(queries)
        return CandidateGraphs(
            x=ranking.features[valid],
            edge_index=edge_index,
            edge_attr=edge_weight,
            ptr=ptr,
            nodes=nodes,
            query_vectors=self.query_vectors[queries] if vectors else None,
            node_vectors=graph.embedding[nodes] if vectors else None,
            relevance=relevance,
            gains=gains,
            query_index=queries,
        )

    def with_features(self, names: Sequence[str]) -> "PreparedDataset":
        """Keep the features of some names, in that order, as a model that was trained on them reads them.

        Raises:
            ValueError: If the retriever does not give one of them.
        """
        missing = [name for name in names if name not in self.feature_names]
        if missing:
            raise ValueError(f"needed the scores {list(names)} per candidate, the retriever gives {self.feature_names}")
        assert self.ranking.features is not None
        columns = self.ranking.features[..., [self.feature_names.index(name) for name in names]]
        return replace(self, ranking=replace(self.ranking, features=columns), feature_names=tuple(names))

    def ceiling(self, split: str) -> float:
        """Share of a split's queries with all relevant nodes among the candidates: what no reranker can pass."""
        qrels = self.dataset.split(split)
        queries = qrels.queries
        found = qrels.relevance(queries, self.ranking.nodes[queries], num_nodes=self.dataset.graph.num_nodes) > 0
        return float((found.sum(1) == (qrels.gains(queries) > 0).sum(1)).double().mean())


def prepare(
    dataset: RetrievalDataset, *, encoder: Encoder, build_retriever: RetrieverFactory, cache: str | Path
) -> PreparedDataset:
    """Encode a data set and rank its corpus for every query, from the cache where it is there.

    Args:
        dataset: The data set.
        encoder: Encodes texts; wrap it in a ``VectorCache`` to keep the vectors.
        build_retriever: Makes a retriever of a corpus graph with embedding. A ``functools.partial`` of a retriever
            class with plain arguments, so that it can name the cache.
        cache: Folder for the candidate lists.

    Raises:
        ValueError: If a cache file is damaged, naming it.
    """
    graph = dataset.graph.with_embedding(encoder.encode(dataset.graph.texts))
    query_vectors = encoder.encode(dataset.query_texts)
    name, arguments, feature_names = _describe(build_retriever)
    parts = [str(FORMAT), dataset.fingerprint, encoder.fingerprint, name, repr(sorted(arguments.items()))]
    key = hashlib.sha256(digest_strings(parts)).hexdigest()[:32]
    path = Path(cache) / f"{dataset.name}-{key}.safetensors"
    if path.is_file():
        tensors = load_tensors(path, ("nodes", "scores", "features"))
        _check_candidates(path, tensors, len(dataset.query_ids), len(feature_names), graph.num_nodes)
        ranking = Ranking(**tensors)
    else:
        ranking = build_retriever(graph).retrieve(dataset.query_texts, query_vectors)
        assert ranking.features is not None
        save_tensors(
            path,
            {"nodes": ranking.nodes, "scores": ranking.scores, "features": ranking.features},
            {"parts": repr(parts)},
        )
    encoded = replace(dataset, graph=graph)
    return PreparedDataset(encoded, query_vectors, ranking, feature_names, encoder.name, encoder.fingerprint)


def _describe(build_retriever: RetrieverFactory) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    if not isinstance(build_retriever, partial) or build_retriever.args:
        raise ValueError(
            f"`build_retriever` must be a functools.partial of a retriever class with keyword arguments, "
            f"got {build_retriever!r}"
        )
    retriever: Any = build_retriever.func
    return f"{retriever.__module__}.{retriever.__qualname__}", build_retriever.keywords, retriever.feature_names


def _check_candidates(path: Path, tensors: dict[str, Tensor], num_queries: int, num_features: int, size: int) -> None:
    nodes, scores, features = tensors["nodes"], tensors["scores"], tensors["features"]
    shapes_fit = nodes.dim() == 2 and nodes.shape == scores.shape and features.shape == (*nodes.shape, num_features)
    in_range = nodes.numel() == 0 or (int(nodes.min()) >= -1 and int(nodes.max()) < size)
    if not shapes_fit or len(nodes) != num_queries or not in_range or not bool(torch.isfinite(features).all()):
        raise ValueError(
            f"{path}: damaged cache, needed {num_queries} lists of nodes below {size} with {num_features} finite "
            f"features each, found {list(nodes.shape)} and {list(features.shape)}; delete this file and run again"
        )
