"""Late interaction: a vector per token of query and passage, compared token by token, as ColBERT does."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import UserError, check_counts
from graphrerank.extras import optional
from graphrerank.files import hash_model
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.graphs.sparse_rows import row_slots

FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt"}  # weights, settings and vocabularies
BLOCK_TOKENS = 1 << 18  # token vectors compared at once


@dataclass(eq=False)
class EncodingRetriever:
    """Settings of a retriever with an encoder of sentence-transformers, which encodes the corpus at the first query."""

    graph: InitVar[CorpusGraph]
    _: KW_ONLY
    model: str  # a local folder, or a model id of the Hugging Face hub
    top_k: int = 100  # candidates per query
    batch_size: int = 32  # texts per forward pass
    max_length: int | None = None  # tokens per text, which is truncated; None for the model's limit
    device: str | None = None  # None for sentence-transformers' choice
    revision: str | None = None  # commit of a hub model
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE,), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, batch_size=self.batch_size, max_length=self.max_length)
        self._texts = graph.all_texts

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's files, or of the name and revision of a hub model."""
        return hash_model(self.model, self.revision, FINGERPRINTED)

    def _load(self, kind: str) -> Any:
        """Load the model by a class of sentence-transformers."""
        library = optional("sentence_transformers", f"a {kind}")  # heavy: only when something must be encoded
        source: dict[str, Any] = {"device": self.device, "revision": self.revision, "trust_remote_code": False}
        try:
            encoder = getattr(library, kind)(self.model, **source)
        except (OSError, ValueError) as error:
            raise UserError(
                f"`model` must be a local folder or a reachable hub id of a {kind}, got {self.model!r}: {error}"
            ) from error
        if self.max_length is not None:
            encoder.max_seq_length = self.max_length
        return encoder


@dataclass(eq=False)
class LateInteractionRetriever(EncodingRetriever):
    r"""Rank passages by the sum, over the query's tokens, of the best match among the passage's tokens.

    .. math:: s(q, d) = \sum_{i \in q} \max_{j \in d} E_{q_i} \cdot E_{d_j}

    Source: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
    over BERT", 2020, Eq. (3), through sentence-transformers' ``MultiVectorEncoder``, which reads checkpoints of ColBERT
    and of PyLate. *Where we differ:* ColBERT finds candidates by a search for each token; here all passages are
    compared, or the ``proposals`` nearest by dense vectors. Ties are broken by node index. The corpus is encoded at the
    first query, and kept in memory: ``4 d`` bytes per token.
    """

    _: KW_ONLY
    token_states: bool = False  # read the last layer of any text encoder, in place of a model trained for this
    proposals: int | None = None  # number of passages to compare, the best by dense vectors; None for all

    def __post_init__(self, graph: CorpusGraph) -> None:
        super().__post_init__(graph)
        check_counts(proposals=self.proposals)
        self._embedding = None if self.proposals is None else graph.encoded

    @staticmethod
    def needs_vectors(*, proposals: int | None = None, **_: Any) -> bool:
        """Return whether dense vectors propose passages."""
        return proposals is not None

    @torch.no_grad()
    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts: ``[B, top_k]``, with the score as the one feature."""
        scores = torch.full((len(queries), len(self._texts)), -torch.inf)
        # one by one: vectors that depended on the batch in the last digit would break ties differently
        tokens = self._encode("encode_query", queries.texts, batch_size=1) if len(queries) and self._texts else []
        proposed = self._propose(queries) if tokens else None
        for row, vectors in enumerate(tokens):
            nodes = torch.arange(len(self._texts)) if proposed is None else proposed[row]
            scores[row, nodes] = self._score(vectors, nodes)
        nodes, best = top_k_by_node_order(scores, self.top_k)
        return Ranking(nodes, best, best.masked_fill(nodes < 0, 0.0).unsqueeze(-1))

    def _propose(self, queries: Queries) -> Tensor | None:
        if self.proposals is None or self._embedding is None:
            return None
        similarity = queries.encoded.to(self._embedding) @ self._embedding.T
        return torch.topk(similarity, min(self.proposals, len(self._texts)), dim=1).indices.sort(dim=1).values.cpu()

    def _score(self, query: Tensor, nodes: Tensor) -> Tensor:
        """Compare a query's tokens ``[q, d]`` with those of some passages: ``[n]``."""
        vectors, ptr = self._corpus
        best = []
        for block in torch.split(nodes, max(1, BLOCK_TOKENS // max(1, int(ptr.diff().max())))):
            if len(block) == int(block[-1] - block[0]) + 1:  # a part of the corpus, which need not be copied
                tokens = vectors[ptr[block[0]] : ptr[block[-1] + 1]]
            else:
                tokens = vectors[row_slots(ptr, block)[1]]
            lengths = ptr.diff()[block]
            best.append(torch.segment_reduce(tokens @ query.T, "max", lengths=lengths, axis=0))
        matches = torch.cat(best)
        return matches.masked_fill(matches == -torch.inf, 0.0).sum(1)  # a passage without tokens matches nothing

    @cached_property
    def _corpus(self) -> tuple[Tensor, Tensor]:
        """Vectors of all passages' tokens ``[T, d]``, and the bounds of each passage's ``[N + 1]``."""
        tokens = self._encode("encode_document", self._texts, self.batch_size)
        ptr = torch.zeros(len(tokens) + 1, dtype=torch.int64)
        ptr[1:] = torch.tensor([len(vectors) for vectors in tokens]).cumsum(0)
        return torch.cat(tokens), ptr

    def _encode(self, method: str, texts: Sequence[str], batch_size: int) -> list[Tensor]:
        encode = getattr(self._encoder, method)
        encoded = encode(list(texts), batch_size=batch_size, show_progress_bar=len(texts) > 1000)
        return [vectors.float().cpu() for vectors in encoded]

    @cached_property
    def _encoder(self) -> Any:
        encoder = self._load("MultiVectorEncoder")
        if self.token_states:  # without the random projection that a text encoder is given there
            first, *_, normalize = encoder
            encoder = type(encoder)(modules=[first, normalize], device=self.device)
        return encoder
