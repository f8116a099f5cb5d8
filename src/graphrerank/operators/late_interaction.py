"""Late interaction: a vector per token of query and passage, compared token by token, as ColBERT does."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, Retriever, top_k_by_node_order
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.core.sparse_rows import row_slots
from graphrerank.corpus import CorpusGraph
from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import hash_model

FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt"}  # weights, settings and vocabularies
BLOCK_TOKENS = 1 << 23  # pairs of tokens compared at once: 32 MiB


@dataclass(eq=False)
class EncodingRetriever(Retriever):
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
        self._texts, self._device = graph.all_texts, graph.device

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
    first query, and kept on the graph's device: ``4 d`` bytes per token.
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
        scores = torch.full((len(queries), len(self._texts)), -torch.inf, device=self._device)
        if len(queries) and self._texts:
            # one by one on the CPU: vectors that depended on the batch in the last digit would break ties differently
            batch_size = 1 if self._device.type == "cpu" else self.batch_size
            tokens, ptr, bounds = self._encode("encode_query", queries.texts, batch_size)
            if self._embedding is None:
                self._compare(scores, tokens, bounds.diff(), torch.arange(scores.shape[1], device=self._device))
            else:
                similarity = queries.encoded.to(self._embedding) @ self._embedding.T
                proposed = torch.topk(similarity, min(self.proposals or 1, scores.shape[1]), dim=1).indices
                rows = zip(torch.split(tokens, ptr.diff().tolist()), proposed, proposed.cpu(), strict=True)
                for row, (asked, nodes, numbers) in enumerate(rows):
                    self._compare(scores[row : row + 1], asked, bounds[row : row + 2].diff(), nodes, numbers)
        nodes, best = top_k_by_node_order(scores, self.top_k)
        return Ranking(nodes, best, best.masked_fill(nodes < 0, 0.0).unsqueeze(-1))

    def _compare(
        self, scores: Tensor, tokens: Tensor, lengths: Tensor, nodes: Tensor, numbers: Tensor | None = None
    ) -> None:
        """Fill the ``scores [b, N]`` of queries with ``lengths [b]`` tokens, for the passages ``nodes [n]``.

        ``numbers`` are these passages on the CPU; None for all.
        """
        vectors, ptr, bounds = self._corpus
        most = max(1, BLOCK_TOKENS // max(1, len(tokens) * int(ptr.diff().max())))
        for first in range(0, len(nodes), most):
            block = nodes[first : first + most]
            if numbers is None:  # a part of the corpus, which need not be copied
                held = vectors[ptr[first] : ptr[first + len(block)]]
            else:
                num_tokens = int(ptr.diff()[numbers[first : first + most]].sum())
                held = vectors[row_slots(bounds, block, num_slots=num_tokens)[1]]
            sizes = bounds.diff()[block]
            best = torch.segment_reduce(held @ tokens.T, "max", lengths=sizes, axis=0, unsafe=True)
            best = best.masked_fill(best == -torch.inf, 0.0)  # a passage without tokens matches nothing
            best = best.T.contiguous()
            scores[:, block] = torch.segment_reduce(best, "sum", lengths=lengths, axis=0, unsafe=True)

    @cached_property
    def _corpus(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._encode("encode_document", self._texts, self.batch_size)

    def _encode(self, method: str, texts: Sequence[str], batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return vectors of all texts' tokens ``[T, d]``, and each text's bounds ``[n + 1]``, on the CPU and there."""
        encode = getattr(self._encoder, method)
        encoded = encode(list(texts), batch_size=batch_size, show_progress_bar=len(texts) > 1000)
        ptr = torch.tensor([0, *map(len, encoded)]).cumsum(0)
        return torch.cat([*encoded]).float().to(self._device), ptr, ptr.to(self._device)

    @cached_property
    def _encoder(self) -> Any:
        encoder = self._load("MultiVectorEncoder")
        if self.token_states:  # without the random projection that a text encoder is given there
            first, *_, normalize = encoder
            encoder = type(encoder)(modules=[first, normalize], device=self.device)
        return encoder
