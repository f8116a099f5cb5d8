"""Rerank documents over HTTP with an exported artifact.

- A request is a corpus of its own: BM25, cosine and edges are computed among its documents, as the model was trained on
  a corpus. BM25's word weights are therefore those of the request. All of it is :class:`GraphReranker`'s work.
- One pydantic model holds every rule of a request, for HTTP and for Python callers alike.
- An answer never echoes the request: neither documents nor numbers that JSON cannot hold (NaN) come back.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from threading import Lock
from typing import Annotated, Any

import uvicorn
import uvicorn.config
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator
from torch import Tensor

from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.inference import GraphReranker
from graphrerank.inference.arrays import LARGEST
from graphrerank.inference.input_edges import LARGEST_WEIGHT, SMALLEST_WEIGHT
from graphrerank.models import Checkpoint
from graphrerank.models.checkpoint import manifest_entry
from graphrerank.serving.export import Artifact

MAX_DOCUMENTS = 1000
MAX_EDGES = 100_000

Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False, strict=True)]
Weight = Annotated[float, Field(ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False, strict=True)]
Index = Annotated[int, Field(ge=0, strict=True)]
Edge = Annotated[
    Annotated[tuple[Index, Index], Tag("pair")] | Annotated[tuple[Index, Index, Weight], Tag("weighted")],
    Discriminator(lambda edge: "pair" if isinstance(edge, list | tuple) and len(edge) == 2 else "weighted"),
]


class RerankRequest(BaseModel):
    """What ``POST /rerank`` takes.

    Attributes:
        query: The query, not empty.
        documents: 1 to ``MAX_DOCUMENTS`` texts.
        edges: Undirected edges ``[i, j]`` or ``[i, j, weight]`` between two different documents, numbered from 0;
            weights lie in [1e-9, 1e9], 1 when left out. None for no edges.
        scores: One base score per document, which takes the place of the hybrid score; None for the hybrid score, and
            BM25 alone where the service has no encoder.
        top_n: How many results to return; None for all.
    """

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[list[str], Field(min_length=1, max_length=MAX_DOCUMENTS, fail_fast=True)]
    edges: Annotated[list[Edge], Field(max_length=MAX_EDGES, fail_fast=True)] | None = None
    scores: Annotated[list[Score], Field(max_length=MAX_DOCUMENTS, fail_fast=True)] | None = None
    top_n: Annotated[int, Field(ge=1, strict=True)] | None = None

    @field_validator("edges")
    @classmethod
    def _edges_join_documents(cls, edges: list[Edge] | None, info: ValidationInfo) -> list[Edge] | None:
        if edges is None or "documents" not in info.data:  # the documents have an error of their own
            return edges
        num_documents = len(info.data["documents"])
        for place, edge in enumerate(edges):
            if max(edge[0], edge[1]) >= num_documents:
                needed = f"join documents 0 to {num_documents - 1}"
            elif edge[0] == edge[1]:
                needed = "join two different documents"
            else:
                continue
            raise ValueError(f"`edges` must each {needed}, got {list(edge[:2])} at place {place}")
        return edges

    @field_validator("scores")
    @classmethod
    def _scores_match_documents(cls, scores: list[float] | None, info: ValidationInfo) -> list[float] | None:
        if scores is not None and "documents" in info.data and len(scores) != len(info.data["documents"]):
            needed = len(info.data["documents"])
            raise ValueError(f"`scores` must have one entry per document ({needed}), got {len(scores)}")
        return scores


class RerankResult(BaseModel):
    """One document of an answer.

    Attributes:
        index: The document's place in the request, from 0.
        score: Higher is more relevant; comparable within an answer only.
    """

    index: int
    score: float


class RerankResponse(BaseModel):
    """What ``POST /rerank`` answers.

    Attributes:
        results: Best first, ties by index.
        model: Name of the model in its manifest.
    """

    results: list[RerankResult]
    model: str


class RerankService:
    """Rerank documents with an artifact and the encoder it was trained with. Safe to call from many threads.

    Args:
        artifact: The exported model.
        encoder: Encodes query and documents. Give it bare: a ``VectorCache`` would write every request to disk. None
            to go without, for models that read no vectors: the cosine is then 0 for all documents.

    Raises:
        ValueError: If the encoder is not the one of the manifest, or there is none and the model reads vectors, or the
            model was trained on scores that are unknown here.
    """

    def __init__(self, artifact: Artifact, encoder: Encoder | None) -> None:
        manifest = artifact.manifest
        self._reranker = GraphReranker(Checkpoint(artifact.module, manifest, artifact.folder))
        self.name = self._reranker.name
        if encoder is not None:
            _check_encoder(manifest, encoder)
        elif self._reranker.reads_vectors:
            name = manifest_entry(manifest, "encoder", "name")
            raise ValueError(f"`encoder` must be {name!r}: the model {self.name!r} reads its vectors, got none")
        self._encoder = encoder
        self._encoding = Lock()  # fast tokenizers fail when two threads use one ("Already borrowed")

    def rerank(
        self,
        query: str,
        documents: list[str],
        edges: Sequence[Sequence[float]] | None = None,
        scores: Sequence[float] | None = None,
        top_n: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rank documents by relevance to a query; arguments as in :class:`RerankRequest`.

        Returns:
            ``{"index": i, "score": s}`` for the best ``top_n`` documents, best first, ties by index.

        Raises:
            ValueError: If an argument breaks a rule of :class:`RerankRequest`; names it.
        """
        given = {"query": query, "documents": documents, "edges": edges, "scores": scores, "top_n": top_n}
        return self.answer(RerankRequest.model_validate(given))

    def answer(self, request: RerankRequest) -> list[dict[str, Any]]:
        """Do what :meth:`rerank` does, for a request that is already validated."""
        edges, vectors = request.edges or [], self._encode([request.query, *request.documents])
        ranking = self._reranker.rerank(
            request.query,
            request.documents,
            scores=request.scores,
            edges=[edge[:2] for edge in edges],
            edge_weights=[edge[2] if len(edge) == 3 else 1.0 for edge in edges],
            query_vector=None if vectors is None else vectors[0],
            vectors=None if vectors is None else vectors[1:],
            top_n=request.top_n,
        )
        return [{"index": index, "score": score} for index, score in ranking]

    def _encode(self, texts: list[str]) -> Tensor | None:
        if self._encoder is None:
            return None
        with self._encoding:
            encoded = self._encoder.encode(texts)
        return check_vectors(encoded, len(texts), self._encoder.name)


def _check_encoder(manifest: Mapping[str, Any], encoder: Encoder) -> None:
    trained, given = manifest_entry(manifest, "encoder", "fingerprint"), encoder.fingerprint
    if trained != given:
        name = manifest_entry(manifest, "encoder", "name")
        raise ValueError(
            f"`encoder` must be {name!r} with fingerprint {trained}, as in training, "
            f"got {encoder.name!r} with fingerprint {given}"
        )


def create_app(service: RerankService) -> FastAPI:
    """Make the web application: ``POST /rerank`` and ``GET /health``."""
    app = FastAPI(title="graphrerank", description="Learned graph reranking for graph RAG.")

    @app.post("/rerank")
    def rerank(request: RerankRequest) -> RerankResponse:  # no `async`: runs in the thread pool
        results = [RerankResult(**result) for result in service.answer(request)]
        return RerankResponse(results=results, model=service.name)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "model": service.name}

    @app.exception_handler(RequestValidationError)
    def refuse(request: Request, error: RequestValidationError) -> Response:
        detail = [{key: found[key] for key in ("loc", "msg", "type")} for found in error.errors()]
        return Response(json.dumps({"detail": detail}), status_code=422, media_type="application/json")

    return app


def serve_http(app: FastAPI, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until interrupted; everything is logged to standard error."""
    log_config = deepcopy(uvicorn.config.LOGGING_CONFIG)
    log_config["handlers"]["access"]["stream"] = "ext://sys.stderr"
    uvicorn.run(app, host=host, port=port, log_config=log_config)
