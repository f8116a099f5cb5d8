"""Reranking of batches of requests by an artifact, with the encoder of its training.

A request is its own corpus: BM25, with its term weights, cosine and edges are computed among its documents.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.inference import Explainer, GraphReranker, RerankedList, RerankInput
from graphrerank.inference.explanation import DocumentExplanation
from graphrerank.models import Checkpoint, load_checkpoint
from graphrerank.serving.artifact import Artifact, load_artifact
from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import metrics
from graphrerank.serving.rerank_request import Document, EdgeEffect, Explanation, RerankRequest, RerankResponse

API_VERSION = {"version": "2"}


class RerankEngine:
    """Ranks the documents of many requests in one forward pass.

    Args:
        artifact: The exported model.
        encoder: Encoder of query and documents, without a ``VectorCache``, which would write every request to disk.
            None for models that read no vectors: the cosine is then 0 for all documents.
        limits: Limits of requests.
        device: Device of the model.

    Raises:
        ValueError: If the encoder is not that of the manifest, there is none and the model reads vectors, or the model
            was trained on scores that cannot be computed here.
    """

    def __init__(
        self,
        artifact: Artifact,
        encoder: Encoder | None = None,
        *,
        limits: Limits | None = None,
        device: str = "cpu",
    ) -> None:
        checkpoint = Checkpoint(artifact.module, artifact.manifest, artifact.folder)
        self._reranker = GraphReranker(checkpoint, device=device)
        self._folder = artifact.folder
        self._limits = limits or Limits()
        self.name = self._reranker.name
        if encoder is not None:
            checkpoint.check_encoder(encoder.name, encoder.fingerprint)
        elif self._reranker.inputs.reads_vectors:
            checkpoint.check_encoder(None, None)
        self._encoder = encoder

    def answer(self, requests: Mapping[str, RerankRequest]) -> dict[str, Answer]:
        """Answer a batch of requests, by id.

        Raises:
            ValueError: If a request is invalid.
        """
        return {uid: Answer.of(response) for uid, response in self._responses(requests).items()}

    def rerank(self, requests: Mapping[str, RerankRequest]) -> dict[str, RerankResponse]:
        """Rank the documents of a batch of requests, by id.

        Raises:
            ValueError: If a request is invalid.
        """
        responses = self._responses(requests)
        return {uid: RerankResponse.model_validate(response) for uid, response in responses.items()}

    def warm_up(self) -> None:
        """Rank twice, with and without edges: TorchScript optimises its graphs on the second call."""
        texts = {"query": "what warms up", "documents": ["the first document", "the second", "a third one"]}
        for edges in ([], [[0, 1], [1, 2, 0.5]]):
            request = RerankRequest.model_validate({**texts, "edges": edges})
            for _ in range(2):
                self.rerank({"first": request, "second": request})
        self.rerank({"explained": request.model_copy(update={"explain": True})})

    def _responses(self, requests: Mapping[str, RerankRequest]) -> dict[str, dict[str, Any]]:
        """Return the content of each ``RerankResponse`` as plain values, as building models would be slow."""
        inputs = self._encoded(list(requests.values()))
        with metrics().stage_seconds.labels("rerank").time():
            rankings = self._reranker.rerank_batch(inputs)
        return {
            uid: self._response(uid, request, candidates, ranking)
            for (uid, request), candidates, ranking in zip(requests.items(), inputs, rankings, strict=True)
        }

    def _encoded(self, requests: Sequence[RerankRequest]) -> list[RerankInput]:
        """Add the vectors of requests with texts and without vectors, all encoded in one call."""
        texts = [
            [] if self._encoder is None or request.vectors is not None or request.documents is None
            else [request.query, *(request.texts() or ())]
            for request in requests
        ]  # fmt: skip
        encoded = self._encode([text for request_texts in texts for text in request_texts])
        blocks = torch.split(encoded, [len(request_texts) for request_texts in texts])
        return [
            request.to_input(vectors[0], vectors[1:]) if len(vectors) else request.to_input()
            for request, vectors in zip(requests, blocks, strict=True)
        ]

    def _encode(self, texts: list[str]) -> Tensor:
        if self._encoder is None or not texts:
            return torch.zeros(0, 0)
        with metrics().stage_seconds.labels("encode").time():
            encoded = self._encoder.encode(texts)
        try:
            return check_vectors(encoded, len(texts), self._encoder.name)
        except ValueError as error:
            raise RuntimeError(str(error)) from error  # not the request's fault

    def _response(
        self, uid: str, request: RerankRequest, candidates: RerankInput, ranking: RerankedList
    ) -> dict[str, Any]:
        indices = ranking.indices.tolist()
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score}
            for index, score in zip(indices, ranking.relevance.tolist(), strict=True)
        ]
        if request.return_documents and request.documents is not None:
            for result in results:
                result["document"] = _as_object(request.documents[result["index"]])
        if request.explain:
            for result, explanation in zip(results, self._explain(candidates, ranking), strict=True):
                result["explanation"] = explanation
        return {"id": uid, "results": results, "meta": {"api_version": API_VERSION, "model": self.name}}

    def _explain(self, candidates: RerankInput, ranking: RerankedList) -> list[Explanation]:
        with metrics().stage_seconds.labels("explain").time():
            explanations = self._explainer.explain(candidates, max_edges=self._limits.explained_edges)
        return [
            _explanation(
                explanations[index], None if ranking.probabilities is None else float(ranking.probabilities[rank])
            )
            for rank, index in enumerate(ranking.indices.tolist())
        ]

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(load_checkpoint(self._folder))


def load_rerank_engine(
    folder: Path,
    make_encoder: Callable[[], Encoder] | None,
    limits: Limits,
    device: str,
    *,
    format_name: str | None = None,
) -> RerankEngine:
    """Load an artifact in a worker.

    Args:
        folder: Folder of the artifact.
        make_encoder: Factory of the encoder; None for none.
        limits: Limits of requests.
        device: Device of the model.
        format_name: See :func:`load_artifact`.

    Raises:
        ValueError: As :func:`load_artifact` and :class:`RerankEngine`.
    """
    encoder = None if make_encoder is None else make_encoder()
    return RerankEngine(load_artifact(folder, format_name), encoder, limits=limits, device=device)


def _as_object(document: Document) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document


def _explanation(explanation: DocumentExplanation, probability: float | None) -> Explanation:
    return Explanation(
        base_rank=explanation.base_rank,
        base_score=explanation.base_score,
        gcs_part=explanation.gcs_part,
        learned_part=explanation.learned_part,
        score=explanation.gcs_part + explanation.learned_part,
        edges=[EdgeEffect(edge=pair, effect=effect) for pair, effect in explanation.edges],
        probability=probability,
    )
