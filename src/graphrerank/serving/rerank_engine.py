"""Reranks batches of requests with an artifact, and the encoder that it was trained with.

A request is a corpus of its own: BM25, cosine and edges are computed among its documents, as the model was trained on a
corpus. BM25's word weights are therefore those of the request.
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
        encoder: Encodes query and documents. Give it bare: a ``VectorCache`` would write every request to disk. None
            to go without, for models that read no vectors: the cosine is then 0 for all documents.
        limits: What the service takes on.
        device: Where the model runs.

    Raises:
        ValueError: If the encoder is not the one of the manifest, or there is none and the model reads vectors, or the
            model was trained on scores that are unknown here.
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
        """Answer a batch of requests, by their ids.

        Raises:
            ValueError: If a request is at fault; names what.
        """
        return {uid: Answer.of(response) for uid, response in self._responses(requests).items()}

    def rerank(self, requests: Mapping[str, RerankRequest]) -> dict[str, RerankResponse]:
        """Rank the documents of a batch of requests, by their ids.

        Raises:
            ValueError: As :meth:`answer`.
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
        """Return what a ``RerankResponse`` holds, as plain values: a model of each would take long."""
        inputs = self._encoded(list(requests.values()))
        with metrics().stage_seconds.labels("rerank").time():
            rankings = self._reranker.rerank_batch(inputs)
        return {
            uid: self._response(uid, request, given, ranking)
            for (uid, request), given, ranking in zip(requests.items(), inputs, rankings, strict=True)
        }

    def _encoded(self, requests: Sequence[RerankRequest]) -> list[RerankInput]:
        """Add the vectors of those requests that have texts and bring no vectors, all encoded at once."""
        texts = [
            [] if self._encoder is None or request.vectors is not None or request.documents is None
            else [request.query, *(request.texts() or ())]
            for request in requests
        ]  # fmt: skip
        encoded = self._encode([text for of_request in texts for text in of_request])
        blocks = torch.split(encoded, [len(of_request) for of_request in texts])
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
            raise RuntimeError(str(error)) from error  # no fault of the request

    def _response(self, uid: str, request: RerankRequest, given: RerankInput, ranking: RerankedList) -> dict[str, Any]:
        indices = ranking.indices.tolist()
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score}
            for index, score in zip(indices, ranking.relevance.tolist(), strict=True)
        ]
        if request.return_documents and request.documents is not None:
            for result in results:
                result["document"] = _as_object(request.documents[result["index"]])
        if request.explain:
            for result, explanation in zip(results, self._explain(given, ranking), strict=True):
                result["explanation"] = explanation
        return {"id": uid, "results": results, "meta": {"api_version": API_VERSION, "model": self.name}}

    def _explain(self, given: RerankInput, ranking: RerankedList) -> list[Explanation]:
        with metrics().stage_seconds.labels("explain").time():
            found = self._explainer.explain(given, max_edges=self._limits.explained_edges)
        return [
            _explanation(found[index], None if ranking.probabilities is None else float(ranking.probabilities[place]))
            for place, index in enumerate(ranking.indices.tolist())
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
        folder: The artifact's.
        make_encoder: Makes the encoder; None to go without.
        limits: What the service takes on.
        device: Where the model runs.
        format_name: As of :func:`load_artifact`.

    Raises:
        ValueError: As :func:`load_artifact` and :class:`RerankEngine`.
    """
    encoder = None if make_encoder is None else make_encoder()
    return RerankEngine(load_artifact(folder, format_name), encoder, limits=limits, device=device)


def _as_object(document: Document) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document


def _explanation(found: DocumentExplanation, probability: float | None) -> Explanation:
    return Explanation(
        base_rank=found.base_rank,
        base_score=found.base_score,
        gcs_part=found.gcs_part,
        learned_part=found.learned_part,
        score=found.gcs_part + found.learned_part,
        edges=[EdgeEffect(edge=pair, effect=effect) for pair, effect in found.edges],
        probability=probability,
    )
