"""Prepared candidates of training queries in shards on disk, for training sets that do not fit into memory."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts, short_hash
from graphrerank.data.candidates import PreparedDataset, keyed_retriever, rank
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.files import check_writable, load_tensors, save_tensors
from graphrerank.graphs import CandidateGraphs, ModelInputs, Ranking, RetrieverFactory

FORMAT = 1  # raise it when the same arguments would give other shards
SHARD_QUERIES = 1 << 10  # of a shard, at most
NAMES = ("queries", "nodes", "scores", "features")
VECTORS = "query_vectors"
Prepare = Callable[[PreparedDataset], PreparedDataset]


@dataclass(frozen=True)
class CandidateShards:
    """The candidates of the queries of a split that have a relevant candidate, some thousand queries a file."""

    paths: tuple[Path, ...]
    sizes: tuple[int, ...]  # queries in each
    prepared: PreparedDataset  # the data set, whose queries the shards number; its own ranking holds none of them
    split: str  # whose judgements graphs have
    _held: "OrderedDict[int, dict[str, Tensor]]" = field(default_factory=OrderedDict, init=False, repr=False)

    def graphs(self, items: Tensor, *, inputs: ModelInputs, hold: int) -> CandidateGraphs:
        """Build the candidate graphs of some queries, ``[B]`` int64, numbered through the shards.

        The ``hold`` shards used last stay in memory, one at least. A damaged shard is a ValueError that names it.
        """
        starts = torch.tensor([0, *self.sizes]).cumsum(0)
        shard = torch.searchsorted(starts, items, right=True) - 1
        rows: dict[str, Tensor] = {}
        for number in torch.unique(shard).tolist():
            here = torch.nonzero(shard == number).flatten()
            for name, tensor in self._load(number, hold).items():
                taken = tensor[items[here] - starts[number]]
                rows.setdefault(name, taken.new_empty(len(items), *taken.shape[1:]))[here] = taken
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
    """Rank the queries of a split, ``shard_size`` at once; shards that were written before are not ranked again.

    The data set is encoded if there is an encoder; ``with_features`` adds the features that a model reads, as
    ``settings`` say, which name the shards. A ValueError if a shard is damaged, or no query has a relevant candidate.
    """
    retriever, decisive = keyed_retriever(dataset, encoder, build_retriever)
    key = short_hash(hash_texts([str(FORMAT), *decisive, settings, split, str(shard_size)]))
    check_writable(folder)
    sizes: dict[Path, int] = {}
    shell: PreparedDataset | None = None
    for number, block in enumerate(torch.split(dataset.split(split).queries, shard_size)):
        path = folder / f"{dataset.name}-{key}-{number:06d}.safetensors"
        if shell is None or not path.is_file():
            part = dataset.with_queries(block)
            ranked = with_features(rank(part, encoder, retriever))
            shell = replace(ranked, dataset=dataset, ranking=ranked.ranking.select(torch.zeros(0, dtype=torch.int64)))
            if not path.is_file():
                save_tensors(path, _rows(ranked, block, split))
        sizes[path] = len(load_tensors(path, NAMES if encoder is None else (*NAMES, VECTORS))["queries"])
    sizes = {path: size for path, size in sizes.items() if size}
    if shell is None or not sizes:
        raise ValueError(f"split {split!r} of {dataset.name!r} must have a query with a relevant candidate, got none")
    return CandidateShards(tuple(sizes), tuple(sizes.values()), shell, split)


def _rows(ranked: PreparedDataset, block: Tensor, split: str) -> dict[str, Tensor]:
    """Return the candidates of the queries that have a relevant one; ``block`` are their numbers in the data set."""
    kept, ranking = ranked.answerable(split), ranked.ranking
    assert ranking.features is not None
    rows = {
        "queries": block[kept],
        "nodes": ranking.nodes[kept],
        "scores": ranking.scores[kept],
        "features": ranking.features[kept],
    }
    return rows if ranked.query_vectors is None else rows | {VECTORS: ranked.query_vectors[kept]}
