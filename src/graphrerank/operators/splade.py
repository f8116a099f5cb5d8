"""Learned sparse retrieval with SPLADE or another sparse encoder of sentence-transformers."""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, top_k_by_node_order
from graphrerank.core.sparse_rows import sparse_matrix
from graphrerank.operators.late_interaction import EncodingRetriever
from graphrerank.utils.caching import cached_tensors, short_hash

#: Names of the tensors in a cache file, which form a matrix in CSR format.
MATRIX_TENSORS = ("indptr", "indices", "weights", "num_columns")
#: Largest number of scores in memory at once: 128 MiB of float32.
BLOCK_SCORES = 1 << 25
#: Number of texts that are encoded before their vectors are moved to the CPU.
BLOCK_TEXTS = 1024


@dataclass(eq=False)
class SpladeRetriever(EncodingRetriever):
    r"""Rank the corpus by the dot product of sparse vectors over a vocabulary.

    .. math:: s(q, d) = \sum_{t} w_t(q)\,w_t(d)

    with :math:`w_t` the non-negative weight that the encoder gives to term :math:`t`. Nodes that share no term with the
    query score 0. Ties are broken by node index. The corpus is encoded at the first query.

    Source: Formal et al., *SPLADE*, 2021, Eq. (2), with the ``SparseEncoder`` of sentence-transformers.

    Attributes:
        cache: Folder of the cached vectors of corpora. If None, the vectors are not cached.

    Example:
        .. code-block:: python

            retriever = SpladeRetriever(graph, model="naver/splade-cocondenser-ensembledistil", top_k=100)
            ranking = retriever.retrieve(Queries(["q1"], ["who wrote Emma?"]))
    """

    _: KW_ONLY
    cache: str | Path | None = None

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, because no dense vectors are used."""
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by the dot product of sparse vectors.

        Args:
            queries: ``B`` queries. Their dense vectors are ignored.

        Returns:
            Ranking ``[B, top_k]`` with the score as its only feature.
        """
        rows = max(1, BLOCK_SCORES // max(1, len(self._texts)))
        rankings = []
        for block in queries.blocks(rows):
            nodes, scores = top_k_by_node_order(self._score(block.texts), self.top_k)
            rankings.append(Ranking(nodes, scores, scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1)))
        return Ranking.concatenate(rankings)

    def _score(self, query_texts: Sequence[str]) -> Tensor:
        if not query_texts or not self._texts:
            return torch.zeros(len(query_texts), len(self._texts), device=self._device)
        vectors = self._encode(self._encoder.encode_query, query_texts).to_dense().to(self._device)
        return (self._corpus @ vectors.T).T

    @cached_property
    def _corpus(self) -> Tensor:
        """Vectors of the corpus as a CSR matrix ``[N, V]``, on the device of the graph."""
        if self.cache is None or not self._texts:
            return self._encode_corpus().to(self._device)
        texts = hashlib.sha256("\0".join(self._texts).encode("utf-8", "surrogatepass")).hexdigest()
        identity = repr((self.fingerprint, self.max_length, texts))
        file = Path(self.cache) / f"{short_hash(identity)}.safetensors"

        def compute() -> dict[str, Tensor]:
            matrix = self._encode_corpus()
            rows = (matrix.crow_indices(), matrix.col_indices(), matrix.values(), torch.tensor(matrix.shape[1]))
            return dict(zip(MATRIX_TENSORS, rows, strict=True))

        tensors = cached_tensors(file, MATRIX_TENSORS, compute)
        indptr, indices, weights = tensors["indptr"], tensors["indices"], tensors["weights"]
        return sparse_matrix(indptr, indices, weights, int(tensors["num_columns"])).to(self._device)

    def _encode_corpus(self) -> Tensor:
        encoded = self._encode(self._encoder.encode_document, self._texts)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            return encoded.to_sparse_csr()

    def _encode(self, encode: Any, texts: Sequence[str]) -> Tensor:
        encode = partial(encode, batch_size=self.batch_size, save_to_cpu=True, show_progress_bar=False)
        blocks = [encode(list(texts[start : start + BLOCK_TEXTS])) for start in range(0, len(texts), BLOCK_TEXTS)]
        return torch.cat(blocks).float().coalesce()

    @cached_property
    def _encoder(self) -> Any:
        return self._load("SparseEncoder")
