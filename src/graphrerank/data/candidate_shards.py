"""Prepared candidates of training queries in shards on disk, for training sets that do not fit into memory."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.candidates import PreparedDataset, describe_retriever
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.files import check_writable, load_tensors, save_tensors
from graphrerank.graphs import CandidateGraphs, ModelInputs, Queries, Ranking, RetrieverFactory
from graphrerank.graphs.queries import query_encoder

FORMAT = 1  # raise it when the same arguments would give other shards
SHARD_QUERIES = 1 << 10  # of a shard, at most
NAMES = ("queries", "nodes", "scores", "features")
VECTORS = "query_vectors"
Prepare = Callable[[PreparedDataset], PreparedDataset]


@dataclass(frozen=True)
class CandidateShards:
    """The candidates of the queries of a split that have a relevant candidate, some thousand queries a file.

    Attributes:
        paths: Their files.
        sizes: Queries in each.
        prepared: The data set, whose queries the shards number; its own ranking holds none of them.
        split: The split, whose judgements graphs have.
    """

    paths: tuple[Path, ...]
    sizes: tuple[int, ...]
    prepared: PreparedDataset
    split: str
    _held: "OrderedDict[int, dict[str, Tensor]]" = field(default_factory=OrderedDict, init=False, repr=False)

    def graphs(self, places: Tensor, *, inputs: ModelInputs, hold: int) -> CandidateGraphs:
        """Build the candidate graphs of some queries.

        Args:
            places: ``[B]`` int64, places of queries in the shards, one shard after the other.
            inputs: The inputs of a model.
            hold: Shards that stay in memory, the last ones used; at least 1.

        Raises:
            ValueError: If a shard is damaged, naming it.
        """
        starts = torch.tensor([0, *self.sizes]).cumsum(0)
        shard = torch.searchsorted(starts, places, right=True) - 1
        rows: dict[str, Tensor] = {}
        for number in torch.unique(shard).tolist():
            here = torch.nonzero(shard == number).flatten()
            for name, tensor in self._load(number, hold).items():
                taken = tensor[places[here] - starts[number]]
                into = rows.setdefault(name, taken.new_empty(len(places), *taken.shape[1:]))
                into[here] = taken
        if not rows:  # a process's share of a batch may be empty
            rows = {name: tensor[:0] for name, tensor in self._load(0, hold).items()}
        ranking = Ranking(rows["nodes"], rows["scores"], rows["features"])
        return self.prepared.graphs_of(rows["queries"], ranking, rows.get(VECTORS), split=self.split, inputs=inputs)

    def _load(self, number: int, hold: int) -> dict[str, Tensor]:
        if number not in self._held:
            while len(self._held) >= hold:
                self._held.popitem(last=False)
            names = NAMES if self.prepared.query_vectors is None else (*NAMES, VECTORS)
            self._held[number] = {name: t.clone() for name, t in load_tensors(self.paths[number], names).items()}
        self._held.move_to_end(number)
        return self._held[number]


def write_shards(
    dataset: Dataset,
    split: str,
    *,
    encoder: Encoder | None,
    build_retriever: RetrieverFactory,
    with_features: Prepare,
    folder: Path,
    settings: str = "",
    shard_size: int = SHARD_QUERIES,
) -> CandidateShards:
    """Rank the queries of a split, shard by shard; those that were written before are not ranked again.

    Args:
        dataset: The data set, encoded if there is an encoder.
        split: The split.
        encoder: Encodes queries; None if nothing reads vectors.
        build_retriever: As of :func:`~graphrerank.data.candidates.prepare`.
        with_features: Adds the features that a model reads to the candidates of some queries.
        folder: Folder for the shards.
        settings: What ``with_features`` does, for the shards' names.
        shard_size: Queries that are ranked at once.

    Raises:
        ValueError: If a shard is damaged, naming it, or no query has a relevant candidate.
    """
    queries = dataset.split(split).queries
    retriever = build_retriever(dataset.graph)
    vectors_of = "" if encoder is None else encoder.fingerprint
    known = getattr(retriever, "fingerprint", "")
    key = [str(FORMAT), dataset.fingerprint, vectors_of, describe_retriever(build_retriever), known, settings, split]
    key = [short_hash(hash_texts([*key, str(shard_size)]))]
    check_writable(folder)
    paths, sizes = [], []
    shell: PreparedDataset | None = None
    for number, block in enumerate(torch.split(queries, shard_size)):
        path = folder / f"{dataset.name}-{key[0]}-{number:06d}.safetensors"
        if shell is None or not path.is_file():
            part = dataset.with_queries(block)
            vectors = None if encoder is None else query_encoder(encoder).encode(part.query_texts)
            ranking = retriever.retrieve(Queries(part.query_ids, part.query_texts, vectors))
            name = None if encoder is None else encoder.name
            ranked = with_features(
                PreparedDataset(part, vectors, ranking, retriever.feature_names, name, vectors_of or None)
            )
            shell = replace(ranked, dataset=dataset, ranking=ranked.ranking.select(torch.zeros(0, dtype=torch.int64)))
            if not path.is_file():
                save_tensors(path, _rows(ranked, block, split))
        names = NAMES if encoder is None else (*NAMES, VECTORS)
        size = len(load_tensors(path, names)["queries"])
        if size:
            paths.append(path)
            sizes.append(size)
    if shell is None or not sizes:
        raise ValueError(f"split {split!r} of {dataset.name!r} must have a query with a relevant candidate, got none")
    return CandidateShards(tuple(paths), tuple(sizes), shell, split)


def _rows(ranked: PreparedDataset, block: Tensor, split: str) -> dict[str, Tensor]:
    """Return the candidates of the queries that have a relevant one; ``block`` are their numbers in the data set."""
    local = torch.arange(len(block))
    qrels, ranking = ranked.dataset.split(split), ranked.ranking
    relevant = qrels.relevance(local, ranking.nodes, num_nodes=ranked.dataset.graph.num_nodes) > 0
    kept = torch.nonzero(relevant.any(1)).flatten()
    assert ranking.features is not None
    rows = {
        "queries": block[kept],
        "nodes": ranking.nodes[kept],
        "scores": ranking.scores[kept],
        "features": ranking.features[kept],
    }
    return rows if ranked.query_vectors is None else rows | {VECTORS: ranked.query_vectors[kept]}
