"""Late interaction as in ColBERT: compare the token vectors of queries with the token vectors of passages."""

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

#: Suffixes of the model files that the fingerprint covers: weights, settings and vocabularies.
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt"}
#: Largest number of token pairs that are compared at once: 32 MiB.
BLOCK_TOKENS = 1 << 23


@dataclass(eq=False)
class EncodingRetriever(Retriever):
    """Base of retrievers that encode the corpus with a model of sentence-transformers at the first query.

    Args:
        graph: Corpus graph.

    Attributes:
        model: Local folder of the model, or its id on the Hugging Face hub.
        top_k: Number of candidates per query.
        batch_size: Number of texts per forward pass.
        max_length: Maximum number of tokens of a text. Longer texts are truncated. If None, the limit of the model is
            used.
        device: Device of the model. If None, sentence-transformers chooses one.
        revision: Commit of a hub model. If None, the latest commit is used.
        feature_names: Names of the features of a candidate.
    """

    graph: InitVar[CorpusGraph]
    _: KW_ONLY
    model: str
    top_k: int = 100
    batch_size: int = 32
    max_length: int | None = None
    device: str | None = None
    revision: str | None = None
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE,), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, batch_size=self.batch_size, max_length=self.max_length)
        self._texts, self._device = graph.all_texts, graph.device

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the files of a local model, or of the id and revision of a hub model."""
        return hash_model(self.model, self.revision, FINGERPRINTED)

    def _load(self, kind: str) -> Any:
        """Load the model with the given class of sentence-transformers."""
        library = optional("sentence_transformers", f"a {kind}")  # heavy import, so only when it is needed
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
    r"""Rank passages by the sum, over the tokens of the query, of the best match among the tokens of the passage.

    .. math:: s(q, d) = \sum_{i \in q} \max_{j \in d} E_{q_i} \cdot E_{d_j}

    Source: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
    over BERT", 2020, Eq. (3), with the ``MultiVectorEncoder`` of sentence-transformers, which loads checkpoints of
    ColBERT and PyLate. *Differences from the paper:* ColBERT finds candidates with one search per query token. Here the
    query is compared with all passages, or with the ``proposals`` nearest by dense vectors.

    Ties are broken by node index. The corpus is encoded at the first query. Its token vectors take ``4 d`` bytes per
    token on the device of the graph.

    Attributes:
        token_states: Whether to use the last layer of an ordinary text encoder. False for a model that was trained for
            late interaction.
        proposals: Number of passages to compare with each query, the nearest by dense vectors. If None, all passages
            are compared.

    Example:
        .. code-block:: python

            retriever = LateInteractionRetriever(graph, model="colbert-ir/colbertv2.0", top_k=100)
            ranking = retriever.retrieve(Queries(["q1"], ["who wrote Emma?"]))
    """

    _: KW_ONLY
    token_states: bool = False
    proposals: int | None = None

    def __post_init__(self, graph: CorpusGraph) -> None:
        super().__post_init__(graph)
        check_counts(proposals=self.proposals)
        self._embedding = None if self.proposals is None else graph.encoded

    @staticmethod
    def needs_vectors(*, proposals: int | None = None, **_: Any) -> bool:
        """Return whether dense vectors are needed to propose passages.

        Args:
            proposals: Number of passages to compare with each query. None to compare all.
        """
        return proposals is not None

    @torch.no_grad()
    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by late interaction.

        Args:
            queries: ``B`` queries. They need dense vectors if ``proposals`` is set.

        Returns:
            Ranking ``[B, top_k]`` with the score as its only feature.
        """
        scores = torch.full((len(queries), len(self._texts)), -torch.inf, device=self._device)
        if len(queries) and self._texts:
            # On the CPU, vectors depend on the batch in the last digit. Single queries keep the order of ties stable.
            batch_size = 1 if self._device.type == "cpu" else self.batch_size
            tokens, ptr, bounds = self._encode("encode_query", queries.texts, batch_size)
            if self._embedding is None:
                self._compare(scores, tokens, bounds.diff(), torch.arange(scores.shape[1], device=self._device))
            else:
                similarity = queries.encoded.to(self._embedding) @ self._embedding.T
                proposed = torch.topk(similarity, min(self.proposals or 1, scores.shape[1]), dim=1).indices
                rows = zip(torch.split(tokens, ptr.diff().tolist()), proposed, proposed.cpu(), strict=True)
                for row, (query_tokens, nodes, cpu_nodes) in enumerate(rows):
                    self._compare(scores[row : row + 1], query_tokens, bounds[row : row + 2].diff(), nodes, cpu_nodes)
        nodes, best = top_k_by_node_order(scores, self.top_k)
        return Ranking(nodes, best, best.masked_fill(nodes < 0, 0.0).unsqueeze(-1))

    def _compare(
        self, scores: Tensor, tokens: Tensor, lengths: Tensor, nodes: Tensor, cpu_nodes: Tensor | None = None
    ) -> None:
        """Write the scores of passages ``nodes [n]`` into ``scores [b, N]``, for queries with ``lengths [b]`` tokens.

        ``cpu_nodes`` are the same passages on the CPU, or None if ``nodes`` are all passages.
        """
        vectors, ptr, bounds = self._corpus
        most = max(1, BLOCK_TOKENS // max(1, len(tokens) * int(ptr.diff().max())))
        for first in range(0, len(nodes), most):
            block = nodes[first : first + most]
            if cpu_nodes is None:  # consecutive passages, whose vectors need no copy
                passage_tokens = vectors[ptr[first] : ptr[first + len(block)]]
            else:
                num_tokens = int(ptr.diff()[cpu_nodes[first : first + most]].sum())
                passage_tokens = vectors[row_slots(bounds, block, num_slots=num_tokens)[1]]
            sizes = bounds.diff()[block]
            best = torch.segment_reduce(passage_tokens @ tokens.T, "max", lengths=sizes, axis=0, unsafe=True)
            best = best.masked_fill(best == -torch.inf, 0.0)  # a passage without tokens matches nothing
            best = best.T.contiguous()
            scores[:, block] = torch.segment_reduce(best, "sum", lengths=lengths, axis=0, unsafe=True)

    @cached_property
    def _corpus(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._encode("encode_document", self._texts, self.batch_size)

    def _encode(self, method: str, texts: Sequence[str], batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the token vectors ``[T, d]``, and the bounds of the texts ``[n + 1]`` on the CPU and on the device."""
        encode = getattr(self._encoder, method)
        encoded = encode(list(texts), batch_size=batch_size, show_progress_bar=len(texts) > 1000)
        ptr = torch.tensor([0, *map(len, encoded)]).cumsum(0)
        return torch.cat([*encoded]).float().to(self._device), ptr, ptr.to(self._device)

    @cached_property
    def _encoder(self) -> Any:
        encoder = self._load("MultiVectorEncoder")
        if self.token_states:  # remove the untrained projection that sentence-transformers adds to a text encoder
            first, *_, normalize = encoder
            encoder = type(encoder)(modules=[first, normalize], device=self.device)
        return encoder
