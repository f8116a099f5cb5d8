"""Learned sparse search: SPLADE and other sparse encoders of sentence-transformers."""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.caching import TensorStore, fill, hash_text, short_hash
from graphrerank.checks import check_counts
from graphrerank.extras import optional
from graphrerank.files import hash_files
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.graphs.sparse_rows import row_slots, sparse_matrix

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop
TENSORS = ("indptr", "indices", "weights", "num_columns")


class SparseVectorCache:
    """Sparse vectors of one encoder, in a folder for it alone; ``encode`` returns ``[n, V]`` for ``n`` texts.

    Each ``<folder>/*.safetensors`` holds the SHA-256 of its texts and their vectors in compressed sparse rows. New
    texts go to new files, so that adding documents to a corpus encodes only those.
    """

    def __init__(self, folder: Path, encode: Callable[[Sequence[str]], Tensor]) -> None:
        self._store = TensorStore(folder, TENSORS, _check)
        self._encode = encode

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, V]`` float32 in compressed sparse rows of one text or more, from disk if cached."""
        keys = [hash_text(text) for text in texts]
        fill(self._store, keys, texts, self._encode_shard, shard_size=SHARD_TEXTS, length=len)
        return _gather(self._store.shards, *self._store.rows(keys))

    def _encode_shard(self, texts: list[str]) -> dict[str, Tensor]:
        matrix = _compressed(self._encode(texts).float())
        compressed = (matrix.crow_indices(), matrix.col_indices(), matrix.values(), torch.tensor(matrix.shape[1]))
        shard = dict(zip(TENSORS, compressed, strict=True))
        _check(shard, len(texts), "the sparse encoder's vectors")
        return shard


def _gather(shards: Sequence[Mapping[str, Tensor]], shard: Tensor, row: Tensor) -> Tensor:
    """Put rows of shards, ``[n]`` each, under each other."""
    width = {int(table["num_columns"]) for table in shards}
    if len(width) > 1:
        raise ValueError(f"needed sparse vectors of one width, the cache holds some of {sorted(width)}: delete it")
    first = torch.tensor([0, *(len(table["indptr"]) - 1 for table in shards)]).cumsum(0)
    entries = torch.tensor([0, *(len(table["indices"]) for table in shards)]).cumsum(0).tolist()
    ends = [table["indptr"][1:] + before for table, before in zip(shards, entries, strict=False)]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), *ends])
    rows = first[shard] + row
    _, slot = row_slots(indptr, rows)
    length = indptr[rows + 1] - indptr[rows]
    starts = torch.cat([length.new_zeros(1), length.cumsum(0)])
    indices, weights = (torch.cat([table[name] for table in shards])[slot] for name in ("indices", "weights"))
    return sparse_matrix(starts, indices, weights, width.pop())


def _compressed(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return matrix.to_sparse_csr()


def _check(shard: Mapping[str, Tensor], count: int, source: str) -> None:
    indptr, indices, weights, num_columns = (shard[name] for name in TENSORS)
    fits = indptr.shape == (count + 1,) and weights.dim() == 1 and indices.shape == weights.shape
    fits = fits and num_columns.dim() == 0 and int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
    fits = fits and bool((indptr.diff() >= 0).all())
    in_range = not indices.numel() or (int(indices.min()) >= 0 and int(indices.max()) < int(num_columns))
    if not fits or not in_range or not bool(torch.isfinite(weights).all()):
        shapes = {name: list(shard[name].shape) for name in TENSORS}
        raise ValueError(f"{source}: needed {count} finite sparse rows, got tensors of shapes {shapes}")


BLOCK_SCORES = 1 << 25  # scores held at once: 128 MiB of float32
BLOCK_TEXTS = 1024  # encoded between two transfers to the CPU
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt"}  # weights, settings and vocabularies


@dataclass(eq=False)
class SpladeRetriever:
    """Rank the corpus by the dot product of sparse vectors over a vocabulary, ties broken by node index.

    Nodes that share no weighted term with the query have score 0 and follow in node order. The corpus is encoded at the
    first query; its vectors stay sparse.

    Source: Formal et al., *SPLADE*, 2021, Eq. (2), through sentence-transformers' ``SparseEncoder``, which encodes
    queries and documents each in the model's own way. A model found neither locally nor on the hub is a ValueError at
    the first query.
    """

    graph: InitVar[CorpusGraph]  # its vectors are not read
    _: KW_ONLY
    model: str  # a local folder, or a model id of the Hugging Face hub
    top_k: int = 100  # candidates per query
    batch_size: int = 32  # texts per forward pass
    max_length: int | None = None  # tokens per text, which is truncated; None for the model's own limit
    device: str | None = None  # None for sentence-transformers' choice
    revision: str | None = None  # commit of a hub model
    cache: str | Path | None = None  # folder of document vectors (`SparseVectorCache`)
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE,), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, batch_size=self.batch_size, max_length=self.max_length)
        self._texts = graph.all_texts

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, as no dense vectors are read."""
        return False

    @cached_property
    def fingerprint(self) -> str:
        """Hash of a local model's files; empty for a hub model, identified by its id and revision."""
        folder = Path(self.model)
        if not folder.is_dir():
            return ""
        files = sorted(file for file in folder.rglob("*") if file.suffix in FINGERPRINTED)
        return hashlib.sha256(hash_files(files).encode()).hexdigest()

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts: ``[B, top_k]``, with the dot product as the one feature."""
        rows = max(1, BLOCK_SCORES // max(1, len(self._texts)))
        rankings = []
        for block in queries.blocks(rows):
            nodes, scores = top_k_by_node_order(self._score(block.texts), self.top_k)
            rankings.append(Ranking(nodes, scores, scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1)))
        return Ranking.concatenate(rankings)

    def _score(self, query_texts: Sequence[str]) -> Tensor:
        if not query_texts or not self._texts:
            return torch.zeros(len(query_texts), len(self._texts))
        vectors = self._encode(self._encoder.encode_query, query_texts).to_dense()
        return (self._corpus @ vectors.T).T

    @cached_property
    def _corpus(self) -> Tensor:
        """``[N, V]`` in compressed sparse rows."""
        if self.cache is not None:
            identity = repr((self.fingerprint or f"{self.model}@{self.revision}", self.max_length))
            folder = Path(self.cache) / short_hash(identity)
            cache = SparseVectorCache(folder, lambda texts: self._encode(self._encoder.encode_document, texts))
            return cache.encode(self._texts)
        return _compressed(self._encode(self._encoder.encode_document, self._texts))

    def _encode(self, encode: Any, texts: Sequence[str]) -> Tensor:
        blocks = [
            encode(
                list(texts[start : start + BLOCK_TEXTS]),
                batch_size=self.batch_size,
                convert_to_sparse_tensor=True,
                save_to_cpu=True,
                show_progress_bar=False,
            ).float()
            for start in range(0, len(texts), BLOCK_TEXTS)
        ]
        return torch.cat(blocks).coalesce()

    @cached_property
    def _encoder(self) -> Any:
        library = optional("sentence_transformers", "retriever=splade")  # heavy: only when something must be encoded
        try:
            encoder = library.SparseEncoder(
                self.model, device=self.device, revision=self.revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"`model` must be a local folder or a reachable hub id of a sparse encoder, got {self.model!r}: {error}"
            ) from error
        if self.max_length is not None:
            encoder.max_seq_length = self.max_length
        return encoder
